"""Whether teachers agree, with each other and with themselves, in similar states of a store of answers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apil.runs.stored import StoredAnswers

RADIUS = 0.1
"""States are alike within this root mean square difference of their features, in standard deviations."""
_SAMPLE = 2000
"""Answers of a teacher, evenly over its own, whose nearest neighbours are looked for."""
_COMPARED = 10
"""Teachers that are compared, those with the most answers."""
_Z = 1.959964
_CHUNK = 2**16

Groups = NDArray[np.int64]


@dataclass(frozen=True)
class Agreement:
    """How two teachers answer in similar states; how consistent one is if both are the same."""

    first: str
    second: str
    states: int
    """Similar states, or pairs of them, in which both answered."""
    value: float
    """The share of equal actions; for continuous ones the mean absolute difference. NaN if there are no such states."""
    low: float
    high: float
    """Ends of a 95 % interval over states: Wilson's for shares, a normal one for differences."""


def agreements(answers: StoredAnswers, radius: float = RADIUS) -> tuple[bool, list[Agreement]]:
    """Whether states count as alike where their features are the same, and all pairs of the teachers that answered.

    They count so if all features are bits, or if half of the answers or more are to states that come again. Else a
    state is alike to its nearest neighbour among those another teacher answered in, within `radius`.
    """
    counts = np.bincount(answers.identity, minlength=len(answers.teachers))
    order = np.argsort(-counts, kind="stable")[:_COMPARED]
    compared = sorted(int(who) for who in order if counts[who])
    groups = groups_of(answers)
    same = all(kind == "bits" for _, kind in answers.header.layout.kinds) or _comes_again(groups)
    neighbours = None if same else _Neighbours(answers, compared, radius)
    found = []
    for pair in combinations_with_replacement(compared, 2):
        values = _in_groups(answers, groups, *pair) if neighbours is None else neighbours.compared(*pair)
        names = answers.teachers[pair[0]], answers.teachers[pair[1]]
        found.append(Agreement(*names, len(values), *_interval(values, answers.continuous)))
    return same, found


def groups_of(answers: StoredAnswers) -> Groups:
    """[n]: answers in states with the same features have the same number."""
    numbers: dict[bytes, int] = {}
    found = np.zeros(len(answers), np.int64)
    names = [f"features{at}" for at in range(len(answers.header.layout.kinds))]
    for start in range(0, len(answers), _CHUNK):
        rows = answers.rows[answers.places[start : start + _CHUNK]]
        parts = [np.ascontiguousarray(rows[name]).view(np.uint8).reshape(len(rows), -1) for name in names]
        for at, row in enumerate(np.concatenate(parts, 1)):
            key = row.tobytes()
            found[start + at] = numbers.setdefault(key if len(key) <= 64 else _digest(key), len(numbers))
    return found


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _comes_again(groups: Groups) -> bool:
    return bool(len(groups)) and 2 * int((np.bincount(groups)[groups] > 1).sum()) >= len(groups)


def _in_groups(answers: StoredAnswers, groups: Groups, first: int, second: int) -> NDArray[np.float64]:
    """[states]: the mean over all pairs of answers of the two in each state; each state counts once."""
    own, other = (np.flatnonzero(answers.identity == who) for who in (first, second))
    if answers.continuous:
        return np.array(list(_differences(answers, groups, own, other, first == second)))
    states, size = int(groups.max(initial=-1)) + 1, answers.header.layout.actions
    keys = groups * size + answers.action
    mine, theirs = _Counts.of(keys[own], size, states), _Counts.of(keys[other], size, states)
    there, where, at = np.intersect1d(mine.keys, theirs.keys, assume_unique=True, return_indices=True)
    equal = np.bincount(there // size, mine.counts[where] * theirs.counts[at], minlength=states).astype(np.float64)
    pairs = mine.totals * theirs.totals
    if first == second:  # an answer is not compared with itself
        equal, pairs = equal - mine.totals, pairs - mine.totals
    both = pairs > 0
    values: NDArray[np.float64] = equal[both] / pairs[both]
    return values


@dataclass(frozen=True)
class _Counts:
    """How often a teacher gave each action in each state."""

    keys: NDArray[np.int64]
    counts: NDArray[np.float64]
    totals: NDArray[np.float64]
    """[states]"""

    @staticmethod
    def of(keys: NDArray[np.int64], size: int, states: int) -> _Counts:
        found, counts = np.unique(keys, return_counts=True)
        weights = counts.astype(np.float64)
        totals = np.bincount(found // size, weights, minlength=states).astype(np.float64)
        return _Counts(found, weights, totals)


def _differences(
    answers: StoredAnswers, groups: Groups, own: NDArray[np.int64], other: NDArray[np.int64], alone: bool
) -> Iterator[float]:
    """The mean absolute difference of continuous actions in each state that both answered."""
    theirs: dict[int, list[int]] = {}
    mine: dict[int, list[int]] = {}
    for places, target in ((own, mine), (other, theirs)):
        for place in places.tolist():
            target.setdefault(int(groups[place]), []).append(place)
    for state, here in mine.items():
        there = theirs.get(state, [])
        if not there or (alone and len(there) < 2):
            continue
        apart = np.abs(answers.action[here][:, None] - answers.action[there]).mean(-1)
        yield float(apart.sum() / (len(here) * (len(there) - alone)))


class _Neighbours:
    """Nearest neighbours in standardised features."""

    def __init__(self, answers: StoredAnswers, compared: list[int], radius: float) -> None:
        self._answers, self._radius = answers, radius
        self._places = {who: _evenly(np.flatnonzero(answers.identity == who)) for who in compared}
        everyone = np.concatenate(list(self._places.values())) if compared else np.zeros(0, np.int64)
        features = answers.features_of(everyone)
        spread = features.std(0)
        varying = spread > 1e-6
        self._size = max(1, int(varying.sum()))
        scaled = (features[:, varying] - features[:, varying].mean(0)) / spread[varying]
        starts = np.cumsum([0, *(len(own) for own in self._places.values())])
        self._scaled = {who: scaled[starts[at] : starts[at + 1]] for at, who in enumerate(self._places)}

    def compared(self, first: int, second: int) -> NDArray[np.float64]:
        """[pairs of similar states]: whether the actions are equal, or their mean absolute difference."""
        own, other = self._scaled[first], self._scaled[second]
        squares = (own**2).sum(1)[:, None] + (other**2).sum(1) - 2 * own @ other.T
        if first == second:
            np.fill_diagonal(squares, np.inf)
        nearest = squares.argmin(1)
        alike = squares[np.arange(len(own)), nearest] <= self._size * self._radius**2
        mine = self._answers.action[self._places[first][alike]]
        theirs = self._answers.action[self._places[second][nearest[alike]]]
        if self._answers.continuous:
            return np.asarray(np.abs(mine - theirs).mean(-1), np.float64)
        return np.asarray(mine == theirs, np.float64)


def _evenly(places: NDArray[np.int64]) -> NDArray[np.int64]:
    if len(places) <= _SAMPLE:
        return places
    return places[np.linspace(0, len(places) - 1, _SAMPLE).astype(np.int64)]


def _interval(values: NDArray[Any], continuous: bool) -> tuple[float, float, float]:
    """The mean, and the ends of its 95 % interval."""
    count = len(values)
    if not count:
        return math.nan, math.nan, math.nan
    mean = float(values.mean())
    if continuous:
        wide = _Z * float(values.std(ddof=1)) / math.sqrt(count) if count > 1 else math.inf
        return mean, max(0.0, mean - wide), mean + wide
    share = _Z**2 / count
    centre = (mean + share / 2) / (1 + share)
    wide = _Z / (1 + share) * math.sqrt(mean * (1 - mean) / count + share / (4 * count))
    return mean, min(mean, max(0.0, centre - wide)), max(mean, min(1.0, centre + wide))
