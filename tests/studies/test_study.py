"""A study: planned as data, run in stacks over processes, recorded byte by byte the same."""

from __future__ import annotations

import csv
import json
import os
import pickle
import re
import shutil
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import apil
from apil.errors import ApilError
from apil.files import read_json, read_rows
from apil.learning.ask import TeacherError
from apil.learning.build import stack_shape
from apil.learning.update import DivergenceError
from apil.runs.folder import load_config
from apil.settings import RunSettings
from apil.studies.engines import Tally, run_cells
from apil.studies.folder import claimed
from apil.studies.plan import SAMPLE_SIZES, Cell, plan, stacks
from apil.studies.records import read_study
from apil.studies.stack import standing, work_of
from apil.studies.summary import write_records
from apil.studies.tables import queries_table

_BASE = RunSettings.of("grid", "detm", "never", iterations=30, log_every=10, expectation="monte-carlo")
_TEACHERS, _QUERIES, _SEEDS = ("detm", "twodifdetm"), ("apil", "dagger", "intrun"), 2
_THRESHOLDS: dict[str, float | None] = {"intrun": 0.2}
_HEADER = "task,teacher,query,seed,iteration,query_rate,success,intrinsic,extrinsic,behavioral,model,total,answers"
_FIGURES = (
    "query_rate", "query_rate_total", "answers", "success", "success_alone",
    "intrinsic", "extrinsic", "behavioral", "model", "total",
)  # fmt: skip


def _cells() -> list[Cell]:
    return plan(_BASE, _TEACHERS, _QUERIES, _SEEDS, _THRESHOLDS)


def _study(folder: Path, cells: list[Cell], workers: int) -> int:
    """Runs and records a study; returns the units of work that were told."""
    (folder / "runs").mkdir(parents=True)
    told: list[int] = []
    run_cells(cells, folder / "runs", 20, workers, told.append)
    write_records(cells, folder, {"intrun": {"threshold": 0.2, "how": "By hand."}})
    return sum(told)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "one"
    assert _study(folder, _cells(), workers=1) == work_of(_cells())
    return folder


def _records(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# Plan.


def test_every_policy_meets_every_teacher_and_seed_and_samples_are_varied() -> None:
    cells = _cells()
    main = [cell for cell in cells if cell.samples is None]
    assert {(c.config.teachers.name, c.config.query.name, c.config.seed) for c in main} == {
        (t, q, s) for t in _TEACHERS for q in _QUERIES for s in range(_SEEDS)
    }
    assert len(main) == 12
    assert {c.config.query.threshold for c in main if c.config.query.name == "intrun"} == {0.2}
    varied = [cell for cell in cells if cell.samples is not None]
    assert Counter(cell.samples for cell in varied) == dict.fromkeys((*map(str, SAMPLE_SIZES), "exact"), _SEEDS)
    for cell in varied:
        assert (cell.config.teachers.name, cell.config.query.name) == ("twodifdetm", "dagger")
        exact = cell.samples == "exact"
        assert cell.config.model.expectation == ("exact" if exact else "monte-carlo")
        assert exact or cell.config.model.samples == int(str(cell.samples))
    assert len({cell.folder for cell in cells}) == len(cells), "each run has a folder of its own"


def test_samples_are_varied_only_where_their_figure_can_be_drawn() -> None:
    assert all(cell.samples is None for cell in plan(_BASE, ("detm",), ("dagger",), 1, {}))
    assert all(cell.samples is None for cell in plan(_BASE, ("twodifdetm",), ("apil",), 1, {}))


def test_stacks_hold_every_cell_once_with_equal_shapes() -> None:
    cells = plan(_BASE, ("detm", "rand", "tworand", "twodifdetm"), ("apil", "dagger", "bc"), 20, {})
    made = stacks(cells)
    assert Counter(cell for stack in made for cell in stack) == Counter(cells)
    for stack in made:
        assert len({stack_shape(cell.config) for cell in stack}) == 1
        assert len(stack) <= 120


def test_a_study_of_grid_samples_identities_as_the_paper_does(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "teachers": ("tworand",),
        "queries": ("never",),
        "seeds": 1,
        "episodes": 1,
        "iterations": 2,
        "workers": 1,
    }
    found = apil.study("grid", out=tmp_path / "paper", progress=False, **given)
    stands = f"<Study of grid in {tmp_path / 'paper'}, taught by tworand, query policies never: 1 seed, 2 iterations>"
    assert repr(found) == str({"grid": found["grid"]}) == f"{{'grid': {stands}}}"
    (folder,) = (tmp_path / "paper" / "runs").iterdir()
    assert load_config(folder).model.drawn == 5
    apil.study("grid", out=tmp_path / "exact", progress=False, expectation="exact", **given)
    (folder,) = (tmp_path / "exact" / "runs").iterdir()
    assert load_config(folder).model.drawn == 0


# Records.


def test_the_same_seeds_give_the_same_bytes_with_one_worker_and_with_two(study: Path, tmp_path: Path) -> None:
    cells = _cells()
    told = _study(tmp_path / "two", cells, workers=2)
    assert 0 < told <= work_of(cells)
    assert _records(tmp_path / "two") == _records(study)


def test_the_records_of_a_run_do_not_depend_on_the_rest_of_the_study(study: Path, tmp_path: Path) -> None:
    _study(tmp_path / "part", plan(_BASE, ("twodifdetm",), ("apil", "intrun"), 1, _THRESHOLDS), workers=1)
    part = (tmp_path / "part" / "metrics.csv").read_text().splitlines()
    whole = (study / "metrics.csv").read_text().splitlines()
    assert len(part) == 1 + 2 * 3
    assert set(part) <= set(whole)


def test_metrics_are_sorted_rows_of_nine_digits_under_a_fixed_header(study: Path) -> None:
    lines = (study / "metrics.csv").read_text().split("\n")
    assert lines[0] == _HEADER
    assert lines[-1] == ""
    rows = list(csv.DictReader((study / "metrics.csv").read_text().splitlines()))
    keys = [(r["task"], r["teacher"], r["query"], int(r["seed"]), int(r["iteration"])) for r in rows]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys) == 12 * 3
    longest = 0
    for row in rows:
        for name in _HEADER.split(",")[5:]:
            digits = re.sub(r"e.*$", "", row[name]).replace(".", "").replace("-", "").lstrip("0")
            longest = max(longest, len(digits))
            assert row[name] == f"{float(row[name]):.9g}"
    assert longest == 9
    logged = {cell.folder: read_rows(study / "runs" / cell.folder / "metrics.jsonl") for cell in _cells()}
    for cell in _cells():
        if cell.samples is None:
            own = [r for r in rows if (r["teacher"], r["query"], int(r["seed"])) == (cell.config.teachers.name, cell.config.query.name, cell.config.seed)]  # fmt: skip  # noqa: E501
            for row, source in zip(own, logged[cell.folder], strict=True):
                assert int(row["answers"]) == source["answers"]
                assert float(row["model"]) == pytest.approx(source["model"], rel=1e-8, abs=1e-300)


def test_sampling_runs_are_recorded_apart(study: Path) -> None:
    rows = list(csv.DictReader((study / "samples.csv").read_text().splitlines()))
    assert (study / "samples.csv").read_text().startswith(_HEADER + ",samples\n")
    assert {row["samples"] for row in rows} == {"1", "5", "10", "20", "50", "exact"}
    main = (study / "metrics.csv").read_text()
    # The study itself draws five samples: its DAgger runs are those of the line for five.
    for row in rows:
        line = ",".join(list(row.values())[:-1])
        assert (line in main) == (row["samples"] == "5")


def test_the_query_objective_is_recorded_for_apil(study: Path) -> None:
    rows = list(csv.DictReader((study / "query_objective.csv").read_text().splitlines()))
    assert {row["query"] for row in rows} == {"apil"}
    assert all(row["no_progress"] == "0" for row in rows), "on the grid every step is progress"
    assert all(0 < float(row["query_on_progress"]) < 1 for row in rows)


def test_a_summary_has_every_figure_of_every_cell_with_its_interval(study: Path) -> None:
    summary = json.loads((study / "summary.json").read_text())
    assert (summary["task"], summary["seeds"], summary["iterations"]) == ("grid", 2, 30)
    assert (summary["expectation"], summary["samples"]) == ("monte-carlo", 5)
    assert {(c["teacher"], c["query"]) for c in summary["cells"]} == {(t, q) for t in _TEACHERS for q in _QUERIES}
    for cell in summary["cells"]:
        assert cell["seeds"] == 2
        for name in _FIGURES:
            assert {"mean", "low", "high"} <= set(cell[name])
            assert cell[name]["low"] <= cell[name]["mean"] <= cell[name]["high"]
        assert cell["behavioral"]["mean"] == pytest.approx(cell["intrinsic"]["mean"] + cell["extrinsic"]["mean"], abs=1e-5)  # fmt: skip  # noqa: E501


def test_summary_figures_are_those_of_the_rows(study: Path) -> None:
    summary = json.loads((study / "summary.json").read_text())
    for entry in summary["cells"]:
        own = [c for c in _cells() if (c.samples, c.config.teachers.name, c.config.query.name) == (None, entry["teacher"], entry["query"])]  # fmt: skip  # noqa: E501
        rows = [read_rows(study / "runs" / cell.folder / "metrics.jsonl") for cell in own]
        last = [r[-1]["query_rate"] for r in rows]
        assert entry["query_rate"]["mean"] == pytest.approx(sum(last) / 2), "the last tenth lies in the last row"
        whole = [sum(r["query_rate"] * r["steps"] for r in run) / sum(r["steps"] for r in run) for run in rows]
        assert entry["query_rate_total"]["mean"] == pytest.approx(sum(whole) / 2)
        assert entry["answers"]["mean"] == pytest.approx(sum(r[-1]["answers"] for r in rows) / 2)
        alone = [read_json(study / "runs" / cell.folder / "evaluation.json")["success_alone"] for cell in own]
        assert entry["success_alone"]["mean"] == pytest.approx(sum(alone) / 2)
        greedy = [read_json(study / "runs" / cell.folder / "evaluation.json")["success_greedy"] for cell in own]
        assert entry["success_greedy"]["mean"] == pytest.approx(sum(greedy) / 2)


def test_runs_that_were_not_measured_with_greedy_actions_lack_that_figure(study: Path, tmp_path: Path) -> None:
    """As those of earlier versions; the others keep it, and the table shows what is missing."""
    old = Path(shutil.copytree(study, tmp_path / "old"))
    cells = _cells()
    path = old / "runs" / next(cell.folder for cell in cells if cell.samples is None) / "evaluation.json"
    found = read_json(path)
    assert found.pop("success_greedy") == 1.0
    path.write_text(json.dumps(found))
    write_records(cells, old, {})
    figures = [cell.figure("success_greedy").known for cell in read_study(old).cells]
    assert figures.count(False) == 1
    assert len(figures) == len(_TEACHERS) * len(_QUERIES)
    tables = [block for block in queries_table(read_study(old)).blocks if "success alone, greedy" in block.header]
    column = [row[block.header.index("success alone, greedy")] for block in tables for row in block.rows]
    assert column.count("–") == 1


def test_teachers_are_recorded_beside_what_is_expected_of_them(study: Path) -> None:
    teachers = json.loads((study / "teachers.json").read_text())
    expected = {entry["teacher"]: entry for entry in teachers["expectations"]}
    assert expected["detm"]["intrinsic"] == expected["detm"]["extrinsic"] == 0
    assert expected["twodifdetm"]["extrinsic"] == pytest.approx(5.8125 / 8, abs=0.01)
    assert len(teachers["models"]) == 12
    assert json.loads((study / "thresholds.json").read_text()) == {"intrun": {"threshold": 0.2, "how": "By hand."}}


# Going on.


def test_finished_runs_are_kept_and_others_made_anew(study: Path) -> None:
    cells = _cells()
    now = standing(cells, study / "runs", 20)
    assert now.finished == cells
    assert now.todo == []
    longer = [replace(cell, config=replace(cell.config, iterations=31)) for cell in cells]
    assert standing(longer, study / "runs", 20).todo == longer


@pytest.mark.parametrize("damage", ["cut config", "no evaluation", "cut evaluation", "cut metrics"])
def test_a_run_that_is_not_whole_is_made_anew(tmp_path: Path, damage: str) -> None:
    cells = plan(replace(_BASE, iterations=2), ("detm",), ("bc", "never"), 1, {})
    _study(tmp_path / "study", cells, workers=1)
    before = _records(tmp_path / "study")
    runs = tmp_path / "study" / "runs"
    kind, name = damage.split()
    path = runs / cells[0].folder / {"config": "config.json", "evaluation": "evaluation.json", "metrics": "metrics.jsonl"}[name]  # fmt: skip  # noqa: E501
    if kind == "no":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-20])
    todo = standing(cells, runs, 20).todo
    assert todo == cells[:1]
    run_cells(todo, runs, 20, 1, lambda units: None)
    write_records(cells, tmp_path / "study", {"intrun": {"threshold": 0.2, "how": "By hand."}})
    assert _records(tmp_path / "study") == before


def test_finished_runs_need_no_weights_but_every_digit_of_their_records(tmp_path: Path) -> None:
    cells = plan(replace(_BASE, iterations=2), ("detm",), ("bc", "never"), 1, {})
    _study(tmp_path / "study", cells, workers=1)
    runs = tmp_path / "study" / "runs"
    for path in runs.rglob("checkpoint-*"):
        path.unlink()
    assert standing(cells, runs, 20).finished == cells
    metrics = runs / cells[0].folder / "metrics.jsonl"
    text = metrics.read_text()
    digit = re.search(r"[1-8]", text)
    assert digit is not None
    metrics.write_text(text[: digit.start()] + "9" + text[digit.end() :])
    assert standing(cells, runs, 20).finished == cells[1:]
    other = standing(cells[1:], runs, 21)
    assert (other.trained, other.todo) == ([], cells[1:]), "an evaluation of other length needs the weights"


def test_a_smaller_study_in_the_same_folder_leaves_no_records_of_the_larger(tmp_path: Path) -> None:
    cells = plan(replace(_BASE, iterations=3), ("twodifdetm",), ("apil", "dagger"), 1, {})
    folder = tmp_path / "study"
    _study(folder, cells, workers=1)
    assert {"samples.csv", "query_objective.csv"} <= set(_records(folder))
    write_records([cell for cell in cells if cell.samples is None and cell.config.query.name == "dagger"], folder, {})
    assert not {"samples.csv", "query_objective.csv"} & set(_records(folder))


@pytest.mark.parametrize(
    "error",
    [
        ApilError("Bad."),
        TeacherError("It raised.", 2, 3).located(5, 1, "at sea"),
        DivergenceError("policy", 7, "seed 3"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_the_way_out_of_a_worker_process(error: ApilError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)


class _PowerError(BaseException):
    """The power fails."""


def _files(folder: Path) -> dict[str, bytes]:
    """All files of a study's runs that are the same whenever it was made."""
    skip = {"timings.jsonl", "environment.json"}
    paths = [path for path in (folder / "runs").rglob("*") if path.is_file() and path.name not in skip]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


_MIXED = [
    Cell(replace(cell.config, answers=True, iterations=25, log_every=4))
    for cell in plan(_BASE, ("twodifdetm",), ("apil", "bc", "errpred"), 2, {"errpred": 0.3})
]


@pytest.fixture(scope="module")
def unstopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unstopped")
    (folder / "runs").mkdir()
    run_cells(_MIXED, folder / "runs", 20, 1, lambda units: None)
    return folder


def _stopped(folder: Path, after: int) -> None:
    """A study of one stack, stopped after some iterations; it saves after each."""
    (folder / "runs").mkdir(parents=True)
    told: list[int] = []

    def progress(units: int) -> None:
        told.append(units)
        if sum(told) >= after * len(_MIXED):
            raise _PowerError

    with pytest.raises(_PowerError):
        run_cells(_MIXED, folder / "runs", 20, 1, progress, due=lambda done, since, took: True)


def _go_on(folder: Path) -> list[int]:
    """Finishes a study; returns from which iteration each run went on, by its timings."""
    run_cells(standing(_MIXED, folder / "runs", 20).todo, folder / "runs", 20, 1, lambda units: None)
    return [read_rows(folder / "runs" / cell.folder / "timings.jsonl")[-1]["from"] for cell in _MIXED]


def test_a_stopped_study_goes_on_within_a_stack(unstopped: Path, tmp_path: Path) -> None:
    _stopped(tmp_path, after=8)
    now = standing(_MIXED, tmp_path / "runs", 20)
    assert now.begun == now.todo == _MIXED
    assert len(list(tmp_path.glob("runs/*/checkpoint-*.json"))) == 2 * len(_MIXED)
    assert _go_on(tmp_path) == [8] * len(_MIXED)
    assert _files(tmp_path) == _files(unstopped)


def test_runs_that_a_stop_during_a_save_left_behind_come_out_the_same(unstopped: Path, tmp_path: Path) -> None:
    """Two have lost their last checkpoint, one both; half a line of answers is left."""
    _stopped(tmp_path, after=8)
    folders = [tmp_path / "runs" / cell.folder for cell in _MIXED]
    for folder in folders[:3]:
        max(folder.glob("checkpoint-*.json")).unlink()
    min(folders[0].glob("checkpoint-*.json")).unlink()
    answers = folders[1] / "answers.jsonl"
    with answers.open("ab") as file:
        file.write(b'{"iteration": 8, "epi')
    assert standing(_MIXED, tmp_path / "runs", 20).restarted == _MIXED[:1]
    assert _go_on(tmp_path) == [0, 7, 7, 8, 8, 8]
    assert _files(tmp_path) == _files(unstopped)


def test_a_run_of_a_study_that_cannot_go_on_starts_over(
    unstopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checkpoints or metrics are damaged, or made by other code: reported, and started over."""
    _stopped(tmp_path, after=8)
    folders = [tmp_path / "runs" / cell.folder for cell in _MIXED]
    for path in folders[0].glob("checkpoint-*.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])
    rows = (folders[1] / "metrics.jsonl").read_bytes()
    (folders[1] / "metrics.jsonl").write_bytes(rows.replace(b"1", b"2", 1))
    environment = json.loads((folders[2] / "environment.json").read_text())
    (folders[2] / "environment.json").write_text(json.dumps({**environment, "code": "another"}))
    assert standing(_MIXED, tmp_path / "runs", 20).restarted == [_MIXED[2]]
    assert _go_on(tmp_path) == [0, 0, 0, 8, 8, 8]
    told = capsys.readouterr().err
    assert told.count("This run of the study starts over.") == 2
    assert _files(tmp_path) == _files(unstopped)


def test_changed_answers_of_a_study_are_never_dropped_nor_used(tmp_path: Path) -> None:
    _stopped(tmp_path, after=8)
    path = tmp_path / "runs" / _MIXED[0].folder / "answers.jsonl"
    changed = path.read_bytes().replace(b'"iteration": 0', b'"iteration": 1', 1)
    path.write_bytes(changed)
    with pytest.raises(ApilError, match=r"answers\.jsonl was changed"):
        _go_on(tmp_path)
    assert path.read_bytes() == changed


def test_a_run_that_fails_is_listed_with_its_log_and_does_not_stop_the_others(unstopped: Path, tmp_path: Path) -> None:
    """All are in one stack; two of them cannot go on."""
    _stopped(tmp_path, after=8)
    bad = [_MIXED[0], _MIXED[4]]
    kept = {}
    for cell in bad:
        path = tmp_path / "runs" / cell.folder / "answers.jsonl"
        kept[path] = path.read_bytes()
        path.write_bytes(kept[path].replace(b'"iteration": 0', b'"iteration": 1', 1))
    tallies: list[Tally] = []
    with pytest.raises(ApilError, match="2 of 6 runs failed") as failed:
        run_cells(_MIXED, tmp_path / "runs", 20, 1, lambda units: None, tally=tallies.append)
    assert all(cell.folder in str(failed.value) for cell in bad)
    assert tallies[-1] == Tally(done=4, running=0, failed=2)
    assert standing(_MIXED, tmp_path / "runs", 20).todo == bad
    log = tmp_path / "runs" / bad[0].folder / "failed.log"
    assert "answers.jsonl was changed" in log.read_text()
    for path, data in kept.items():
        path.write_bytes(data)
    _go_on(tmp_path)
    assert _files(tmp_path) == _files(unstopped)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_stops_every_stack_after_a_checkpoint(unstopped: Path, tmp_path: Path, workers: int) -> None:
    told: list[int] = []

    def progress(units: int) -> None:
        told.append(units)
        if len(told) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    (tmp_path / "runs").mkdir()
    with pytest.raises(KeyboardInterrupt):
        run_cells(_MIXED, tmp_path / "runs", 20, workers, progress, due=_never)
    now = standing(_MIXED, tmp_path / "runs", 20)
    assert now.begun
    assert not now.restarted, "what was begun has a checkpoint, though none was due"
    run_cells(now.todo, tmp_path / "runs", 20, 1, lambda units: None)
    assert _files(tmp_path) == _files(unstopped)


def _never(done: int, since: float, took: float) -> bool:
    return False


def test_other_evaluation_episodes_need_no_training(unstopped: Path, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    shutil.copytree(unstopped, folder)
    before = _files(folder)
    now = standing(_MIXED, folder / "runs", 30)
    assert now.trained == now.todo == _MIXED
    timings = {path: path.read_bytes() for path in folder.glob("runs/*/timings.jsonl")}
    run_cells(now.todo, folder / "runs", 30, 1, lambda units: None)
    assert all(path.read_bytes() == content for path, content in timings.items())
    after = _files(folder)
    made = ("evaluation.json", "finished.json")
    assert {name for name in after if after[name] != before[name]} == {name for name in before if name.endswith(made)}
    assert standing(_MIXED, folder / "runs", 30).finished == _MIXED


def test_a_short_study_saves_only_at_its_end(unstopped: Path) -> None:
    for cell in _MIXED:
        folder = unstopped / "runs" / cell.folder
        assert [row["to"] for row in read_rows(folder / "timings.jsonl")] == [25]
        assert len(list(folder.glob("checkpoint-*.json"))) == 1


# The folder.


def test_a_study_folder_is_claimed_once_for_one_task(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "study"
    for _ in range(2):
        with claimed(folder, "grid", "apil study"):
            pass
    with pytest.raises(ApilError, match="holds a study of 'grid', not of 'maze'"):
        claimed(folder, "maze", "apil study").__enter__()


def test_a_folder_that_holds_something_else_is_not_claimed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("dear to me")
    with pytest.raises(ApilError, match="holds something that is not a study"):
        claimed(tmp_path, "grid", "apil study").__enter__()
    with pytest.raises(ApilError, match="is a file"):
        claimed(tmp_path / "thesis.tex", "grid", "apil study").__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_threshold_that_nobody_found_stops_a_study_before_it_begins() -> None:
    with pytest.raises(ApilError, match="No threshold is known for 'intrun'"):
        plan(_BASE, ("detm",), ("bc", "intrun"), 1, {"intrun": None})
