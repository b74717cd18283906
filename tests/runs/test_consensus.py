"""Accuracy from agreement alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import apil
from apil.cli import main
from apil.runs.consensus import accuracies, consensus, of_several

RIGHT = (0.95, 0.6, 0.8)


def answers(states: int = 400, actions: int = 4) -> tuple[Any, Any, Any]:
    """Of three teachers, each in every state, right as often as `RIGHT` says."""
    rng = np.random.default_rng(0)
    truth = rng.integers(actions, size=states)
    good = rng.random((3, states)) < np.array(RIGHT)[:, None]
    wrong = (truth + rng.integers(1, actions, size=(3, states))) % actions
    action = np.where(good, truth, wrong)
    return np.tile(np.arange(states), 3), np.repeat(np.arange(3), states), action.ravel()


def test_accuracy_is_found_without_knowing_what_is_right() -> None:
    found = accuracies(*answers(), teachers=4)
    assert found[:3] == pytest.approx(RIGHT, abs=0.06)
    assert np.isnan(found[3])  # who said nothing
    nothing = np.zeros(0, np.int64)
    assert np.isnan(accuracies(nothing, nothing, nothing, teachers=2)).all()


def test_states_that_one_teacher_answered_say_nothing() -> None:
    states, who = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 0, 1])
    assert of_several(states, who).tolist() == [True, True, False, False, False]


def test_it_is_shown_where_teachers_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    apil.train(
        "grid",
        "first+uniform",
        "dagger",
        iterations=8,
        batch=8,
        hidden=8,
        models=2,
        folder=tmp_path / "run",
        progress=False,
    )
    found = consensus(apil.answers(tmp_path / "run"))
    assert all(0 <= own.value <= 1 and own.answers >= 10 for own in found.values())
    monkeypatch.setattr("sys.argv", ["apil", "answers", str(tmp_path / "run")])
    main()
    assert ("Right, by agreement" in capsys.readouterr().out) == bool(found)
    assert found
