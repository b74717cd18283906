"""What the comparison shows: cost, success alone, and the cost to a level of success, selector beside selector."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from apil.studies.statistics import Estimate, estimate, interval, probability_above, to_json
from apil.studies.whom.records import Point, Run, runs_of

SHARE, _OF_SUCCESS = 0.6, 0.95
"""Of the cost and of the success of always asking the best teacher, that sentences speak of."""


@dataclass(frozen=True)
class AtShare:
    """What the winner reaches for a part of what the top costs."""

    share: float
    """Of the cost of the top."""
    success: Estimate
    """Alone, of the winner."""
    of_top: Estimate
    """Alone, of the top at its end."""

    @property
    def reached(self) -> bool:
        """It is good enough, and cheap enough."""
        return self.share <= SHARE and self.success.mean >= _OF_SUCCESS * self.of_top.mean

    def to_json(self) -> dict[str, Any]:
        return {"share": self.share, "success_alone": to_json(self.success), "of_top": to_json(self.of_top)}


class Whom:
    """All statistics, from the points alone."""

    def __init__(self, points: Sequence[Point], about: Mapping[str, Any]) -> None:
        self._runs = runs_of(points)
        self.tasks = list(dict.fromkeys(task for task, _ in self._runs))
        self.selectors = list(dict.fromkeys(selector for _, selector in self._runs))
        self.level, self.top, self.winner = float(about["level"]), str(about["top"]), str(about["winner"])
        self.sparing = str(about.get("sparing", ""))

    def runs(self, task: str, selector: str) -> list[Run]:
        return self._runs.get((task, selector), [])

    def dearest(self, task: str) -> float:
        """The cost of the dearest run of a task: what a run that never reached the level is counted with."""
        return max(run.cost for (own, _), runs in self._runs.items() if own == task for run in runs)

    def costs_to(self, task: str, selector: str) -> list[float]:
        """Of each run; infinite where it never reached the level."""
        return [run.cost_to(self.level) for run in self.runs(task, selector)]

    def cost_to(self, task: str, selector: str) -> Estimate:
        """The mean, with runs that never reached the level counted at the cost of the dearest run."""
        return estimate([min(cost, self.dearest(task)) for cost in self.costs_to(task, selector)])

    def probability(self, task: str, selector: str, other: str) -> float:
        """That a run needs less than one of the other; ties, both never among them, count half."""
        ours, theirs = ([-self._finite(cost) for cost in self.costs_to(task, name)] for name in (selector, other))
        return probability_above(ours, theirs)

    @staticmethod
    def _finite(cost: float) -> float:
        return cost if math.isfinite(cost) else 1e12

    def difference(self, task: str, selector: str, other: str) -> Estimate:
        """Of the cost to the level, seed by seed."""
        most = self.dearest(task)
        ours, theirs = (
            {run.seed: min(run.cost_to(self.level), most) for run in self.runs(task, name)}
            for name in (selector, other)
        )
        return estimate([ours[seed] - theirs[seed] for seed in ours if seed in theirs])

    def at_share(self, task: str) -> AtShare:
        """The winner at a part of the cost of the top: in runs of its own that had fewer answers, if there are any,
        else as it was in the middle of training when it had cost `SHARE` as much."""
        top, sparing = self.runs(task, self.top), self.runs(task, self.sparing)
        success, whole = estimate([run.success for run in top]), float(np.mean([run.cost for run in top]))
        if sparing:
            share = float(np.mean([run.cost for run in sparing])) / whole
            return AtShare(share, estimate([run.success for run in sparing]), success)
        ours = [run.success_at(SHARE * whole) for run in self.runs(task, self.winner)]
        return AtShare(SHARE, estimate(ours), success)


def summary(compared: Whom) -> dict[str, Any]:
    """`summary.json`."""
    cells, improvements = [], []
    for task in compared.tasks:
        for selector in compared.selectors:
            runs = compared.runs(task, selector)
            costs = compared.costs_to(task, selector)
            cells.append(
                {
                    "task": task,
                    "selector": selector,
                    "seeds": len(runs),
                    "success_alone": interval([run.success for run in runs]),
                    "cost": interval([run.cost for run in runs]),
                    "cost_to_90": to_json(compared.cost_to(task, selector)),
                    "reached": sum(map(math.isfinite, costs)),
                }
            )
            improvements += [
                {
                    "task": task,
                    "selector": selector,
                    "other": other,
                    "probability": compared.probability(task, selector, other),
                    "difference": to_json(compared.difference(task, selector, other)),
                }
                for other in compared.selectors
                if other != selector
            ]
    return {
        "level": compared.level,
        "winner": compared.winner,
        "cells": cells,
        "improvement": improvements,
        "at_share": [{"task": task, **compared.at_share(task).to_json()} for task in compared.tasks],
    }


def findings(compared: Whom) -> list[str]:
    """How the winner stands, as sentences."""
    said = []
    for task in compared.tasks:
        found = compared.at_share(task)
        ours, theirs = found.success, found.of_top
        said.append(
            f"{task}: {compared.sparing or compared.winner} at {found.share:.1%} of the cost of {compared.top} "
            f"succeeds alone in {ours.mean:.3f} [{ours.low:.3f}, {ours.high:.3f}] of the episodes, "
            f"{ours.mean / theirs.mean:.3f} of its {theirs.mean:.3f}: it does {'' if found.reached else 'not '}reach "
            f"{_OF_SUCCESS} of it at {SHARE:.0%} of its cost."
        )
        chances = [
            f"{other} {compared.probability(task, compared.winner, other):.2f}"
            for other in compared.selectors
            if other != compared.winner
        ]
        said.append(
            f"{task}: probability that {compared.winner} needs less to {compared.level:g} success alone than "
            f"{', '.join(chances)}."
        )
    return said
