"""Learning curves over answers: the posterior on a grid, and what it says of curves that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from apil.errors import ApilError
from apil.learning.curve import LearningCurve

POINTS = [10 * 2 ** (k / 2) for k in range(14)]


def _rises(n: float, level: float, half: float = 40.0, steep: float = 1.5, start: float = 0.1) -> float:
    return start + (level - start) / (1.0 + math.pow(half / n, steep))


def _expected(level: float, episodes: int = 400) -> LearningCurve:
    """Looks at a curve that is known, without the chance of episodes."""
    return LearningCurve.of(POINTS, [episodes] * len(POINTS), [_rises(n, level) for n in POINTS])


def test_the_posterior_is_that_of_an_independent_calculation() -> None:
    # One episode a look: outcomes are independent whatever their correlation within a look.
    answers, outcomes = [0.0, 12.0, 30.0, 50.0], [0, 0, 1, 1]
    curve = LearningCurve.of(answers, [1] * 4, outcomes)
    total = below = mean = 0.0
    for i in range(33):
        level = math.sin(math.pi / 2 * i / 32) ** 2
        for j in range(9):
            start = math.sin(math.pi / 2 * i / 32 * j / 8) ** 2
            for half in [50.0 * 2 ** (k / 2) for k in range(-20, 9)]:
                for steep in (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0):
                    weight = 1.0
                    for n, seen in zip(answers, outcomes, strict=True):
                        s = start + (level - start) * n**steep / (n**steep + half**steep)
                        s = min(max(s, 1e-4), 1 - 1e-4)
                        weight *= s if seen else 1 - s
                    gain = (level - start) * (
                        100.0**steep / (100.0**steep + half**steep) - 50.0**steep / (50.0**steep + half**steep)
                    )
                    total, mean = total + weight, mean + weight * gain
                    below += weight * (gain < 0.02)
    assert curve.gain(50, 100).mean == pytest.approx(mean / total, rel=1e-9)
    assert curve.probability_below(0.02, 50, 100) == pytest.approx(below / total, abs=1e-9)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
def test_a_curve_that_is_known_is_extrapolated(level: float) -> None:
    curve = _expected(level)
    now = POINTS[-1]
    assert curve.limit.mean == pytest.approx(level, abs=0.1)
    assert curve.limit.low <= level + 0.02
    assert curve.limit.high >= level - 0.02
    assert curve.gain(now, 2 * now).mean == pytest.approx(_rises(2 * now, level) - _rises(now, level), abs=0.02)
    assert curve.level(now).mean == pytest.approx(_rises(now, level), abs=0.03)


def test_the_answers_that_it_takes_are_those_of_the_curve() -> None:
    curve = LearningCurve.of(POINTS[:8], [4000] * 8, [_rises(n, 0.9) for n in POINTS[:8]])
    truth = 40.0 * (0.8 / 0.05 - 1) ** (1 / 1.5)  # where 0.9 - s(n) = 0.05
    needed = curve.needed(0.05)
    assert needed.low <= truth <= needed.high
    assert truth / 2 < needed.mean < 2 * truth


def test_a_flat_curve_is_told_from_a_rising_one() -> None:
    flat = LearningCurve.of(POINTS, [50] * len(POINTS), [0.98] * len(POINTS))
    rising = LearningCurve.of(POINTS, [50] * len(POINTS), np.linspace(0.1, 0.8, len(POINTS)).tolist())
    assert flat.probability_below(0.02, POINTS[-1], 2 * POINTS[-1]) > 0.8
    assert rising.probability_below(0.02, POINTS[-1], 2 * POINTS[-1]) < 0.3


def test_more_episodes_make_intervals_narrower() -> None:
    narrow, wide = (_expected(0.8, episodes).level(POINTS[-1]) for episodes in (400, 20))
    assert narrow.high - narrow.low < wide.high - wide.low


@pytest.mark.parametrize(
    ("answers", "episodes", "success"),
    [([], [], []), ([10], [50, 50], [1.0]), ([10], [0], [0.0]), ([10], [50], [1.5]), ([-1], [50], [0.5])],
)
def test_looks_that_cannot_be_are_refused(answers: list[float], episodes: list[float], success: list[float]) -> None:
    with pytest.raises((ApilError, ValueError), match=r"look|broadcast"):
        LearningCurve.of(answers, episodes, success)
