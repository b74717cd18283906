"""Rules at the same numbers of answers: exact numbers, runs that end apart, records, tables and figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apil.errors import ApilError
from apil.files import read_json, read_rows
from apil.learning.trainer import Trainer
from apil.runs.calibration import load_calibration
from apil.settings.run import SHARE
from apil.studies.engines import run_cells
from apil.studies.files import own_plan, read_study_file
from apil.studies.headline import headline
from apil.studies.plan import Cell, stacks
from apil.studies.records import read_study
from apil.studies.run import study
from apil.studies.stack import standing
from apil.studies.statistics import estimate, mean_over_strata

_SMALL = "[settings]\nhidden = 8\nencode = 4\nmodels = 2\nupdates = 2\naverage = 0.9\nlog_every = 5\n"
_STUDY = """
tasks = [
    { name = "maze", label = "one", options = { wall_seed = 1 } },
    { name = "maze", label = "two", options = { wall_seed = 2 } },
]
teachers = ["twodifdetm"]
answers = [5, 30]
seeds = 2
first_seed = 100
episodes = 20
baseline = "random"
rules = ["random", { query = "random", asking = "review" }, "dagger", { query = "apil", answer_budget = 5 }, "never"]
"""


def _write(path: Path, text: str = _STUDY + _SMALL) -> Path:
    path.write_text(text)
    return path


def _cells(path: Path) -> list[Cell]:
    wanted = read_study_file(path)
    return own_plan(wanted, wanted.tasks[0], load_calibration(None), path)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("equal")
    study(_write(folder / "study.toml"), out=folder / "out", workers=1, progress=False)
    return folder / "out"


def test_the_bill_compares_budgets(out: Path) -> None:
    found = next(read_json(path) for path in sorted(out.rglob("bill.json")))
    assert found["source"] == "points"
    dagger = next(entry for entry in found["entries"] if entry["query"] == "dagger")
    assert dagger["total"]["mean"] == 30, "of its largest budget"
    assert sum(own["mean"] for own in dagger["answers"].values()) == pytest.approx(30)
    assert not any(entry["query"] == "never" for entry in found["entries"])
    assert all(own["reached"] == 0 or own["mean"] in (5, 30) or 5 < own["mean"] < 30 for own in dagger["to"])


def test_a_rule_has_a_run_for_each_number_of_answers(tmp_path: Path) -> None:
    cells = _cells(_write(tmp_path / "study.toml"))
    points = {label: [cell.point for cell in cells if cell.query == label] for label in {cell.query for cell in cells}}
    assert points == {
        "random": [5, 5, 30, 30],
        "random, review": [5, 5, 30, 30],
        "dagger": [5, 5, 30, 30],
        "apil": [5, 5],
        "never": [0, 0],
    }
    assert {cell.config.seed for cell in cells} == {100, 101}
    for cell in cells:
        query = cell.config.query
        assert query.answer_budget == (cell.point or None)
        assert query.asking == ("review" if cell.query.endswith("review") else "live")
        assert query.budget == (SHARE if query.name in ("random", "apil") else None)


def test_runs_have_exactly_as_many_answers_and_are_measured_after_they_learned(out: Path) -> None:
    runs = read_json(out / "one" / "answers.json")["runs"]
    assert {(run["query"], run["answers"]) for run in runs} >= {("dagger", 5), ("dagger", 30), ("random, review", 30)}
    asking = [run for run in runs if run["query"] in ("random", "random, review", "dagger")]
    assert all(run["answers_had"] == run["answers"] for run in asking)
    assert all(run["iterations"] >= 25 for run in asking), "it went on to learn after its last answer"
    assert all(run["answers_had"] == 0 for run in runs if run["query"] == "never")
    for folder in (out / "one" / "runs").iterdir():
        budget = read_json(folder / "config.json")["query"]["answer_budget"] or 0
        assert len(read_rows(folder / "answers.jsonl")) <= budget


def test_each_cell_of_a_summary_has_its_figures_at_every_number_of_answers(out: Path) -> None:
    summary, runs = (read_json(out / "one" / name) for name in ("summary.json", "answers.json"))
    cell = next(c for c in summary["cells"] if (c["teacher"], c["query"]) == ("twodifdetm", "dagger"))
    assert [entry["answers"] for entry in cell["at"]] == [5, 30]
    for entry in cell["at"]:
        of = [run for run in runs["runs"] if (run["teacher"], run["answers"]) == ("twodifdetm", entry["answers"])]
        ours, theirs = (
            {run["seed"]: run["success_alone"] for run in of if run["query"] == query} for query in ("dagger", "random")
        )
        assert entry["success_alone"]["mean"] == pytest.approx(np.mean(list(ours.values())))
        assert set(entry["success_greedy"]) == {"mean", "low", "high"}
        assert entry["difference"]["mean"] == pytest.approx(np.mean([ours[seed] - theirs[seed] for seed in ours]))
    assert cell["success_alone"] == cell["at"][-1]["success_alone"], "the other figures are those of the last"
    never = next(c for c in summary["cells"] if c["query"] == "never")
    assert [entry["answers"] for entry in never["at"]] == [0]


def test_tasks_are_pooled_with_equal_weight(out: Path) -> None:
    pooled = read_json(out / "summary.json")
    apart = [read_json(out / task / "summary.json") for task in pooled["tasks"]]
    for cell in pooled["cells"]:
        own = [
            next(c for c in each["cells"] if (c["teacher"], c["query"]) == (cell["teacher"], cell["query"]))
            for each in apart
        ]
        for place, entry in enumerate(cell["at"]):
            means = [each["at"][place]["success_alone"]["mean"] for each in own]
            assert entry["success_alone"]["mean"] == pytest.approx(np.mean(means))


def test_the_report_begins_with_success_alone_for_answers(out: Path) -> None:
    for folder in (out, out / "one"):
        names = {path.name for path in folder.iterdir()}
        assert {"figure_answers.png", "figure_answers.svg", "figure_answers_greedy.png", "table_answers.md"} <= names
        html = (folder / "report.html").read_text()
        assert html.index("<figure") == html.index('<figure id="figure_answers"')
    assert not (out / "one" / "figure_success_answers.png").exists(), "it would be of the last number alone"
    assert not (out / "one" / "interactions.json").exists()
    table = (out / "one" / "table_answers.md").read_text()
    assert "| rule | 5 answers | 30 answers |" in table
    assert "minus that of random with as many answers" in table
    assert "| APIL | " in table
    assert read_study(out / "one").points == [5, 30]


def test_the_first_sentences_name_a_winner_only_where_there_is_one() -> None:
    results = Path(__file__).parents[2] / "results"
    level = headline(read_study(results / "mountain-car-answers" / "mountain-car"), ()).sentences
    assert level[0] == "With 300 answers every rule that asks succeeds alone in 100.0 % of the episodes."
    assert level[1].startswith("With as many answers APIL does not differ from random in any of 3 comparisons")
    ahead = headline(read_study(results / "maze-answers-300" / "walls-11"), ()).sentences
    assert ahead[0].startswith("With 300 answers APIL succeeds alone in 99.4 %")
    assert ahead[1].startswith("With as many answers APIL is above random in all 4 comparisons")


def test_a_second_time_gives_the_same_bytes(out: Path) -> None:
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    study(out.parent / "study.toml", out=out, workers=1, progress=False)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


# Runs of a stack end at different iterations.


def _files(folder: Path) -> dict[str, bytes]:
    skip = {"timings.jsonl", "environment.json"}
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name not in skip]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Cell], Path]:
    """A stack of runs with different budgets, and the folder of what came of it."""
    folder = tmp_path_factory.mktemp("mixed")
    cells = [c for c in _cells(_write(folder / "study.toml")) if c.config.query.asking == "live" and c.point]
    cells = max(stacks(cells, workers=1), key=len)
    assert {cell.point for cell in cells} == {5, 30}
    (folder / "runs").mkdir()
    run_cells(cells, folder / "runs", 10, 1, lambda units: None)
    return cells, folder / "runs"


def test_a_run_in_a_stack_of_mixed_budgets_is_the_same_alone(mixed: tuple[list[Cell], Path], tmp_path: Path) -> None:
    cells, folder = mixed
    ends = {read_rows(folder / cell.folder / "metrics.jsonl")[-1]["iteration"] for cell in cells}
    assert len(ends) > 2, "they end apart"
    for cell in cells[::3]:
        run_cells([cell], tmp_path, 10, 1, lambda units: None)
        assert _files(tmp_path / cell.folder) == _files(folder / cell.folder)


class _PowerError(BaseException):
    """The power fails."""


def _failing(after: int) -> Callable[[int], None]:
    told: list[int] = []

    def progress(units: int) -> None:
        told.append(units)
        if sum(told) >= after:
            raise _PowerError

    return progress


@pytest.mark.parametrize("share", [0.3, 0.99])
def test_a_killed_stack_of_mixed_budgets_comes_out_the_same(
    share: float, mixed: tuple[list[Cell], Path], tmp_path: Path
) -> None:
    cells, folder = mixed
    after = int(share * sum(cell.point or 0 for cell in cells))
    with pytest.raises(_PowerError):
        run_cells(cells, tmp_path, 10, 1, _failing(after), due=lambda done, since, took: done % 7 == 0)
    now = standing(cells, tmp_path, 10)
    assert now.todo
    run_cells(now.todo, tmp_path, 10, 1, lambda units: None)
    assert _files(tmp_path) == _files(folder)
    assert standing(cells, tmp_path, 10).finished == cells


def test_an_agent_is_evaluated_as_it_was_when_its_run_ended(tmp_path: Path) -> None:
    cells = [c for c in _cells(_write(tmp_path / "study.toml")) if c.query == "dagger" and c.config.seed == 100][:2]
    together = Trainer([cell.config for cell in cells])
    together.train()
    assert len({rows[-1]["iteration"] for rows in together.rows}) == 2
    memory = together.trained_agents().model.memory
    for run, cell in enumerate(cells):
        alone = Trainer([cell.config])
        alone.train()
        own = alone.trained_agents().model.memory
        assert all(bool((memory[name][run] == own[name][0]).all()) for name in own)


# Mistakes.

_SOUND = 'tasks = ["grid"]\nteachers = ["detm"]\nanswers = [5, 10]\nrules = ["dagger"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_SOUND.replace("[5, 10]", "[10, 5]"), r"answers is \[10, 5\]: give the numbers in ascending order, each once"),
        (_SOUND.replace("[5, 10]", "[5, 5]"), "in ascending order, each once"),
        (_SOUND.replace("[5, 10]", "[0, 5]"), "answers 1 is 0: give a list of whole numbers from 1 up"),
        (_SOUND.replace("[5, 10]", "7"), "answers is 7: give a list of whole numbers"),
        (_SOUND + "area_to = 9", "reach, area_to and costs do not go with answers: leave them out"),
        (_SOUND + "[costs]\nfirst = 2", "reach, area_to and costs do not go with answers"),
        (_SOUND + "[settings]\nanswer_budget = 9", "leave answer_budget out of \\[settings\\]"),
        (_SOUND + "first_seed = -1", "first-seed is -1: give a whole number from 0"),
        (
            _SOUND.replace('"dagger"', '{ query = "never", answer_budget = 5 }'),
            "'never' asks nobody and has no answer_budget",
        ),
        (
            _SOUND.replace('"dagger"', '{ query = "dagger", answer_budget = 3 }'),
            "The rule 'dagger' has an answer_budget of 3: give at least 5",
        ),
        (_SOUND.replace('"dagger"', '{ query = "dagger", asking = "later" }'), "asking is 'later'"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = _write(tmp_path / "mine.toml", text)
    with pytest.raises(ApilError, match=message) as caught:
        study(path, out=tmp_path / "out")
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_budget_of_answers_goes_into_the_settings_of_any_study(tmp_path: Path) -> None:
    text = (
        'tasks = ["grid"]\nteachers = ["detm"]\nrules = ["dagger", "never", { query = "random", answer_budget = 3 }]\n'
    )
    cells = _cells(_write(tmp_path / "mine.toml", text + "[settings]\nanswer_budget = 7\n"))
    assert {cell.query: cell.config.query.answer_budget for cell in cells} == {"dagger": 7, "never": None, "random": 3}
    assert all(cell.point is None for cell in cells)


def test_a_mean_over_strata_gives_each_the_same_weight() -> None:
    few, many = [0.0, 0.2], [1.0] * 8
    found = mean_over_strata([few, many, [np.nan]])
    assert found.mean == pytest.approx((0.1 + 1.0) / 2)
    assert (found.low, found.high) == pytest.approx((0.5, 0.6))
    assert mean_over_strata([few]) == estimate(few)
    assert not mean_over_strata([[], []]).known


def test_runs_that_asked_fewer_are_marked(out: Path, tmp_path: Path) -> None:
    from apil.studies.records import cells_of, of_cells_alone
    from apil.studies.tables import answers_table

    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    summary["cells"][0]["at"][1]["answers_had"] = {"mean": 20.0, "low": 10.0, "high": 30.0}
    records = of_cells_alone(tmp_path, "x", 2, "random", cells_of(summary["cells"]))
    table = answers_table(records, "First.").markdown()
    assert table.count("] †") == 2, "sampled and greedy"
    assert "stopped asking before" in table
