"""The results of a study of your own: a report for each task, and one table over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from apil.files import write_json, write_text
from apil.studies.files import StudyFile
from apil.studies.interactions import comparison, records
from apil.studies.pages import page
from apil.studies.plan import Cell
from apil.studies.report import build_report
from apil.studies.statistics import from_json
from apil.studies.summary import write_records
from apil.studies.tables import NOTHING, Table, TableBlock, shown


def write_task(study: StudyFile, cells: Sequence[Cell], folder: Path, workers: int) -> dict[str, Any]:
    """Writes the records, tables, figures and report of one task; returns what `interactions.json` holds."""
    results = write_records(cells, folder, _gates(study, cells))
    found = records(study, results, folder / "runs")
    write_json(folder / "interactions.json", found)
    build_report(folder, workers)
    return found


def _gates(study: StudyFile, cells: Sequence[Cell]) -> dict[str, dict[str, Any]]:
    """The thresholds and budgets in force, by rule."""
    gates = {}
    for rule in study.rules:
        config = next(cell.config for cell in cells if cell.query == rule.label)
        value = config.query.budget if config.query.threshold is None else config.query.threshold
        if value is not None:
            gates[rule.label] = {"threshold": value, "how": rule.how()}
    return gates


def write_comparison(study: StudyFile, of_tasks: Mapping[str, Mapping[str, Any]], out: Path, name: str) -> None:
    """Writes `comparison.json`, its table, and a page that leads to the report of each task."""
    found = comparison(study, of_tasks)
    table = comparison_table(study, found, list(of_tasks))
    write_json(out / "comparison.json", found)
    write_text(out / f"{table.name}.md", table.markdown())
    write_text(out / "report.html", page("comparison", title=f"The study {name}", tasks=list(of_tasks), table=table))


def comparison_table(study: StudyFile, found: Mapping[str, Any], tasks: Sequence[str]) -> Table:
    """Each rule over all tasks and teachers, beside the baseline."""
    header = ("rule", "success alone", "area under success", f"better than {study.baseline}: success alone", "area")
    rows = []
    for rule in found["rules"]:
        figures = [shown(from_json(rule["iqm"][figure])) for figure in ("success_alone", "area")]
        better = [shown(from_json(rule["improvement"][figure]), 2) for figure in ("success_alone", "area")]
        rows.append((rule["query"], *figures, *(better if rule["query"] != study.baseline else [NOTHING] * 2)))
    notes = (
        f"Tasks: {', '.join(tasks)}. Teachers: {', '.join(study.teachers)}. {study.seeds} seeds of each.",
        "Success alone and area: interquartile mean over all runs, with a 95 % bootstrap interval stratified by task "
        "and teacher.",
        f"Better than {study.baseline}: the probability that a run of the rule does better than a run of "
        f"{study.baseline} with the same task and teacher, averaged over these; 0.5 is no difference.",
    )
    return Table(
        "table_comparison", "All rules over all tasks and teachers", notes, (TableBlock("Rules", header, tuple(rows)),)
    )
