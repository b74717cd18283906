"""From run folders to the records of a study."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from apil.files import read_json, read_rows, write_json, write_text
from apil.learning.build import committee_of, make_task
from apil.learning.fidelity import expected_uncertainty
from apil.learning.metrics import PARTS, Row
from apil.studies.kind import kind_of
from apil.studies.plan import Cell
from apil.studies.statistics import interval
from apil.teachers.wrappers import committee_behind

_FIGURES = ("query_rate", "success", "intrinsic", "extrinsic", "behavioral", "model", "total")
COLUMNS = ("task", "teacher", "query", "seed", "iteration", *_FIGURES, "answers")
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
OBJECTIVE = ("query_on_progress", "no_progress")


class Result:
    """A finished run as its folder tells it."""

    def __init__(self, cell: Cell, runs: Path) -> None:
        folder = runs / cell.folder
        self.cell, self.config = cell, cell.config
        self.rows: list[Row] = read_rows(folder / "metrics.jsonl")
        self.evaluation: dict[str, Any] = read_json(folder / "evaluation.json")
        self.looks = [
            {name: look[name] for name in ("iteration", "answers", "success_alone")}
            for look in (read_json(path) for path in sorted(folder.glob("look-*.json")))
        ]
        tenth = self.config.iterations / 10
        last = [row for row in self.rows if row["iteration"] > self.config.iterations - tenth]
        first = [row for row in self.rows if row["iteration"] <= max(tenth, self.rows[0]["iteration"])]
        self.figures: dict[str, float] = {
            "query_rate": _mean(last, "query_rate", "steps"),
            "query_rate_first": _mean(first, "query_rate", "steps"),
            "query_rate_total": _mean(self.rows, "query_rate", "steps"),
            "answers": self.rows[-1]["answers"],
            "success": _mean(last, "success", "episodes"),
            "success_alone": self.evaluation["success_alone"],
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


def write_records(cells: Sequence[Cell], out: Path, thresholds: dict[str, dict[str, Any]]) -> list[Result]:
    """Writes all records of the study into `out` from the run folders under `out/runs`; returns the finished runs."""
    results = [Result(cell, out / "runs") for cell in cells]
    main = [result for result in results if result.cell.samples is None]
    sampling = [result for result in results if result.cell.samples is not None]
    write_text(out / "metrics.csv", _csv(main, COLUMNS))
    objective = [result for result in main if result.config.query.name == "apil"]
    columns = ("teacher", "query", "seed", "iteration", *OBJECTIVE)
    _write_or_remove(out / "samples.csv", sampling, (*COLUMNS, "samples"))
    _write_or_remove(out / "query_objective.csv", objective, columns)
    write_json(out / "summary.json", _summary(main))
    _write_evaluations(out / "evaluations.json", main)
    write_json(out / "teachers.json", _teachers(main))
    write_json(out / "thresholds.json", thresholds)
    return results


def _write_or_remove(path: Path, results: Sequence[Result], columns: Sequence[str]) -> None:
    """Records that this study does not have are not left over from an earlier one."""
    if results:
        write_text(path, _csv(results, columns))
    else:
        path.unlink(missing_ok=True)


def _write_evaluations(path: Path, results: Sequence[Result]) -> None:
    """What each run reached on each split, for comparisons seed by seed; only where the task has splits."""
    runs = [
        {
            "teacher": result.config.teachers.name,
            "query": result.cell.query,
            "seed": result.config.seed,
            "answers": result.figures["answers"],
            "splits": result.splits,
            "looks": result.looks,
        }
        for _, own in _by(results)
        for result in sorted(own, key=lambda r: r.config.seed)
        if result.splits
    ]
    if runs:
        write_json(path, {"runs": runs})
    else:
        path.unlink(missing_ok=True)


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
            writer.writerow([_shown((named | row).get(column)) for column in columns])
    return text.getvalue()


def _shown(value: object) -> object:
    if value is None:
        return "nan"
    return f"{value:.9g}" if isinstance(value, float) else value


def _by(results: Sequence[Result]) -> list[tuple[tuple[str, str], list[Result]]]:
    """The results of each (teacher, query), over seeds."""

    def key(result: Result) -> tuple[str, str]:
        return result.config.teachers.name, result.cell.query

    return [(name, list(group)) for name, group in groupby(sorted(results, key=key), key=key)]


def _over_seeds(results: Sequence[Result], figure: Callable[[Result], float]) -> dict[str, Any]:
    return dict(interval([figure(result) for result in results]))


def _summary(results: Sequence[Result]) -> dict[str, Any]:
    first = results[0].config
    return {
        "task": first.task.name,
        "seeds": len({result.config.seed for result in results}),
        "iterations": first.iterations,
        "expectation": first.model.expectation,
        "samples": first.model.samples if first.model.expectation == "monte-carlo" else None,
        "models": first.model.models,
        "unit": "bits" if make_task(first).box is None else "variance",
        "cells": [
            {
                "teacher": teacher,
                "query": query,
                "seeds": len(own),
                **{name: _over_seeds(own, lambda r, name=name: r.figures[name]) for name in own[0].figures},  # type: ignore[misc]
                **_splits(own),
            }
            for (teacher, query), own in _by(results)
        ],
        "personas": [
            {
                "teacher": teacher,
                "query": query,
                "persona_js": _over_seeds(own, lambda r: r.evaluation["teacher_model"]["persona_js"]),
            }
            for (teacher, query), own in _by(results)
            if own[0].evaluation["teacher_model"]["persona_js"] is not None
        ],
        **kind_of(first.task.name).summary([result.config for result in results]),
    }


def _splits(own: Sequence[Result]) -> dict[str, Any]:
    """The figures of each split over seeds; nothing where a task has no splits."""
    splits = {
        split: {
            figure: _over_seeds(own, lambda r, split=split, figure=figure: r.splits[split][figure])  # type: ignore[misc]
            for figure in SPLIT_FIGURES
        }
        for split in own[0].splits
    }
    return {"splits": splits} if splits else {}


def _teachers(results: Sequence[Result]) -> dict[str, Any]:
    first = results[0].config
    task = make_task(first)
    samples = first.model.samples if first.model.expectation == "monte-carlo" else None
    starts = kind_of(first.task.name).starts
    found = {result.config.teachers.name: committee_behind(committee_of(result.config)) for result in results}
    # An agent that has learned its teachers perfectly is known where the teachers are.
    teachers = {name: committee for name, committee in found.items() if committee is not None}
    return {
        "expectations": [
            {"teacher": name, **expected_uncertainty(task, committee, episodes=starts)}
            for name, committee in sorted(teachers.items())
        ],
        # What the estimator in use shows for the same perfect copy.
        "estimates": [
            {"teacher": name, **expected_uncertainty(task, committee, samples, starts)}
            for name, committee in sorted(teachers.items())
            if samples is not None
        ],
        "models": [
            {
                "teacher": result.config.teachers.name,
                "query": result.cell.query,
                "seed": result.config.seed,
                **result.evaluation["teacher_model"],
            }
            for _, own in _by(results)
            for result in sorted(own, key=lambda r: r.config.seed)
        ],
    }
