"""What the answers of a run cost, and what they bought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apil.errors import ApilError
from apil.files import read_rows
from apil.learning.build import committee_of
from apil.learning.curve import Range
from apil.runs.folder import load_config
from apil.runs.looks import LearningCurves, curves_of
from apil.runs.stored import answers as stored
from apil.settings import RunSettings
from apil.teachers.protocol import costs_of

LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Levels of success alone for which the bill has the cost."""
HUNDRED = 100
"""How many of the last answers the bill has the worth of."""


@dataclass(frozen=True)
class Bill:
    """Of one run; answers of an earlier run that it began with are not on it."""

    members: tuple[str, ...]
    identity: NDArray[np.int64]
    """[n]: who gave each answer, in the order in which they came."""
    prices: tuple[float, ...] | None
    """Of an answer by each member; None where the teachers are known to a program alone."""
    total: float
    """Of all answers, switches between teachers included; their number where prices are not known."""
    curves: LearningCurves | None
    """What looks at the run showed; None if there were none."""

    @property
    def answers(self) -> dict[str, int]:
        """By member."""
        counts = np.bincount(self.identity, minlength=len(self.members))
        return dict(zip(self.members, counts.tolist(), strict=True))

    @property
    def cost(self) -> dict[str, float]:
        """By member; empty where prices are not known."""
        if self.prices is None:
            return {}
        given = self.answers
        return {name: given[name] * price for name, price in zip(self.members, self.prices, strict=True)}

    def cost_of_first(self, answers: float) -> float:
        """Of the first so many answers. What is not on the bill of a member, such as switches, is spread evenly."""
        return float(self._paid[min(max(int(answers), 0), len(self.identity))])

    @cached_property
    def _paid(self) -> NDArray[np.float64]:
        """[n + 1]: the cost of the first 0, 1, ... answers."""
        each = np.ones(len(self.identity)) if self.prices is None else np.array(self.prices)[self.identity]
        paid = np.concatenate([[0.0], np.cumsum(each)])
        found: NDArray[np.float64] = paid * (self.total / paid[-1] if paid[-1] else 1.0)
        return found

    def cost_to(self, level: float) -> float | None:
        """What it cost until the learning curve was at a level of success alone; None where it never was, or where
        nobody looked."""
        if self.curves is None:
            return None
        curve = self.curves.success
        reached = (look.answers for look in self.curves.looks if curve.level(look.answers).mean >= level)
        first = next(reached, None)
        return None if first is None else self.cost_of_first(first)

    @property
    def last_hundred(self) -> tuple[float, Range] | None:
        """The cost of the 100 answers before the last look, and how much success alone rose over them; None where
        nobody looked."""
        if self.curves is None:
            return None
        found = self.curves.outlook
        return self.cost_of_first(found.answers) - self.cost_of_first(found.answers - HUNDRED), found.last_hundred


def bill(folder: Path, prices: Mapping[str, float] | None = None) -> Bill:
    """The bill of a run folder. `prices` of members by name come before those of the teachers themselves."""
    config = load_config(folder)
    rows = read_rows(folder / "metrics.jsonl") if (folder / "metrics.jsonl").exists() else []
    members, identity = _given(folder, config)
    names = tuple(member_names(members))
    each = _prices(config, members, prices)
    total = float(np.array(each)[identity].sum()) if each is not None else float(len(identity))
    if not prices and rows:
        total = float(rows[-1].get("cost", total if len(identity) else rows[-1]["answers"]))
    return Bill(names, identity, each, total, curves_of(rows))


def member_names(members: Sequence[str]) -> list[str]:
    """A name for each member of a committee; those that share one are numbered: uniform, uniform-2."""
    return [
        name if members[:k].count(name) == 0 else f"{name}-{members[:k].count(name) + 1}"
        for k, name in enumerate(map(str, members))
    ]


def _given(folder: Path, config: RunSettings) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The members of the committee, and who gave each answer."""
    with suppress(ApilError):  # a store that is gone, or never was
        found = stored(folder)
        return found.teachers, found.identity[~found.earlier]
    path = folder / "answers.jsonl"
    rows: Sequence[Mapping[str, Any]] = read_rows(path) if path.exists() else []
    identity = np.array([row["identity"] for row in rows], np.int64)
    with suppress(ApilError):
        return tuple(committee_of(config).members), identity
    return tuple(str(who) for who in range(int(identity.max(initial=0)) + 1)), identity


def _prices(config: RunSettings, members: Sequence[str], given: Mapping[str, float] | None) -> tuple[float, ...] | None:
    if given:
        named = zip(member_names(members), members, strict=True)
        return tuple(float(given.get(name, given.get(member, 1.0))) for name, member in named)
    with suppress(ApilError):
        return costs_of(committee_of(config))
    return None
