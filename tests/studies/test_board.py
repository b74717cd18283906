"""How a study stands: in its folder for those who watch, and how long it still takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from apil.cli import main
from apil.files import locked
from apil.settings import RunSettings
from apil.studies.board import Board, lines, views
from apil.studies.engines import Tally
from apil.studies.pace import Pace
from apil.studies.plan import Cell


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def _cells(query: str, count: int = 1) -> list[Cell]:
    """Each of 1000 units of work."""
    return [Cell(RunSettings.of("grid", "detm", query, seed=seed, iterations=750)) for seed in range(count)]


def test_the_time_left_is_what_finished_stacks_of_the_kind_took() -> None:
    clock = Clock()
    pace = Pace(workers=1, clock=clock)
    assert pace.left([_cells("apil")]) is None
    pace.began(1, _cells("dagger"))
    clock.now = 100.0
    pace.ended(1, whole=True)
    pace.began(2, _cells("bc"))
    clock.now = 110.0
    pace.ended(2, whole=True)
    assert pace.left([_cells("dagger"), _cells("bc", 2)]) == pytest.approx(100 + 2 * 10)
    pace.began(3, _cells("bc", 2))
    pace.did(3, 1)  # a slow start changes nothing
    clock.now = 115.0
    assert pace.left([_cells("dagger")]) == pytest.approx(15 + 100)


def test_before_anything_is_finished_the_speed_so_far_counts() -> None:
    clock = Clock()
    pace = Pace(workers=2, clock=clock)
    pace.began(1, _cells("dagger"))
    pace.did(1, 250)
    clock.now = 10.0
    assert pace.left([]) == pytest.approx(30)
    assert pace.left([_cells("dagger")]) == pytest.approx((30 + 40) / 2)


def test_a_stack_that_failed_says_nothing_of_others() -> None:
    pace = Pace(workers=1, clock=Clock())
    pace.began(1, _cells("dagger"))
    pace.ended(1, whole=False)
    assert pace.left([_cells("dagger")]) is None


def _study(folder: Path) -> Path:
    (folder / "runs" / "one").mkdir(parents=True)
    (folder / "runs" / "one" / "finished.json").write_text("{}")
    (folder / "runs" / "two").mkdir()
    (folder / "runs" / "three").mkdir()
    (folder / "runs" / "three" / "failed.log").write_text("On here:\nValueError: no such thing\n")
    (folder / "study.json").write_text('{"task": "grid", "command": "apil study grid"}')
    return folder


def test_a_study_that_runs_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _study(tmp_path / "study")
    Board(folder, runs=9, before=0).write(Tally(done=1, running=1, failed=1, left=754.0))
    with locked(folder), locked(folder / "runs" / "two"):
        (view,) = views(folder)
        main(["watch", str(folder), "--once"])
    assert (view.state, view.done, view.runs, list(view.running)) == ("running", 1, 9, ["two"])
    assert view.failed == [("three", "ValueError: no such thing")]
    shown = capsys.readouterr().out
    assert "running, 1 of 9 runs done, 1 running, 1 failed, about 0:12:3" in shown
    assert "three: ValueError: no such thing" in shown


def test_a_study_that_was_stopped_and_one_that_is_finished(tmp_path: Path) -> None:
    folder = _study(tmp_path / "study")
    (view,) = views(folder)
    assert (view.state, view.left) == ("stopped", None)
    (folder / "runs" / "three" / "failed.log").unlink()
    (folder / "report.html").write_text("")
    (view,) = views(folder)
    assert view.state == "finished"
    assert "report.html" in lines(view)[-1]


def test_a_real_study_leaves_its_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "study"
    few = ["--teachers", "detm", "--queries", "bc", "dagger", "--seeds", "1", "--iterations", "4", "--episodes", "4"]
    main(["study", "grid", *few, "--hidden", "8", "--workers", "1", "--out", str(out)])
    capsys.readouterr()
    main(["watch", str(out)])
    shown = capsys.readouterr().out
    assert "finished" in shown
    assert "0 running, 0 failed" in shown
