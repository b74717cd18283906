"""What long commands print where nobody sees a bar: plain lines, early enough and not too many."""

from __future__ import annotations

import pytest
from rich.progress import Progress

from apil.terminal import counted, stages
from apil.terminal.bars import Bars, Lines, clock


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def lines_of(capsys: pytest.CaptureFixture[str], seconds: int) -> list[str]:
    """What is printed by work that takes so many seconds and reports every second."""
    now = Clock()
    with Bars(Progress(disable=True, get_time=now), Lines(now)) as bars:
        task = bars.add("a study", seconds)
        for second in range(1, seconds + 1):
            now.now = float(second)
            bars.update(task, done=second)
    return capsys.readouterr().out.splitlines()


def test_short_work_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines_of(capsys, 1) == ["a study, 0:00:01"]


def test_a_minute_of_work_says_early_where_it_is_and_when_it_will_end(capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(capsys, 60)
    assert lines[0] == "a study: 2 of 60 (3 %), 0:00:02, about 0:00:58 left"
    assert lines[-1] == "a study: 60 of 60 (100 %), 0:01:00"
    assert 5 <= len(lines) <= 20


def test_a_day_of_work_does_not_flood_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert 100 <= len(lines_of(capsys, 86_400)) <= 300


def test_every_stage_says_that_it_has_begun(capsys: pytest.CaptureFixture[str]) -> None:
    with stages() as tell:
        tell("reading", 0, 1)
        tell("houses", 0, 30)
        tell("houses", 30, 30)
        tell("writing", 0, 1)
    assert capsys.readouterr().out.splitlines() == ["houses", "houses: 30 of 30 (100 %)", "writing"]


def test_nothing_is_printed_of_what_did_nothing_or_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with counted("evaluating"):
        pass
    with counted("training", 3, shown=False) as progress:
        progress(3)
        progress.line("a line")
    assert capsys.readouterr().out == ""


def test_answers_are_shown_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    with counted("maze", 5, of_answers=True) as progress:
        progress.heard(5)
    assert capsys.readouterr().out == "maze, 5 answers: 5 of 5 (100 %)\n"


@pytest.mark.parametrize(("seconds", "shown"), [(0.4, "0:00:00"), (59.6, "0:01:00"), (3725, "1:02:05")])
def test_seconds_are_shown_as_a_clock(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown
