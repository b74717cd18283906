"""The bill of a run: cost by teacher, cost to a level of success, and what the last answers bought."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import apil
from apil.cli import main
from apil.files import read_rows
from apil.learning.build import Parts
from apil.learning.curve import Range
from apil.learning.outlook import Look, Teachers, outlook
from apil.runs.bill import Bill, bill, member_names
from apil.runs.looks import LearningCurves
from apil.runs.train import start_run
from apil.settings import RunSettings
from apil.teachers.team import Member

SMALL: dict[str, Any] = {"hidden": 8, "persona": 4, "models": 2, "batch": 2, "iterations": 12, "log_every": 4}


def _looks(success: list[float]) -> LearningCurves:
    looks = tuple(Look(100 * (k + 1), 400, s, 0.0, None) for k, s in enumerate(success))
    return LearningCurves(looks, (), outlook(looks, Teachers(1.0)))


def test_cost_is_that_of_who_answered_in_the_order_of_the_answers() -> None:
    identity = np.array([0, 0, 1, 0, 1, 1])
    own = Bill(("ann", "bob"), identity, (1.0, 4.0), 15.0, None)
    assert own.answers == {"ann": 3, "bob": 3}
    assert own.cost == {"ann": 3.0, "bob": 12.0}
    assert [own.cost_of_first(n) for n in range(7)] == [0, 1, 2, 6, 7, 11, 15]
    assert own.cost_to(0.5) is None, "nobody looked"
    assert own.last_hundred is None


def test_the_cost_of_switches_is_spread_over_the_answers() -> None:
    own = Bill(("ann",), np.zeros(10, int), (2.0,), 30.0, None)
    assert own.cost_of_first(5) == pytest.approx(15.0)


def test_a_level_costs_what_was_paid_when_the_curve_was_there() -> None:
    identity = np.tile([0, 1], 300)
    curves = _looks([0.1, 0.3, 0.6, 0.85, 0.95, 0.97])
    own = Bill(("ann", "bob"), identity, (1.0, 3.0), 1200.0, curves)
    assert own.cost_to(0.8) == 800.0
    assert own.cost_to(0.5) == 600.0
    assert own.cost_to(0.999) is None
    assert own.last_hundred is not None
    paid, rise = own.last_hundred
    assert paid == 200.0
    assert isinstance(rise, Range)
    assert -0.02 < rise.low <= rise.mean <= rise.high < 0.15


def test_members_that_share_a_name_are_told_apart() -> None:
    assert member_names(["uniform", "first", "uniform"]) == ["uniform", "first", "uniform-2"]


@pytest.mark.parametrize("replay", [0, 8])
def test_the_bill_is_that_of_the_files_of_a_run(replay: int, tmp_path: Path) -> None:
    config = RunSettings.of("grid", "first+last+first", "dagger", replay=replay, **SMALL)
    start_run(config, tmp_path / "run", progress=lambda done: None)
    own = bill(tmp_path / "run", {"last": 5.0, "first-2": 2.0})
    given = [row["identity"] for row in read_rows(tmp_path / "run" / "answers.jsonl")]
    assert own.answers == {"first": given.count(0), "last": given.count(1), "first-2": given.count(2)}
    assert own.total == given.count(0) + 5 * given.count(1) + 2 * given.count(2) == sum(own.cost.values())


def test_a_team_that_only_a_program_knows_is_billed_in_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = [Member(name, lambda seen, rng: 0, cost=3.0) for name in ("ann", "bob")]
    team = apil.teachers.Team(members)
    task = apil.from_gymnasium("CartPole-v1", distance="steps", horizon=10)
    config = RunSettings.of("CartPole-v1", "ann+bob", "dagger", replay=8, **SMALL)
    start_run(config, tmp_path / "run", progress=lambda done: None, parts=Parts(task, team))
    own = bill(tmp_path / "run")
    assert own.prices is None
    assert own.total == 3.0 * sum(own.answers.values())
    main(["answers", str(tmp_path / "run")])
    said = capsys.readouterr().out
    assert "not known" in said
    assert "--looks 50" in said
