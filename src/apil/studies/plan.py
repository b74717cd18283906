"""A study as data: which runs it is made of, and how they are stacked."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import groupby, pairwise, product
from typing import Any

from apil.learning.build import committee_of, require_threshold, stack_shape
from apil.query import asking_of, takes_budget
from apil.settings import RunSettings
from apil.tasks.options import options_of

SAMPLE_SIZES = (1, 5, 10, 20, 50)
"""N1 of the figure on sampling uncertainty; the exact expectation is its last line."""
_STACK = 120
"""Runs in a stack at most."""
_PIECES = 4
"""Stacks for each worker, at most, unless there are more shapes."""
_FIXED = 36
"""What an iteration of a stack costs whatever its size, in runs with one teacher."""
_TEACHER = 0.3
"""What each further teacher adds to the cost of a run."""
_LEARNED, _ASKED = 150, 5
"""Iterations of a run after its last answer, and its answers in an iteration before; both are rough."""
SAME_FOR_ONE = {"behvun": "intrun"}
"""With one teacher behavioural uncertainty is the intrinsic one, and the two policies are the same."""


@dataclass(frozen=True)
class Cell:
    """One run of a study."""

    config: RunSettings
    samples: str | None = None
    """Set for the runs that vary the number of samples: '1', '5', ... or 'exact'."""
    label: str | None = None
    """What the query policy is called in this study; its own name if not given."""
    point: int | None = None
    """The number of answers at which rules are compared, in a study that does; 0 for one that never asks."""

    @property
    def query(self) -> str:
        """The query policy in tables and figures."""
        return self.label or self.config.query.name

    @property
    def folder(self) -> str:
        """Name of the run's folder: what it is, and a hash of its whole config."""
        settings = json.dumps(settings_of(self.config), sort_keys=True)
        digest = hashlib.sha256(settings.encode()).hexdigest()[:10]
        what = self.config.query.name if self.samples is None else f"samples-{self.samples}"
        return f"{self.config.teachers.name}-{what}-{self.config.seed}-{digest}"


def settings_of(config: RunSettings) -> dict[str, Any]:
    """The settings of a run as JSON; of data on disk what they are, not where they lie."""
    return {**config.identity(), "options": options_of(config.task.name).identity(config.task.options)}


def plan(
    base: RunSettings,
    teachers: Sequence[str],
    queries: Sequence[str],
    seeds: int,
    thresholds: Mapping[str, float | None],
    budget: float | None = None,
) -> list[Cell]:
    """Every query policy with every teacher and seed, and the sampling figure; a budget replaces a threshold."""
    gates: dict[str, dict[str, Any]] = {}
    for query in queries:
        kept = budget if takes_budget(query) else None
        gate = {"threshold": thresholds.get(query) if kept is None else None, "budget": kept}
        require_threshold(base.task.name, query, **gate)
        gates[query] = {**gate, "asking": asking_of(query) or base.query.asking}
    cells = [
        Cell(base.changed(teacher=teacher, query=query, seed=seed, **gates[query]))
        for teacher, query, seed in product(teachers, queries, range(seeds))
    ]
    if "twodifdetm" in teachers and "dagger" in queries:
        shared = base.changed(teacher="twodifdetm", query="dagger")
        sampled = {str(size): shared.changed(expectation="monte-carlo", samples=size) for size in SAMPLE_SIZES}
        sampled["exact"] = shared.changed(expectation="exact")
        cells += [Cell(run.changed(seed=seed), name) for name, run in sampled.items() for seed in range(seeds)]
    return cells


def stacks(cells: Sequence[Cell], workers: int = 2) -> list[list[Cell]]:
    """The cells in stacks of equal shape, the most expensive first; runs that stand alone keep their order.

    They are cut so that few stacks keep all workers busy to the end: the larger a stack, the less a run in it costs.
    Runs with about as many answers end at about the same time, and are in one stack; those with the same query policy
    stand side by side in it, so that a policy reads its runs without a copy.
    """
    ordered = sorted(cells, key=_order)
    groups = [list(group) for _, group in groupby(ordered, key=lambda cell: stack_shape(cell.config))]
    if len(groups) == len(cells):
        return [[cell] for cell in cells]
    pieces = [_cut(runs, math.ceil(len(runs) / _STACK)) for runs in groups]
    best = made = _in_order(pieces)
    while len(made) < _PIECES * workers and any(len(own[0].runs) > 1 for own in pieces):
        largest = max(range(len(groups)), key=lambda place: (len(pieces[place][0].runs) > 1, pieces[place][0].work))
        pieces[largest] = _cut(groups[largest], len(pieces[largest]) + 1)
        made = _in_order(pieces)
        best = min(best, made, key=lambda stacks: _end(stacks, workers))
    return [sorted(piece.runs, key=_place) for piece in best]


@dataclass(frozen=True)
class _Piece:
    """Runs that may become a stack."""

    runs: Sequence[Cell]
    work: float


def _cut(runs: Sequence[Cell], count: int) -> list[_Piece]:
    """In so many parts, whose sizes differ by one at most; the largest first."""
    ends = [-(-place * len(runs) // count) for place in range(count + 1)]
    parts = [runs[first:last] for first, last in pairwise(ends)]
    return [_Piece(part, _cost(part) * max(map(_length, part))) for part in parts]


def _in_order(pieces: Sequence[Sequence[_Piece]]) -> list[_Piece]:
    """As workers take them: the most expensive first."""
    return sorted((piece for own in pieces for piece in own), key=lambda piece: -piece.work)


def _end(made: Sequence[_Piece], workers: int) -> float:
    """When the last of the workers is done, each of whom takes the next piece when it is free."""
    free = [0.0] * workers
    for piece in made:
        heapreplace(free, free[0] + piece.work)
    return max(free)


def _order(cell: Cell) -> tuple[str, int, str, str]:
    """Runs of one shape together, the longest first."""
    return repr(stack_shape(cell.config)), -_length(cell), *_place(cell)


def _place(cell: Cell) -> tuple[str, str]:
    """Where a run stands in its stack."""
    return cell.config.query.name, cell.folder


def _length(cell: Cell) -> int:
    """How many iterations a run takes, about; one with a budget of answers goes on after the last of them."""
    answers = cell.config.query.answer_budget
    return cell.config.iterations if answers is None else _LEARNED + answers // _ASKED


def _cost(runs: Sequence[Cell]) -> float:
    """What an iteration of a stack costs, about, in runs with one teacher."""
    return _FIXED + len(runs) * (1.0 + _TEACHER * (len(committee_of(runs[0].config).members) - 1))
