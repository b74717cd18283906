"""Rules at the same numbers of answers: what each reaches alone, beside a baseline with as many.

Each number has runs of its own, which ask exactly that many questions and then learn until that no longer helps: it is
what a user with that budget gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apil.errors import plural
from apil.files import read_json, write_bytes, write_json, write_text
from apil.studies.bill import write_bill
from apil.studies.figures import ANSWER_PLATES, render
from apil.studies.files import StudyFile
from apil.studies.findings import at_equal_answers
from apil.studies.headline import headline
from apil.studies.interactions import gates_of
from apil.studies.pages import page
from apil.studies.plan import Cell
from apil.studies.records import cells_of, of_cells_alone
from apil.studies.report import build_report, shown_figures
from apil.studies.statistics import mean_over_strata, to_json
from apil.studies.summary import Result, write_records
from apil.studies.tables import answers_table

RUNS = "answers.json"
"""The file with the figures of each run."""


@dataclass(frozen=True)
class Measured:
    """A run that was measured alone, on episodes that are those of its seed whatever the rule."""

    task: str
    teacher: str
    query: str
    seed: int
    answers: int
    """That it could have."""
    answers_had: int
    success_alone: float
    success_greedy: float | None
    iterations: int

    @staticmethod
    def of(result: Result, task: str) -> Measured:
        assert result.cell.point is not None
        return Measured(
            task,
            **result.names,
            answers=result.cell.point,
            answers_had=int(result.figures["answers"]),
            success_alone=result.figures["success_alone"],
            success_greedy=result.figures.get("success_greedy"),
            iterations=result.iterations,
        )


def write_points(study: StudyFile, cells: Sequence[Cell], folder: Path, label: str, workers: int) -> list[Measured]:
    """Writes the records, tables, figures and report of one task; returns its runs."""
    measured = [Measured.of(Result(cell, folder / "runs"), label) for cell in cells]
    last = {rule.label: study.points(rule)[-1] for rule in study.rules}
    ends = [cell for cell in cells if cell.point == last[cell.query]]
    own = {(cell["teacher"], cell["query"]): cell for cell in _cells(study, measured)}
    _write_runs(study, measured, folder)
    write_records(ends, folder, gates_of(study, cells), {"baseline": study.baseline}, own)
    write_bill(folder, {label: cells}, study.costs)
    build_report(folder, workers)
    return measured


def _write_runs(study: StudyFile, measured: Sequence[Measured], folder: Path) -> None:
    runs = [asdict(run) for run in measured]
    write_json(folder / RUNS, {"baseline": study.baseline, "answers": list(study.answers), "runs": runs})


def _cells(study: StudyFile, measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """Each teacher and rule at each number of answers, over all tasks."""
    cells = []
    for teacher in study.teachers:
        runs = [run for run in measured if run.teacher == teacher]
        for rule in study.rules:
            entries = [
                _entry(study, [run for run in runs if run.answers == point], rule.label) for point in study.points(rule)
            ]
            asking = rule.asking_of(study.settings.get("asking", "live"))
            named = {"teacher": teacher, "query": rule.label, "rule": rule.query, "asking": asking}
            cells.append({**named, "seeds": study.seeds, "at": entries})
    return cells


def _entry(study: StudyFile, runs: Sequence[Measured], query: str) -> dict[str, Any]:
    """A rule at one number of answers, among the `runs` with as many."""
    strata = [[run for run in runs if run.task == task.label] for task in study.tasks]
    ours = [[run for run in own if run.query == query] for own in strata]
    names = ("answers_had", "success_alone", "success_greedy")
    figures = {name: to_json(mean_over_strata([_values(own, name) for own in ours])) for name in names}
    apart = [[] if query == study.baseline else _apart(own, query, study.baseline) for own in strata]
    return {
        "answers": next(own[0].answers for own in ours if own),
        **figures,
        "difference": to_json(mean_over_strata(apart)),
    }


def _values(runs: Sequence[Measured], name: str) -> list[float]:
    return [np.nan if (value := getattr(run, name)) is None else value for run in runs]


def _apart(runs: Sequence[Measured], query: str, baseline: str) -> list[float]:
    """Success alone of a rule minus that of the baseline, of each seed that both have."""
    theirs = {run.seed: run.success_alone for run in runs if run.query == baseline}
    return [run.success_alone - theirs[run.seed] for run in runs if run.query == query and run.seed in theirs]


def write_pooled(study: StudyFile, measured: Sequence[Measured], out: Path, name: str) -> None:
    """Writes the same over all tasks, and a page that leads to the report of each task."""
    cells = _cells(study, measured)
    tasks = [task.label for task in study.tasks]
    about = {"study": name, "tasks": tasks, "seeds": study.seeds, "baseline": study.baseline}
    _write_runs(study, measured, out)
    write_json(out / "summary.json", {**about, "cells": cells})
    report_pooled(out)


def report_pooled(out: Path) -> None:
    """Writes the table, the figures and the page over all tasks from `summary.json` in the study's folder."""
    found = read_json(out / "summary.json")
    name, tasks, seeds = found["study"], found["tasks"], found["seeds"]
    records = of_cells_alone(out, name, seeds, found["baseline"], cells_of(found["cells"]))
    table = answers_table(records, f"Tasks: {', '.join(tasks)}. {plural(seeds, 'seed')} of each.")
    write_text(out / f"{table.name}.md", table.markdown())
    drawn = [(plate, render(plate, records)) for plate in ANSWER_PLATES]
    for plate, formats in drawn:
        for ending, data in formats.items():
            write_bytes(out / f"{plate.name}.{ending}", data)
    shown = shown_figures(records, drawn)
    values = {
        "title": f"Rules at equal numbers of answers: {name}",
        "tasks": tasks,
        "table": table,
        "headline": headline(records, [each.name for each in shown]),
        "leading": shown[0] if shown else None,
        "figures": shown[1:],
        "findings": at_equal_answers(records),
    }
    write_text(out / "report.html", page("comparison", **values))
