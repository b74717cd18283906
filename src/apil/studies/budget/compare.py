"""What the benchmark shows: rules beside controls at each budget, and over tasks on the scale from never to DAgger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from apil.studies.budget.definition import BASELINE, CONTROLS, LEVELS, NEVER, TOP
from apil.studies.budget.plan import FULL
from apil.studies.budget.records import Run, Runs
from apil.studies.statistics import (
    Estimate,
    Floats,
    estimate,
    improvement,
    interval,
    probability_above,
    stratified_estimate,
    to_json,
)
from apil.studies.text import spelled

Figure = Literal["success_alone", "success_greedy"]
FIGURES: tuple[Figure, ...] = ("success_alone", "success_greedy")
_SMALLEST_GAP = 0.05
"""A task on which DAgger is no further than this above never has no scale."""
_WELL, _BADLY = 0.9, 0.35
"""Probabilities of improvement that the sentences of a report count."""
Verdict = Literal["better", "equal", "worse"]


@dataclass(frozen=True)
class Scale:
    """The ends of the scale of a task: success alone without an answer, and of DAgger with its many."""

    never: float
    top: float

    def share(self, values: Floats) -> Floats:
        """How much of the gap is closed; NaN where there is none."""
        gap = self.top - self.never
        return (values - self.never) / gap if gap > _SMALLEST_GAP else np.full(len(values), np.nan)


class Comparison:
    """All statistics of the benchmark, computed when they are asked for."""

    def __init__(self, runs: Runs) -> None:
        # Resampling takes a while, and tables, figures and sentences ask for the same.
        self.probability_over_tasks = cache(self._probability_over_tasks)
        self.share_over_tasks = cache(self._share_over_tasks)
        self.runs = runs
        self.rules = runs.rules
        self.controls = [rule for rule in CONTROLS if rule in runs.rules]
        self.levels = [level for level in LEVELS if any(level in runs.levels(task) for task in runs.tasks)]

    def values(self, task: str, rule: str, level: str, figure: Figure = "success_alone") -> Floats:
        return np.array([getattr(run, figure) for run in self.runs.of(task, rule, level)], dtype=np.float64)

    def figure(self, task: str, rule: str, level: str, figure: Figure = "success_alone") -> Estimate:
        """The mean over seeds and its interval."""
        return estimate(self.values(task, rule, level, figure))

    def difference(self, task: str, rule: str, level: str, control: str = BASELINE) -> Estimate:
        """Success alone minus that of a control with as many answers, seed by seed, with its interval."""
        theirs = {run.seed: run.success_alone for run in self.runs.of(task, control, level)}
        ours = self.runs.of(task, rule, level)
        return estimate([run.success_alone - theirs[run.seed] for run in ours if run.seed in theirs])

    def probability(self, task: str, rule: str, level: str, control: str = BASELINE) -> float:
        """That a run of the rule has a higher success alone than one of the control; ties count half."""
        return probability_above(self.values(task, rule, level), self.values(task, control, level))

    def _probability_over_tasks(self, rule: str, level: str, control: str = BASELINE) -> Estimate:
        """The same, averaged over tasks."""
        ours, theirs = ([self.values(task, name, level) for task in self.runs.tasks] for name in (rule, control))
        return improvement(ours, theirs)

    def verdict(self, task: str, rule: str, level: str) -> Verdict:
        """Beside random asking; `equal` where the interval of the difference includes 0."""
        found = self.difference(task, rule, level)
        return "better" if found.low > 0 else "worse" if found.high < 0 else "equal"

    def scale(self, task: str) -> Scale:
        never, top = (self.values(task, rule, FULL) for rule in (NEVER, TOP))
        return Scale(*(float(own.mean()) if own.size else np.nan for own in (never, top)))

    def shares(self, task: str, rule: str, level: str) -> Floats:
        """Of the gap between never and DAgger, that each run closes."""
        return self.scale(task).share(self.values(task, rule, level))

    def share(self, task: str, rule: str, level: str) -> Estimate:
        return estimate(self.shares(task, rule, level))

    def _share_over_tasks(self, rule: str, level: str) -> Estimate:
        """The interquartile mean of the shares of all runs; runs are drawn within each task for the interval."""
        return stratified_estimate([self.shares(task, rule, level) for task in self.runs.tasks])


def summary(compared: Comparison, winner: str) -> dict[str, Any]:
    """`summary.json`."""
    cells, improvements = [], []
    for task in compared.runs.tasks:
        for level, budget in compared.runs.levels(task).items():
            at = {"task": task, "budget": budget, "level": level}
            for rule in compared.rules:
                own = compared.runs.of(task, rule, level)
                if own:
                    cells.append({**at, "rule": rule, **_cell(own)})
            for rule in compared.rules:
                for control in compared.controls:
                    if rule == control or not compared.runs.of(task, rule, level):
                        continue
                    improvements.append(
                        {
                            **at,
                            "rule": rule,
                            "control": control,
                            "probability": _known(compared.probability(task, rule, level, control)),
                            "difference": to_json(compared.difference(task, rule, level, control)),
                        }
                    )
    return {"winner": winner, "tasks": compared.runs.tasks, "cells": cells, "improvement": improvements}


def _known(value: float) -> float | None:
    """For JSON, which knows no NaN."""
    return value if np.isfinite(value) else None


def _cell(runs: Sequence[Run]) -> dict[str, Any]:
    names = ("answers", *FIGURES)
    return {"seeds": len(runs), **{name: interval([getattr(run, name) for run in runs]) for name in names}}


def scales(compared: Comparison) -> dict[str, Any]:
    """`scales.json`: the ends of the scale of each task, the share of it that each rule closes, and both over tasks."""
    return {
        "tasks": [
            {
                "task": task,
                "never": _known(compared.scale(task).never),
                "dagger": _known(compared.scale(task).top),
                "dagger_answers": next((run.budget for run in compared.runs.of(task, TOP, FULL)), None),
                "shares": [
                    {"rule": rule, "level": level, "share": to_json(compared.share(task, rule, level))}
                    for level in compared.runs.levels(task)
                    for rule in compared.rules
                ],
            }
            for task in compared.runs.tasks
        ],
        "over_tasks": [
            {
                "rule": rule,
                "level": level,
                "share": to_json(compared.share_over_tasks(rule, level)),
                "improvement": {
                    control: to_json(compared.probability_over_tasks(rule, level, control))
                    for control in compared.controls
                    if control != rule
                },
            }
            for level in compared.levels
            for rule in compared.rules
        ],
    }


def findings(compared: Comparison, winner: str, level: str = "middle") -> list[str]:
    """How the winner stands to each control, as sentences."""
    if level not in compared.levels or winner not in compared.rules:
        return []
    tasks = compared.runs.tasks
    said = []
    for control in compared.controls:
        if control == winner:
            continue
        chances = {task: compared.probability(task, winner, level, control) for task in tasks}
        known = {task: chance for task, chance in chances.items() if np.isfinite(chance)}
        well = [task for task, chance in known.items() if chance >= _WELL]
        badly = [task for task, chance in known.items() if chance < _BADLY]
        said.append(
            f"{spelled(winner)} over {spelled(control)} at the {level} budget: probability of improvement at least "
            f"{_WELL} on {len(well)} of {len(known)} tasks ({', '.join(well) or 'none'}), below {_BADLY} on "
            f"{len(badly)} ({', '.join(badly) or 'none'})."
        )
    ours = compared.share_over_tasks(winner, level)
    others = {rule: compared.share_over_tasks(rule, level) for rule in compared.controls if rule != winner}
    best = max(others, key=lambda rule: others[rule].mean, default="")
    if best and ours.known and others[best].known:
        said.append(
            f"Interquartile mean over tasks of the share of the gap closed at the {level} budget: {spelled(winner)} "
            f"{ours.mean:.3f}, {spelled(best)}, the best control, {others[best].mean:.3f}."
        )
    return said
