"""The comparison of selectors: what is planned, what a curve says, and the files."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from apil.errors import ApilError
from apil.files import read_json
from apil.studies.options import WhomOptions
from apil.studies.whom.compare import Whom
from apil.studies.whom.definition import read_comparison
from apil.studies.whom.records import Point, Run
from apil.studies.whom.run import whom

STUDY = """
winner = "learned"
top = "always-first"
looks = 10
episodes = 10
choosing = { first = 900, count = 2 }
reporting = { first = 0, count = 2 }
selectors = [
    { select = "environment", label = "always-first", weights = [1.0, 0.0] },
    "round-robin",
    { select = "learned", acting = "by-skill" },
]
"""
TASK = """
task = "maze"
teacher = "first+last"
answers = 12
options = { size = 4, walls = 2 }
chosen = { wall_seed = 3 }
settings = { hidden = 8, models = 2, encode = 8 }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    (made / "study.toml").write_text(STUDY)
    (made / "small.toml").write_text(TASK)
    return made


def run_of(*points: tuple[float, float]) -> Run:
    made = tuple(Point("maze", "learned", 0, int(cost), cost, success) for cost, success in points)
    return Run(0, made[-1].answers, made[-1].cost, made[-1].success, made)


def test_the_cost_to_a_level_is_read_off_a_curve_that_does_not_fall() -> None:
    assert run_of((0, 0.0), (100, 0.8), (200, 1.0)).cost_to(0.9) == pytest.approx(150)
    assert math.isinf(run_of((0, 0.0), (100, 0.8)).cost_to(0.9))
    single = run_of((0, 0.0), (100, 1.0), (200, 0.6), (300, 1.0))  # one look that was high by chance
    assert single.cost_to(0.9) > 200
    assert run_of((0, 0.95), (100, 1.0)).cost_to(0.9) == 0


def test_seeds_and_walls_for_choosing_are_others(folder: Path) -> None:
    reported, chosen = (read_comparison(folder, choosing=choosing) for choosing in (False, True))
    assert [run.cell.config.seed for run in reported.runs[:2]] == [0, 1]
    assert [run.cell.config.seed for run in chosen.runs[:2]] == [900, 901]
    assert "wall_seed" not in reported.runs[0].cell.config.task.options
    assert chosen.runs[0].cell.config.task.options["wall_seed"] == 3
    assert {run.cell.config.whom.acting for run in reported.runs} == {"as-answered", "by-skill"}


def test_a_selector_may_have_a_share_of_the_answers(folder: Path) -> None:
    half = STUDY.replace('"round-robin",', '"round-robin", { select = "cheapest", answers = 0.5 },')
    (folder / "study.toml").write_text(half)
    budgets = {run.selector: run.cell.config.query.answer_budget for run in read_comparison(folder).runs}
    assert budgets == {"always-first": 12, "round-robin": 12, "cheapest": 6, "learned": 12}


def test_a_task_says_how_many_answers_the_sparing_one_has(folder: Path) -> None:
    named = STUDY.replace('winner = "learned"', 'winner = "learned"\nsparing = "few"')
    (folder / "study.toml").write_text(named.replace('"round-robin",', '{ select = "cheapest", label = "few" },'))
    (folder / "small.toml").write_text("sparing = 0.75\n" + TASK)
    budgets = {run.selector: run.cell.config.query.answer_budget for run in read_comparison(folder).runs}
    assert budgets == {"always-first": 12, "few": 9, "learned": 12}


def test_the_sparing_one_is_held_against_the_top_at_what_it_cost() -> None:
    def points(selector: str, *rows: tuple[float, float]) -> list[Point]:
        return [Point("maze", selector, 0, int(cost), cost, success) for cost, success in rows]

    found = [
        *points("top", (0, 0.0), (50, 0.8), (100, 1.0)),
        *points("ours", (0, 0.0), (60, 0.9), (90, 1.0)),
        *points("few", (0, 0.0), (55, 0.96)),
    ]
    about = {"level": 0.9, "top": "top", "winner": "ours"}
    few, early = (Whom(found, {**about, "sparing": name}).at_share("maze") for name in ("few", ""))
    assert (few.share, few.success.mean, few.of_top.mean, few.reached) == (0.55, 0.96, 1.0, True)
    assert (early.share, early.reached) == (0.6, False)
    assert early.success.mean == pytest.approx(0.9)
    dear = Whom([*found[:-1], Point("maze", "few", 0, 70, 70.0, 0.96)], {**about, "sparing": "few"})
    assert not dear.at_share("maze").reached


def test_mistakes_are_named(folder: Path) -> None:
    (folder / "study.toml").write_text(STUDY.replace('winner = "learned"', 'winner = "lerned"'))
    with pytest.raises(ApilError, match="learned"):
        read_comparison(folder)
    with pytest.raises(ApilError, match="checkout"):
        read_comparison(folder / "nowhere")


def test_the_comparison_writes_its_files(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    whom(WhomOptions(folder=folder, workers=1), out=out, progress=False)
    found = read_json(out / "summary.json")
    assert [cell["selector"] for cell in found["cells"]] == ["always-first", "round-robin", "learned"]
    for cell in found["cells"]:
        assert cell["seeds"] == 2
        for name in ("success_alone", "cost", "cost_to_90"):
            assert set(cell[name]) == {"mean", "low", "high"}
        assert cell["cost"]["mean"] == 12
    assert {(own["selector"], own["other"]) for own in found["improvement"]} >= {("learned", "round-robin")}
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.suffix in (".md", ".json", ".csv")}
    whom(WhomOptions(folder=folder, workers=1, so_far=True), out=out, progress=False)
    assert before == {name: (out / name).read_bytes() for name in before}
    assert {"report.html", "figure_cost.png", "figure_cost_to.png", "table_cost.md"} <= {p.name for p in out.iterdir()}
