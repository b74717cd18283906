"""Does the agent know its teachers? Divergences and expectations against independent figures."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apil.errors import ApilError
from apil.learning.fidelity import expected_uncertainty, jensen_shannon, teacher_models
from apil.learning.trainer import Trainer
from apil.settings import RunSettings
from apil.tasks.grid import Grid
from apil.tasks.maze import Maze
from apil.teachers.committee import committee


def _kl(p: list[float], q: list[float]) -> float:
    return sum(a * math.log2(a / b) for a, b in zip(p, q, strict=True) if a > 0)


_rows = st.lists(st.sampled_from([0.0, 0.1, 1.0, 2.0, 5.0]), min_size=3, max_size=3).filter(any)


@given(_rows, _rows)
def test_jensen_shannon_is_the_mean_divergence_from_the_middle(first: list[float], second: list[float]) -> None:
    p, q = ([x / sum(row) for x in row] for row in (first, second))
    middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    found = float(jensen_shannon(torch.tensor(p, dtype=torch.float64), torch.tensor(q, dtype=torch.float64)))
    assert found == pytest.approx((_kl(p, middle) + _kl(q, middle)) / 2, abs=1e-12)


_EPISODES = 20_000
# A walk's mean number of steps in inner cells has a standard deviation below 2 of 8 steps.
_TOLERANCE = 5 * (2 / 8) / math.sqrt(_EPISODES)


@pytest.mark.parametrize(
    ("teacher", "intrinsic", "extrinsic"),
    [
        ("detm", 0.0, 0.0),
        # A uniformly random walk stands in an inner cell for 5.8125 of its 8 steps.
        ("rand", 5.8125 / 8, 0.0),
        ("tworand", 5.8125 / 8, 0.0),
        # The mixture of right and down is the same walk, but the bit is between the teachers.
        ("twodifdetm", 0.0, 5.8125 / 8),
    ],
)
def test_a_perfect_copy_on_grid_has_the_uncertainty_of_a_random_walk(
    teacher: str, intrinsic: float, extrinsic: float
) -> None:
    found = expected_uncertainty(Grid(), committee(teacher), _EPISODES)
    assert found["intrinsic"] == pytest.approx(intrinsic, abs=_TOLERANCE if intrinsic else 1e-7)
    assert found["extrinsic"] == pytest.approx(extrinsic, abs=_TOLERANCE if extrinsic else 1e-7)


def test_a_rare_teacher_adds_little_extrinsic_uncertainty() -> None:
    found = expected_uncertainty(Grid(), committee("twodifdetm", (0.9, 0.1)), 2000)
    bits = -(0.9 * math.log2(0.9) + 0.1 * math.log2(0.1))
    # A walk stands in inner cells for 4 to 7 of its 8 steps.
    assert 4 / 8 * bits - 1e-6 < found["extrinsic"] < 7 / 8 * bits
    assert found["intrinsic"] < 1e-6


def test_in_the_maze_two_who_differ_have_what_one_who_varies_has_where_there_are_two_ways() -> None:
    maze = Maze()
    rand, both = (expected_uncertainty(maze, committee(teacher), 2000) for teacher in ("rand", "twodifdetm"))
    assert rand["extrinsic"] < 1e-6 < rand["intrinsic"] < 1
    assert both["intrinsic"] < 1e-6 < both["extrinsic"] < 1


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    made = Trainer([RunSettings.of("grid", t, "dagger", iterations=250, batch=2) for t in ("twodifdetm", "tworand")])
    made.train()
    return made


def test_teachers_who_differ_are_told_apart_and_twins_are_not(trainer: Trainer) -> None:
    differ, twins = teacher_models(trainer.agents, 50)
    # Opposite deterministic policies are a whole bit apart, equal ones 0.
    assert differ["persona_js"] > 0.5
    assert twins["persona_js"] < 0.05
    assert differ["members"] == ["first", "last"]
    assert twins["members"] == ["uniform", "uniform"]
    for model in (differ, twins):
        assert len(model["personas"]) == 2
        assert len(model["personas"][0]) == trainer.configs[0].model.persona
        assert model["mixture_js"] < 0.1
        assert sum(model["identity_mean"]) == pytest.approx(1, abs=1e-5)
        assert model["identity_true"] == [0.5, 0.5]
        assert 0 <= model["identity_calibration_error"] < 0.5


def test_a_single_teacher_has_no_divergence_between_teachers() -> None:
    untrained = Trainer([RunSettings.of("maze", "detm", "bc")])
    (model,) = teacher_models(untrained.agents, 20)
    assert model["persona_js"] is None
    assert model["identity_calibration_error"] is None
    assert model["identity_mean"] == [1.0]
    assert model["mixture_js"] > 0.1, "an untrained agent does not act like DETM"


def test_each_run_is_judged_by_its_own_teachers_whatever_its_company() -> None:
    configs = [RunSettings.of("grid", t, "bc", seed=s, iterations=5) for s, t in enumerate(["twodifdetm", "tworand"])]
    stack = Trainer(configs)
    stack.train()
    together = teacher_models(stack.agents, 30)
    for config, expected in zip(configs, together, strict=True):
        alone = Trainer([config])
        alone.train()
        assert teacher_models(alone.agents, 30) == [expected]


def test_weights_that_overflow_are_one_clear_line() -> None:
    trainer = Trainer([RunSettings.of("grid", "twodifdetm", "bc", iterations=1)])
    with torch.no_grad():
        for weight in trainer.agents.model.identity.values():
            weight.fill_(1e38)
    with pytest.raises(ApilError, match="not finite: the weights are too large"):
        teacher_models(trainer.agents, 5)
