"""A study as data: which runs it is made of, and how they are stacked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from types import MappingProxyType
from typing import Any

from apil.config import RunConfig
from apil.learning.build import committee_of, require_threshold, stack_shape

SAMPLE_SIZES = (1, 5, 10, 20, 50)
"""N1 of the figure on sampling uncertainty; the exact expectation is its last line."""
_STACK = 72
SPLITS = ("val_unseen", "val_seen")
"""Where agents on R2R are evaluated; the first is the one that tables show."""
LOOKS = 10
"""How often an agent on R2R is looked at in training, evenly spread."""
R2R_QUERIES = ("dagger", "apil", "errpred", "intrun", "behvun", "bc", "extrun")
"""Of the paper's second table, in the order in which the study runs them."""
_USUAL_PLACE = "data/r2r"
_MANY_SEEDS = ("dagger", "apil")
SAME_FOR_ONE = {"behvun": "intrun"}
"""With one teacher behavioural uncertainty is the intrinsic one, and the two policies are the same."""


@dataclass(frozen=True)
class Cell:
    """One run of a study."""

    config: RunConfig
    samples: str | None = None
    """Set for the runs that vary the number of samples: '1', '5', ... or 'exact'."""
    label: str | None = None
    """What the query policy is called in this study; its own name if not given."""

    @property
    def query(self) -> str:
        """The query policy in tables and figures."""
        return self.label or self.config.query

    @property
    def folder(self) -> str:
        """Name of the run's folder: what it is, and a hash of its whole config."""
        settings = json.dumps(settings_of(self.config), sort_keys=True)
        digest = hashlib.sha256(settings.encode()).hexdigest()[:10]
        what = self.config.query if self.samples is None else f"samples-{self.samples}"
        return f"{self.config.teacher}-{what}-{self.config.seed}-{digest}"


def settings_of(config: RunConfig) -> dict[str, Any]:
    """The settings of a run as JSON; of data on disk what they are (their digest), not where they lie."""
    told = config.to_json()
    if config.options.get("digest"):
        told["options"] = {**told["options"], "data": _USUAL_PLACE}
    return told


def plan(
    base: RunConfig,
    teachers: Sequence[str],
    queries: Sequence[str],
    seeds: int,
    thresholds: Mapping[str, float | None],
    budgets: Mapping[str, float | None] = MappingProxyType({}),
) -> list[Cell]:
    """All runs of a study: every query policy with every teacher and seed, and those of the sampling figure.

    A budget takes the place of the threshold.
    """
    gates = {query: _gate(thresholds.get(query), budgets.get(query)) for query in queries}
    for query, gate in gates.items():
        require_threshold(base.task, query, **gate)
    cells = [
        Cell(replace(base, teacher=teacher, query=query, seed=seed, **gates[query]))
        for teacher, query, seed in product(teachers, queries, range(seeds))
    ]
    if "twodifdetm" in teachers and "dagger" in queries:
        cells += [_sampling(base, size, seed) for size, seed in product((*SAMPLE_SIZES, None), range(seeds))]
    return cells


def plan_r2r(
    base: RunConfig,
    teachers: Sequence[str],
    queries: Sequence[str],
    seeds: int,
    other_seeds: int,
    thresholds: dict[str, float | None],
) -> list[Cell]:
    """The runs of a study of R2R, in the order in which they are to be made, DAGGER and APIL first.

    They have `seeds` seeds, the other policies `other_seeds`. EXTRUN is run with committees that differ: with one
    teacher, or with two of a kind, it has nothing to go by. Where two policies are the same, one run serves both.
    """
    for query in queries:
        require_threshold(base.task, query, thresholds.get(query))
    cells = []
    for seed in range(max(seeds, other_seeds)):
        for teacher, query in product(teachers, queries):
            one_kind = teacher in ("detm", "rand", "tworand")
            wanted = seeds if query in _MANY_SEEDS else other_seeds
            if seed < wanted and not (query == "extrun" and one_kind):
                config = replace(base, teacher=teacher, query=query, seed=seed, threshold=thresholds.get(query))
                if query in SAME_FOR_ONE and len(committee_of(config).members) == 1:
                    cells.append(Cell(replace(config, query=SAME_FOR_ONE[query]), label=query))
                else:
                    cells.append(Cell(config))
    return cells


def _gate(threshold: float | None, budget: float | None) -> dict[str, Any]:
    return {"threshold": threshold if budget is None else None, "budget": budget}


def _sampling(base: RunConfig, size: int | None, seed: int) -> Cell:
    name = "exact" if size is None else str(size)
    config = replace(
        base,
        teacher="twodifdetm",
        query="dagger",
        seed=seed,
        expectation="exact" if size is None else "monte-carlo",
        samples=base.samples if size is None else size,
    )
    return Cell(config, name)


def stacks(cells: Sequence[Cell]) -> list[list[Cell]]:
    """The cells in stacks of equal shape and of at most 72 runs, largest first; runs that stand
    alone keep their order.

    Runs with the same query policy stand side by side, so that a policy reads its runs without a copy. How the cells
    are stacked changes no result.
    """
    ordered = sorted(cells, key=lambda cell: (repr(stack_shape(cell.config)), cell.config.query, cell.folder))
    made = []
    for _, group in groupby(ordered, key=lambda cell: stack_shape(cell.config)):
        runs = list(group)
        parts = -(-len(runs) // _STACK)
        size = -(-len(runs) // parts)
        made += [runs[place : place + size] for place in range(0, len(runs), size)]
    if all(len(stack) == 1 for stack in made):
        order = {cell: place for place, cell in enumerate(cells)}
        return sorted(made, key=lambda stack: order[stack[0]])
    return sorted(made, key=lambda stack: -len(stack) * len(committee_of(stack[0].config).members))
