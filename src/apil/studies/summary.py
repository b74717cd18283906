"""From run folders to the records of a study."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

from apil.files import read_json, read_rows, write_json, write_text
from apil.learning.build import committee_of, make_task
from apil.learning.fidelity import expected_uncertainty
from apil.learning.metrics import PARTS, Row
from apil.studies.kind import kind_of
from apil.studies.plan import Cell
from apil.studies.records import METRICS
from apil.studies.statistics import interval
from apil.teachers.wrappers import committee_behind

COLUMNS = ("task", "teacher", "query", "seed", "iteration", *METRICS)
SPLIT_FIGURES = (
    "success_alone",
    "success_with_help",
    "oracle_success",
    "spl",
    "ndtw",
    "navigation_error",
    "path_length",
    "query_rate",
    "query_rate_with_help",
)
"""Of each split, where a task has splits."""
OBJECTIVE = ("teacher", "query", "seed", "iteration", "query_on_progress", "no_progress")


class Result:
    """A finished run as its folder tells it."""

    def __init__(self, cell: Cell, runs: Path) -> None:
        folder = runs / cell.folder
        self.cell, self.config = cell, cell.config
        self.names: dict[str, Any] = {
            "teacher": cell.config.teachers.name,
            "query": cell.query,
            "seed": cell.config.seed,
        }
        self.rows: list[Row] = read_rows(folder / "metrics.jsonl")
        self.evaluation: dict[str, Any] = read_json(folder / "evaluation.json")
        self.looks = [
            {name: look[name] for name in ("iteration", "answers", "success_alone")}
            for look in (read_json(path) for path in sorted(folder.glob("look-*.json")))
        ]
        self.iterations: int = self.rows[-1]["iteration"]
        """That it took."""
        tenth = self.iterations / 10
        last = [row for row in self.rows if row["iteration"] > self.iterations - tenth]
        first = [row for row in self.rows if row["iteration"] <= max(tenth, self.rows[0]["iteration"])]
        self.figures: dict[str, float] = {
            "query_rate": _mean(last, "query_rate", "steps"),
            "query_rate_first": _mean(first, "query_rate", "steps"),
            "query_rate_total": _mean(self.rows, "query_rate", "steps"),
            "answers": self.rows[-1]["answers"],
            "success": _mean(last, "success", "episodes"),
            "success_alone": self.evaluation["success_alone"],
            **{name: self.evaluation[name] for name in ("success_greedy",) if name in self.evaluation},
            "success_with_help": self.evaluation["success_with_help"],
            "query_rate_alone": self.evaluation["query_rate"],
            **{part: _mean(last, part, "steps") for part in PARTS},
        }
        self.splits: dict[str, dict[str, float]] = {
            split: {figure: measured[figure] for figure in SPLIT_FIGURES}
            for split, measured in self.evaluation.get("splits", {}).items()
        }


def _mean(rows: Sequence[Row], figure: str, weight: str) -> float:
    """The average over steps (or episodes) of rows that each average their own."""
    return float(sum(row[figure] * row[weight] for row in rows) / sum(row[weight] for row in rows))


def write_records(
    cells: Sequence[Cell],
    out: Path,
    thresholds: dict[str, dict[str, Any]],
    added: Mapping[str, Any] = MappingProxyType({}),
    of_cells: Mapping[tuple[str, str], Mapping[str, Any]] = MappingProxyType({}),
) -> list[Result]:
    """Writes all records of the study into `out` from the run folders under `out/runs`; returns the finished runs.

    `added` goes to the top level of summary.json, and `of_cells` to its cells, by teacher and query policy.
    """
    results = [Result(cell, out / "runs") for cell in cells]
    main = [result for result in results if result.cell.samples is None]
    sampling = [result for result in results if result.cell.samples is not None]
    objective = [result for result in main if result.config.query.name == "apil"]
    ordered = sorted(main, key=lambda result: tuple(result.names.values()))
    runs = [
        {**result.names, "answers": result.figures["answers"], "splits": result.splits, "looks": result.looks}
        for result in ordered
        if result.splits
    ]
    write_text(out / "metrics.csv", _csv(main, COLUMNS))
    for name, own, columns in (
        ("samples.csv", sampling, (*COLUMNS, "samples")),
        ("query_objective.csv", objective, OBJECTIVE),
    ):
        if own:
            write_text(out / name, _csv(own, columns))
        else:  # not left over from an earlier study
            (out / name).unlink(missing_ok=True)
    if runs:
        write_json(out / "evaluations.json", {"runs": runs})
    of_task = kind_of(main[0].config.task.name).summary([result.config for result in main])
    summary = _summary(ordered)
    summary["cells"] = [{**cell, **of_cells.get((cell["teacher"], cell["query"]), {})} for cell in summary["cells"]]
    write_json(out / "summary.json", {**summary, **of_task, **added})
    write_json(out / "teachers.json", _teachers(ordered))
    write_json(out / "thresholds.json", thresholds)
    return results


def _csv(results: Sequence[Result], columns: Sequence[str]) -> str:
    """Sorted rows, floats with 9 significant digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    keys = ("task", "teacher", "query", "seed")
    for result in sorted(results, key=lambda r: (*map(r.config.value, keys), r.cell.folder)):
        named = {key: result.config.value(key) for key in keys}
        named |= {"samples": result.cell.samples, "query": result.cell.query}
        for row in result.rows:
            values = [math.nan if (value := (named | row).get(column)) is None else value for column in columns]
            writer.writerow([f"{value:.9g}" if isinstance(value, float) else value for value in values])
    return text.getvalue()


def _summary(results: Sequence[Result]) -> dict[str, Any]:
    first = results[0].config
    groups = groupby(results, key=lambda result: {key: result.names[key] for key in ("teacher", "query")})
    cells = [(names, list(own)) for names, own in groups]
    return {
        "task": first.task.name,
        "seeds": len({result.config.seed for result in results}),
        "iterations": max(result.iterations for result in results),
        "expectation": first.model.expectation,
        "samples": first.model.samples if first.model.expectation == "monte-carlo" else None,
        "models": first.model.models,
        "unit": "bits" if make_task(first).box is None else "variance",
        "cells": [{**names, "seeds": len(own), **_over_seeds(own)} for names, own in cells],
        "personas": [
            {**names, "persona_js": interval([r.evaluation["teacher_model"]["persona_js"] for r in own])}
            for names, own in cells
            if own[0].evaluation["teacher_model"]["persona_js"] is not None
        ],
    }


def _over_seeds(own: Sequence[Result]) -> dict[str, Any]:
    """The figures of a cell, and of each split where a task has splits."""
    # Older runs were not measured in every way; what some runs lack is missing for the cell.
    there = [name for name in own[0].figures if all(name in result.figures for result in own)]
    figures = {name: interval([result.figures[name] for result in own]) for name in there}
    splits = {
        split: {name: interval([result.splits[split][name] for result in own]) for name in SPLIT_FIGURES}
        for split in own[0].splits
    }
    return {**figures, "splits": splits} if splits else dict(figures)


def _teachers(results: Sequence[Result]) -> dict[str, Any]:
    first = results[0].config
    task = make_task(first)
    found = {result.config.teachers.name: committee_behind(committee_of(result.config)) for result in results}

    def perfect(samples: int | None) -> list[dict[str, Any]]:
        """An agent that has learned its teachers perfectly, where they are known."""
        starts = kind_of(first.task.name).starts
        known = ((name, committee) for name, committee in sorted(found.items()) if committee is not None)
        return [{"teacher": name, **expected_uncertainty(task, own, samples, starts)} for name, own in known]

    return {
        "expectations": perfect(None),
        "estimates": perfect(first.model.samples) if first.model.expectation == "monte-carlo" else [],
        "models": [{**result.names, **result.evaluation["teacher_model"]} for result in results],
    }
