"""What a learning curve over answers tends to: success alone, extrapolated with its uncertainty.

Success after n answers is taken to be

    s(n) = s0 + (s1 - s0) n^c / (n^c + m^c)

a logistic function of log n: it begins at s0, tends to s1 as a power law does, |s1 - s(n)| ~ n^-c, and is half-way at m
answers. The four numbers have a posterior on a grid (Bayes 1763, by summation: no sampling, the same on every call).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from apil.errors import ApilError

Floats = NDArray[np.float64]

CORRELATION = 0.02
"""Of the outcomes of two episodes of one look. Weights swing from look to look, so that looks differ by more than the
chance of their episodes: E episodes tell as much as E / (1 + (E - 1) CORRELATION) independent ones."""
COVERAGE = 0.8
"""Of an interval."""
_LEVELS, _STARTS = 33, 9
_HALF_WAY = 2.0 ** np.arange(-10.0, 4.5, 0.5)
"""m, as multiples of the answers so far. What begins after sixteen times as many cannot be foreseen."""
_STEEPNESS = np.array([0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0])
"""c: from slower than most learning curves (Viering and Loog 2021) to nearly a step."""


@dataclass(frozen=True)
class Range:
    """A number with the interval that holds it with probability `COVERAGE`."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class LearningCurve:
    """The posterior of s(n), given looks at several numbers of answers."""

    answers: Floats
    """[looks]: n, ascending."""
    episodes: Floats
    """[looks]"""
    successes: Floats
    """[looks]: how many of the episodes succeeded."""

    def __post_init__(self) -> None:
        shapes = {np.shape(own) for own in (self.answers, self.episodes, self.successes)}
        if len(shapes) != 1 or len(self.answers) < 1 or np.ndim(self.answers) != 1:
            raise ApilError(f"A learning curve is made of looks, one number each; got arrays of {sorted(shapes)}.")
        sound = (self.answers >= 0).all() and (self.successes >= 0).all() and (self.successes <= self.episodes).all()
        if not sound or not (self.episodes > 0).all():
            raise ApilError("A look has answers from 0 up, at least one episode, and no more successes than episodes.")

    @staticmethod
    def of(answers: Sequence[float], episodes: Sequence[float], success: Sequence[float]) -> LearningCurve:
        """From the shares of episodes that succeeded."""
        counts, shares = np.asarray(episodes, np.float64), np.asarray(success, np.float64)
        return LearningCurve(np.asarray(answers, np.float64), counts, shares * counts)

    @property
    def last(self) -> float:
        """The answers at the last look, at least 1."""
        return max(1.0, float(self.answers[-1]))

    @cached_property
    def _grid(self) -> tuple[Floats, Floats, Floats, Floats]:
        """s1 [levels, 1, 1], s0 [levels, starts, 1], and m and c [1, 1, shapes].

        Steps are equal in the angle whose squared sine is the level: Jeffreys' prior of a probability, fine near 0 and
        1. A curve does not fall.
        """
        angle = np.linspace(0.0, np.pi / 2, _LEVELS)
        below = np.linspace(0.0, 1.0, _STARTS)
        half, steep = np.meshgrid(_HALF_WAY * self.last, _STEEPNESS, indexing="ij")
        level, start = np.sin(angle) ** 2, np.sin(angle[:, None] * below) ** 2
        return level[:, None, None], start[:, :, None], half.reshape(1, 1, -1), steep.reshape(1, 1, -1)

    def at(self, answers: float) -> Floats:
        """s(n) at every point of the grid, [levels, starts, shapes]."""
        level, start, half, steep = self._grid
        risen = 1.0 / (1.0 + (half / max(answers, 1e-9)) ** steep) if answers > 0 else np.zeros_like(half)
        return start + (level - start) * risen

    @cached_property
    def weights(self) -> Floats:
        """[levels, starts, shapes]: the posterior probability of every point of the grid."""
        log = np.zeros(())
        for n, episodes, successes in zip(self.answers, self.episodes, self.successes, strict=True):
            s = np.clip(self.at(float(n)), 1e-4, 1 - 1e-4)
            inflation = 1.0 + (episodes - 1.0) * CORRELATION
            log = log + (successes * np.log(s) + (episodes - successes) * np.log1p(-s)) / inflation
        weights = np.exp(log - log.max())
        normed: Floats = weights / weights.sum()
        return normed

    def level(self, answers: float) -> Range:
        """Success alone after so many answers."""
        return self._range(self.at(answers))

    @property
    def limit(self) -> Range:
        """Success alone that it tends to."""
        return self._range(np.broadcast_to(self._grid[0], self.weights.shape))

    def gain(self, before: float, after: float) -> Range:
        """How much higher success alone is after `after` answers than after `before`."""
        return self._range(self.at(after) - self.at(before))

    def probability_below(self, margin: float, before: float, after: float) -> float:
        """That the gain between two numbers of answers is less than `margin`."""
        return float(self.weights[self.at(after) - self.at(before) < margin].sum())

    def needed(self, margin: float) -> Range:
        """Answers after which success is within `margin` of what it tends to; the mean is the median here."""
        level, start, half, steep = self._grid
        # s1 - s(n) = (s1 - s0) / (1 + (n / m)^c) <= margin
        ratio = np.maximum((level - start) / margin - 1.0, 0.0)
        low, middle, high = self._quantiles(
            half * ratio ** (1.0 / steep), ((1 - COVERAGE) / 2, 0.5, (1 + COVERAGE) / 2)
        )
        return Range(middle, low, high)

    def _range(self, values: Floats) -> Range:
        low, high = self._quantiles(values, ((1 - COVERAGE) / 2, (1 + COVERAGE) / 2))
        return Range(float((self.weights * values).sum()), low, high)

    def _quantiles(self, values: Floats, shares: Sequence[float]) -> list[float]:
        order = np.argsort(values, axis=None, kind="stable")
        below = np.cumsum(self.weights.ravel()[order])
        places = np.searchsorted(below, shares).clip(max=len(order) - 1)
        return [float(value) for value in values.ravel()[order[places]]]
