"""What the comparison shows: cost, success alone, and the cost to a level of success, selector beside selector."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from apil.studies.statistics import Estimate, estimate, interval, probability_above, to_json
from apil.studies.whom.records import Point, Run, runs_of

SHARE, _OF_SUCCESS = 0.6, 0.95
"""Of the cost and of the success of always asking the best teacher, that sentences speak of."""


class Whom:
    """All statistics, from the points alone."""

    def __init__(self, points: Sequence[Point], about: Mapping[str, Any]) -> None:
        self._runs = runs_of(points)
        self.tasks = list(dict.fromkeys(task for task, _ in self._runs))
        self.selectors = list(dict.fromkeys(selector for _, selector in self._runs))
        self.level, self.top, self.winner = float(about["level"]), str(about["top"]), str(about["winner"])

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

    def at_share(self, task: str) -> tuple[Estimate, Estimate]:
        """Success alone of the winner at `SHARE` of the cost of the top, and of the top at its end."""
        top = self.runs(task, self.top)
        most = SHARE * float(np.mean([run.cost for run in top]))
        ours = [run.success_at(most) for run in self.runs(task, self.winner)]
        return estimate(ours), estimate([run.success for run in top])


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
    return {"level": compared.level, "winner": compared.winner, "cells": cells, "improvement": improvements}


def findings(compared: Whom) -> list[str]:
    """How the winner stands, as sentences."""
    said = []
    for task in compared.tasks:
        ours, theirs = compared.at_share(task)
        reaches = "" if ours.mean >= _OF_SUCCESS * theirs.mean else "not "
        said.append(
            f"{task}: {compared.winner} at {SHARE:.0%} of the cost of {compared.top} succeeds alone in "
            f"{ours.mean:.3f} [{ours.low:.3f}, {ours.high:.3f}] of the episodes, {ours.mean / theirs.mean:.3f} of its "
            f"{theirs.mean:.3f}: it does {reaches}reach {_OF_SUCCESS} of it."
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
