"""What a study of your own records beyond the paper's: success for interactions, and what the teachers cost.

An interaction is one question that was answered. Success over training is with the help that was asked for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from apil.files import read_rows
from apil.learning.build import committee_of
from apil.studies.files import StudyFile
from apil.studies.statistics import Estimate, Floats, area_under, estimate, improvement, needed, stratified_estimate
from apil.studies.summary import Result

Stratum = tuple[str, str]
"""A task and a teacher."""


class Spent:
    """What one run used of its teachers, and what came of it."""

    def __init__(self, result: Result, runs: Path, costs: Mapping[str, float]) -> None:
        self.teacher, self.query, self.seed = result.config.teachers.name, result.cell.query, result.config.seed
        self.interactions: Floats = np.array([row["answers"] for row in result.rows], dtype=np.float64)
        self.success: Floats = np.array([row["success"] for row in result.rows], dtype=np.float64)
        self.success_alone: float = result.evaluation["success_alone"]
        members = committee_of(result.config).members
        given: Counter[int] = Counter()
        if result.config.answers:
            rows = read_rows(runs / result.cell.folder / "answers.jsonl")
            given.update(row["identity"] for row in rows if row["identity"] is not None)
        names = member_names(members)
        self.answers = {name: given[k] for k, name in enumerate(names)} if result.config.answers else {}
        """By member."""
        self.cost = {
            name: given[k] * costs.get(name, costs.get(members[k], 1.0)) for k, name in enumerate(self.answers)
        }


def member_names(members: Sequence[str]) -> list[str]:
    """A name for each member of a committee; those that share one are numbered: uniform, uniform-2."""
    return [
        name if members[:k].count(name) == 0 else f"{name}-{members[:k].count(name) + 1}"
        for k, name in enumerate(map(str, members))
    ]


def records(study: StudyFile, results: Sequence[Result], runs: Path) -> dict[str, Any]:
    """`interactions.json`: for each teacher and rule the figures over seeds, beside the baseline's."""
    spent = [Spent(result, runs, study.costs) for result in results]
    entries = []
    for teacher in study.teachers:
        own = [run for run in spent if run.teacher == teacher]
        limit = study.area_to or max(run.interactions[-1] for run in own)
        against = [run for run in own if run.query == study.baseline]
        for rule in study.rules:
            ours = [run for run in own if run.query == rule.label]
            entries.append({"teacher": teacher, "query": rule.label, **_figures(study, ours, against, float(limit))})
    return {"baseline": study.baseline, "reach": list(study.reach), "entries": entries}


def _figures(study: StudyFile, ours: Sequence[Spent], against: Sequence[Spent], limit: float) -> dict[str, Any]:
    areas = [area_under(run.interactions, run.success, limit) for run in ours]
    alone = [run.success_alone for run in ours]
    better = improvement([alone], [[run.success_alone for run in against]])
    members = list(ours[0].answers)
    return {
        "area_to": limit,
        "area": _json(stratified_estimate([areas])),
        "success_alone": _json(stratified_estimate([alone])),
        "improvement": _json(better),
        "needed": [_reached(ours, level) for level in study.reach],
        "answers": {name: _json(estimate([run.answers[name] for run in ours])) for name in members},
        "cost": {name: _json(estimate([run.cost[name] for run in ours])) for name in members},
        "total_cost": _json(estimate([sum(run.cost.values()) for run in ours])) if members else None,
        "runs": [
            {
                "seed": run.seed,
                "area": area if math.isfinite(area) else None,
                "success_alone": run.success_alone,
                "cost": sum(run.cost.values()) if members else None,
            }
            for run, area in zip(ours, areas, strict=True)
        ],
    }


def _reached(runs: Sequence[Spent], level: float) -> dict[str, Any]:
    """Interactions to a level of success, over the runs that reached it, and the share of those."""
    found = [needed(run.interactions, run.success, level) for run in runs]
    return {"level": level, "reached": float(np.isfinite(found).mean()), **_json(estimate(found))}


def _json(figure: Estimate) -> dict[str, float | None]:
    values = {"mean": figure.mean, "low": figure.low, "high": figure.high}
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def comparison(study: StudyFile, of_tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """`comparison.json`: each rule over all tasks and teachers; `of_tasks` are the `records` of each task by label."""
    strata: list[Stratum] = [(task, teacher) for task in of_tasks for teacher in study.teachers]

    def values(query: str, figure: str) -> list[list[float]]:
        found = {
            (task, entry["teacher"]): [run[figure] for run in entry["runs"]]
            for task, records_ in of_tasks.items()
            for entry in records_["entries"]
            if entry["query"] == query
        }
        return [found[stratum] for stratum in strata]

    def over(query: str, statistic: Callable[[str, str], Estimate]) -> dict[str, Any]:
        return {figure: _json(statistic(query, figure)) for figure in ("success_alone", "area")}

    rules = [
        {
            "query": rule.label,
            "iqm": over(rule.label, lambda query, figure: stratified_estimate(values(query, figure))),
            "improvement": over(
                rule.label,
                lambda query, figure: improvement(values(query, figure), values(study.baseline, figure)),
            ),
        }
        for rule in study.rules
    ]
    return {"baseline": study.baseline, "strata": [list(stratum) for stratum in strata], "rules": rules}
