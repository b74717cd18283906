"""The benchmark at equal answers: what its files say, its runs, its statistics, and that records are enough."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from apil.cli import main
from apil.errors import ApilError
from apil.files import read_json
from apil.studies.budget.compare import Comparison, findings, summary
from apil.studies.budget.definition import Budgets, Seeds, read_benchmark
from apil.studies.budget.plan import planned
from apil.studies.budget.records import Run, Runs, read_runs
from apil.studies.budget.run import budget
from apil.studies.budget.where import read_asked
from apil.studies.options import BudgetOptions
from apil.studies.statistics import estimate, probability_above
from apil.tasks import TASKS
from apil.tasks.maze import Maze, MazeState
from apil.tasks.plane import maze_plane

_SHARED = """
winner = "apil"
episodes = 10
choosing = { first = 900, count = 4 }
reporting = { first = 0, count = 2 }
rules = ["never", "dagger", "random", "random-review", "one-an-episode", "apil"]
"""
_TASK = """
task = "maze"
teacher = "first+last+uniform"
distance = "steps on a shortest path"
budgets = { low = 3, middle = 6, high = 12 }
full = 40
settings = { hidden = 4, encode = 2, models = 2, updates = 1, log_every = 1, learning_rate = 0.03 }
"""
_SMALL = "options = { size = 4, walls = 2, horizon = 8 }\n"


def _folder(path: Path, shared: str = _SHARED, **tasks: str) -> Path:
    path.mkdir()
    (path / "study.toml").write_text(shared)
    for name, text in (
        tasks or {"one": _TASK + _SMALL, "two": _TASK + _SMALL.replace("size", "wall_seed = 5, size")}
    ).items():
        (path / f"{name}.toml").write_text(text)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small benchmark that was run; its definition is beside it."""
    home = tmp_path_factory.mktemp("budget")
    budget(BudgetOptions(folder=_folder(home / "files"), workers=1), out=home / "out", progress=False)
    return home / "out"


def _files(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.iterdir() if path.is_file() and path.name not in (".lock", ".progress.json")]
    return {path.name: path.read_bytes() for path in paths}


# What is run.


def test_each_rule_has_a_run_for_each_budget_and_seed(tmp_path: Path) -> None:
    runs = planned(read_benchmark(_folder(tmp_path / "files")))
    of_one = [(run.cell.query, run.level, run.budget, run.cell.config.seed) for run in runs if run.task.label == "one"]
    asking = ("dagger", "random", "random-review", "one-an-episode", "apil")
    levels = {"low": 3, "middle": 6, "high": 12}
    assert set(of_one) == {
        *((rule, level, number, seed) for rule in asking for level, number in levels.items() for seed in (0, 1)),
        *(("never", "", 0, seed) for seed in (0, 1)),
        *(("dagger", "full", 40, seed) for seed in (0, 1)),
    }
    reviews = {run.cell.query for run in runs if run.cell.config.query.asking == "review"}
    assert reviews == {"random-review", "one-an-episode"}
    assert all(run.cell.config.query.answer_budget == (run.budget or None) for run in runs)


def test_a_quick_benchmark_has_three_seeds_and_the_middle_budget(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "files", _SHARED.replace("count = 2", "count = 10"))
    runs = planned(read_benchmark(folder, quick=True))
    assert {run.level for run in runs} == {"middle", "full", ""}
    assert {run.cell.config.seed for run in runs} == {0, 1, 2}


def test_workers_of_the_command_line_know_the_plug_ins_that_the_files_name(tmp_path: Path) -> None:
    task = _TASK.replace('task = "maze"', 'task = "own-maze"\nplugin = "own.py"') + _SMALL
    folder = _folder(tmp_path / "files", _SHARED.replace("count = 2", "count = 1"), one=task)
    (folder / "own.py").write_text(
        "import apil\nfrom apil.tasks.maze import Maze\n\n"
        "def own(size: int = 4, walls: int = 2, horizon: int = 8) -> Maze:\n"
        "    return Maze(size=size, walls=walls, horizon=horizon)\n\n"
        'apil.register_task("own-maze", own)\n'
    )
    command = ["study", "budget", "--quick", "--workers", "2", "--folder", str(folder), "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-m", "apil", *command], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(read_runs(tmp_path / "out")) == 7


def test_levels_can_be_picked_and_come_in_ascending_order(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "files")
    picked = read_benchmark(folder, levels=("high", "low"))
    assert {task.levels for task in picked.tasks} == {("low", "high")}
    assert {run.level for run in planned(picked)} == {"low", "high", "full", ""}
    assert {task.levels for task in read_benchmark(folder, levels=("high",), quick=True).tasks} == {("high",)}


def test_tasks_and_rules_can_be_picked_and_what_every_comparison_needs_stays(tmp_path: Path) -> None:
    runs = planned(read_benchmark(_folder(tmp_path / "files"), ["two"], ["entropy"]))
    assert {run.task.label for run in runs} == {"two"}
    assert {run.cell.query for run in runs} == {"never", "dagger", "random", "entropy"}


def test_a_task_may_have_settings_of_a_rule_that_was_not_picked(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "files", one=_TASK.replace("updates = 1", "updates = 1, sigma = 20.0"))
    picked, whole = planned(read_benchmark(folder, rules=["random"])), planned(read_benchmark(folder))
    assert {run.cell.folder for run in picked} < {run.cell.folder for run in whole}


def test_choosing_has_its_own_seeds_and_tasks(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "files", one=_TASK, drill=_TASK + 'use = "choosing"\n')
    assert {run.task.label for run in planned(read_benchmark(folder))} == {"one"}
    chosen = planned(read_benchmark(folder, choosing=True))
    assert {run.task.label for run in chosen} == {"drill"}
    assert {run.cell.config.seed for run in chosen} == {900, 901, 902, 903}
    named = planned(read_benchmark(folder, ["one"], choosing=True))
    assert {run.cell.config.seed for run in named} == {900, 901, 902, 903}


def test_a_task_comes_from_a_plugin_beside_its_file(tmp_path: Path) -> None:
    text = 'import apil\nfrom apil.tasks.maze import Maze\napil.register_task("my-maze", Maze)\n'
    folder = _folder(tmp_path / "files", one=_TASK.replace('"maze"', '"my-maze"') + 'plugin = "mine_to_plug.py"\n')
    (folder / "mine_to_plug.py").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APIL_PLUGINS", "")  # what is added to it is taken back
        assert {run.cell.config.task.name for run in planned(read_benchmark(folder))} == {"my-maze"}
    TASKS.forget("my-maze")


@pytest.mark.parametrize(
    ("shared", "task", "message"),
    [
        (_SHARED, _TASK.replace("low = 3", "low = 7"), r"one.toml: .*the budgets are 7, 6 and 12: give them in ascend"),
        (_SHARED, _TASK.replace("full = 40", ""), "one.toml: full is missing"),
        (_SHARED, _TASK.replace("teacher", "teachr"), "one.toml: Unknown setting 'teachr'. Did you mean 'teacher'"),
        (_SHARED, _TASK + 'plugin = "gone.py"', "There is no .*gone.py, which a file of .* names as its plugin"),
        (_SHARED, _TASK.replace('"maze"', '"mazz"'), "Unknown task 'mazz'"),
        (_SHARED, "budgets = {", "one.toml is not TOML"),
        (_SHARED.replace('"random", ', ""), _TASK, "study.toml: rules lacks 'random', which every comparison needs"),
        (_SHARED.replace("900", "1"), _TASK, "study.toml: choosing and reporting share seeds"),
        (_SHARED.replace('"apil"\n', '"best"\n'), _TASK, "study.toml: Unknown winner 'best'"),
    ],
)
def test_a_mistake_is_one_line_that_says_where(tmp_path: Path, shared: str, task: str, message: str) -> None:
    folder = _folder(tmp_path / "files", shared, one=task)
    with pytest.raises(ApilError, match=message) as caught:
        budget(BudgetOptions(folder=folder), out=tmp_path / "out", progress=False)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_unknown_names_are_refused_with_the_known_ones(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "files")
    with pytest.raises(ApilError, match=r"Unknown task of .* 'onne'. Did you mean 'one'"):
        read_benchmark(folder, ["onne"])
    with pytest.raises(ApilError, match=r"Unknown rule 'randm'. Did you mean 'random'"):
        read_benchmark(folder, rules=["randm"])
    with pytest.raises(ApilError, match="no task for choosing"):
        read_benchmark(folder, choosing=True)
    with pytest.raises(ApilError, match="run this in a checkout of apil, or give --folder"):
        read_benchmark(tmp_path)


# What comes out.


def test_the_summary_has_a_cell_for_each_task_rule_and_budget(made: Path) -> None:
    found = read_json(made / "summary.json")
    assert list(found) == ["winner", "tasks", "cells", "improvement"]
    assert (found["winner"], found["tasks"]) == ("apil", ["one", "two"])
    rules = ["never", "dagger", "random", "random-review", "one-an-episode", "apil"]
    assert len(found["cells"]) == 2 * 3 * len(rules)
    for cell in found["cells"]:
        names = {"task", "rule", "budget", "level", "seeds", "answers", "success_alone", "success_greedy"}
        assert set(cell) == names
        assert cell["seeds"] == 2
        assert cell["budget"] == {"low": 3, "middle": 6, "high": 12}[cell["level"]]
        assert cell["answers"]["mean"] == (0 if cell["rule"] == "never" else cell["budget"])
        assert set(cell["success_greedy"]) == {"mean", "low", "high"}
    entries = found["improvement"]
    assert {entry["control"] for entry in entries} == {"random", "random-review", "one-an-episode"}
    for entry in entries:
        assert set(entry) == {"task", "budget", "level", "rule", "control", "probability", "difference"}
        assert 0 <= entry["probability"] <= 1
        assert entry["rule"] != entry["control"]


def test_everything_is_rebuilt_from_the_records_alone(made: Path, tmp_path: Path) -> None:
    alone = tmp_path / "out"
    alone.mkdir()
    for name in ("records.csv", "where.json", "about.json", "study.json", "bill.json"):
        shutil.copy(made / name, alone)
    budget(BudgetOptions(folder=made.parent / "files", so_far=True), out=alone, progress=False)
    again, before = _files(alone), _files(made)
    assert set(again) == set(before)
    assert {name for name in again if again[name] != before[name]} <= {"study.json"}


def test_a_second_time_runs_nothing_and_gives_the_same_bytes(made: Path) -> None:
    files = {path: path.stat().st_mtime_ns for path in (made / "runs").rglob("*") if path.is_file()}
    before = _files(made)
    budget(BudgetOptions(folder=made.parent / "files", workers=1), out=made, progress=False)
    assert _files(made).keys() == before.keys()
    assert {name for name, data in _files(made).items() if data != before[name]} == set()
    assert {path: path.stat().st_mtime_ns for path in (made / "runs").rglob("*") if path.is_file()} == files


def test_what_is_committed_is_small_and_says_how_it_was_made(made: Path) -> None:
    assert sum(map(len, _files(made).values())) < 2_000_000
    about = read_json(made / "about.json")
    assert about["command"].startswith("apil study budget")
    assert about["tasks"][0]["seeds"] == [0, 1]
    assert len(about["commits"]) == 1
    names = set(_files(made))
    assert {"figure_verdicts.png", "figure_share.png", "figure_answers_one.png", "figure_where_two.png"} <= names
    assert {"table_success.md", "table_improvement.md", "table_share.md", "table_tasks.md"} <= names
    html = (made / "report.html").read_text()
    assert "one-an-episode" in html
    assert "<img" in html


def test_pictures_of_where_it_asked_count_every_answer(made: Path) -> None:
    found = read_asked(made)
    assert [own.task for own in found] == ["one", "two"]
    for own in found:
        assert set(own.counts) == {"dagger", "random", "random-review", "one-an-episode", "apil"}
        for rule in own.counts:
            assert own.table(rule).shape == (4, 4)
            assert own.table(rule).sum() == 2 * 6, "two seeds with the middle budget"


def test_a_maze_says_where_the_agent_stands() -> None:
    import torch

    task = Maze()
    cells = task.free.flatten().nonzero().flatten()
    seen = task.observe(MazeState(cells.view(1, -1), cells.flip(0).view(1, -1))).features[0]
    places = maze_plane({}).place(seen.numpy())
    assert torch.equal(torch.tensor(places[:, 1] * 7 + places[:, 0]).long(), cells)


# Statistics, on made-up runs.


def _runs() -> Comparison:
    """Two tasks; `mine` is better than random on the first by one tenth in every seed, and the same on the second."""
    alone = {"never": [0.1] * 3, "random": [0.3, 0.5, 0.7], "mine": [0.4, 0.6, 0.8], "random-review": [0.2, 0.2, 0.2]}
    rows = []
    for task in ("first", "second"):
        for rule, values in alone.items():
            for seed, value in enumerate(values):
                level, number = ("", 0) if rule == "never" else ("middle", 100)
                own = alone["random"][seed] if (rule, task) == ("mine", "second") else value
                rows.append(Run(task, rule, level, number, seed, number, own, own, 10))
        rows += [Run(task, "dagger", "full", 1000, seed, 1000, 0.9, 0.9, 10) for seed in range(3)]
    return Comparison(Runs(rows))


def test_differences_are_paired_by_seed() -> None:
    found = _runs().difference("first", "mine", "middle")
    assert (found.mean, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))
    assert _runs().verdict("first", "mine", "middle") == "better"
    assert _runs().verdict("second", "mine", "middle") == "equal"
    assert _runs().verdict("first", "random-review", "middle") == "worse"


def test_the_probability_of_improvement_counts_ties_half() -> None:
    compared = _runs()
    assert compared.probability("first", "mine", "middle") == pytest.approx(6 / 9)
    assert compared.probability("second", "mine", "middle") == pytest.approx(0.5)
    assert compared.probability_over_tasks("mine", "middle").mean == pytest.approx((6 / 9 + 0.5) / 2)
    assert probability_above([1.0, 0.0], [0.0]) == 0.75
    assert np.isnan(probability_above([], [0.0]))


def test_shares_are_of_the_gap_between_never_and_dagger() -> None:
    compared = _runs()
    assert compared.scale("first").never == pytest.approx(0.1)
    np.testing.assert_allclose(compared.shares("first", "mine", "middle"), [0.375, 0.625, 0.875])
    assert compared.share("first", "mine", "middle") == estimate(compared.shares("first", "mine", "middle"))
    # Of six values the interquartile mean leaves out the lowest and the highest.
    both = sorted([0.375, 0.625, 0.875, 0.25, 0.5, 0.75])[1:-1]
    assert compared.share_over_tasks("mine", "middle").mean == pytest.approx(np.mean(both))


def test_a_task_without_a_gap_has_no_scale() -> None:
    rows = [Run("flat", "never", "", 0, 0, 0, 0.5, 0.5, 1), Run("flat", "dagger", "full", 9, 0, 9, 0.5, 0.5, 1)]
    rows.append(Run("flat", "random", "middle", 5, 0, 5, 0.5, 0.5, 1))
    assert not Comparison(Runs(rows)).share_over_tasks("random", "middle").known


def test_the_summary_of_known_runs() -> None:
    found = summary(_runs(), "mine")
    cell = next(c for c in found["cells"] if (c["task"], c["rule"]) == ("first", "never"))
    assert (cell["level"], cell["budget"], cell["answers"]["mean"]) == ("middle", 100, 0)
    entry = next(e for e in found["improvement"] if (e["task"], e["rule"], e["control"]) == ("first", "mine", "random"))
    assert entry["difference"]["mean"] == pytest.approx(0.1)
    json.dumps(found, allow_nan=False)
    said = findings(_runs(), "mine")
    assert "mine over random at the middle budget: probability of improvement at least 0.9 on 0 of 2 tasks" in said[0]
    assert "at least 0.9 on 2 of 2 tasks (first, second)" in said[1]


def test_budgets_and_seeds_read_as_they_are_written() -> None:
    assert Budgets(low=1, middle=2, high=3).of("high") == 3
    assert list(Seeds(first=900, count=2)) == [900, 901]


def test_damaged_records_are_named(tmp_path: Path) -> None:
    (tmp_path / "records.csv").write_text("task,rule\none,random\n")
    with pytest.raises(ApilError, match=r"records.csv is damaged .*: restore it"):
        read_runs(tmp_path)
    with pytest.raises(ApilError, match="leave --so-far out to make them"):
        read_runs(tmp_path / "nowhere")


def test_the_command_line_has_the_benchmark(
    made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made.parent)
    main(["study", "budget", "--folder", "files", "--so-far", "--out", "out"])
    assert "share of the gap" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main(["study", "budget", "--folder", "nowhere"])
    assert stop.value.code == 2
    assert "There is no nowhere/study.toml" in capsys.readouterr().err
