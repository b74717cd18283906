"""The runs of the benchmark: every rule with every budget, task and seed, and the two ends of the scale."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from apil.runs.calibration import load_calibration
from apil.studies.budget.definition import BASELINE, TOP, Benchmark, BudgetTask
from apil.studies.files import StudyFile, TaskEntry, own_plan
from apil.studies.plan import Cell

FULL = "full"
"""The level of the top of the scale."""
_SETTINGS = {"answers": False}
"""Answers are in the store; a log of them beside it would take as long to write as they take to learn."""


@dataclass(frozen=True)
class Planned:
    """A run of the benchmark."""

    task: BudgetTask
    level: str
    """A budget; `full` for the top of the scale, '' for a run that never asks."""
    cell: Cell

    @property
    def budget(self) -> int:
        assert self.cell.point is not None
        return self.cell.point


def planned(benchmark: Benchmark) -> list[Planned]:
    """All runs, those of a task side by side."""
    return [run for task in benchmark.tasks for run in _of_task(benchmark, task)]


def _of_task(benchmark: Benchmark, task: BudgetTask) -> Iterator[Planned]:
    file = task.file
    levels = {file.budgets.of(level): level for level in task.levels}
    entry = TaskEntry(name=file.task, label=task.label, options=file.options)
    study: dict[str, Any] = {
        "tasks": (entry,),
        "teachers": (file.teacher,),
        "settings": {**_SETTINGS, **file.settings},
        "seeds": len(task.seeds),
        "first_seed": task.seeds[0],
        "episodes": benchmark.shared.episodes,
    }
    compared = StudyFile(**study, rules=benchmark.rules, answers=tuple(levels), baseline=BASELINE)
    top = StudyFile(**study, rules=(benchmark.rule(TOP),), answers=(file.full,))
    calibration = load_calibration(None)
    beside = [rule.query for rule in benchmark.shared.rules]
    for cell in own_plan(compared, entry, calibration, task.path, beside):
        yield Planned(task, levels.get(cell.point or 0, ""), cell)
    for cell in own_plan(top, entry, calibration, task.path, beside):
        yield Planned(task, FULL, cell)
