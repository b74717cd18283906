"""A made-up study folder for the tests of tables, figures and report: no training, the shape of a real one."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from apil.studies.records import QUERIES, TEACHERS
from apil.studies.statistics import interval

_EXPECTED = {"detm": (0.0, 0.0), "rand": (0.727, 0.0), "tworand": (0.727, 0.0), "twodifdetm": (0.0, 0.727)}
_KINDS = ("intrinsic", "extrinsic", "behavioral", "model", "total")
_CELL_FIGURES = ("query_rate", "query_rate_total", "answers", "success", "success_alone", *_KINDS)


class StudyWriter:
    """Writes a made-up study with the shape of a real one: uncertainty rules are misled, `apil` is not."""

    def __init__(self, folder: Path, task: str, seeds: int, iterations: int) -> None:
        self.folder, self.task, self.seeds = folder, task, seeds
        self.iterations = np.linspace(iterations / 50, iterations, 50).astype(int)
        self.progress = np.arange(1, 51) / 50
        self.rng = np.random.default_rng(3)
        folder.mkdir(parents=True, exist_ok=True)

    def noisy(self, curve: Any) -> Any:
        return np.clip(curve + self.rng.normal(0, 0.02, 50), 0, None)

    def query_rate(self, teacher: str, query: str) -> Any:
        intrinsic, extrinsic = _EXPECTED[teacher]
        fixed = {"bc": 1.0, "dagger": 1.0, "never": 0.0, "random": 0.3}
        if query in fixed:
            return np.full(50, fixed[query])
        floor = {"intrun": intrinsic, "behvun": intrinsic + extrinsic / 3, "extrun": extrinsic / 2}
        end = floor.get(query, 0.9 * intrinsic if query == "errpred" else 0.0)
        return np.clip(self.noisy(end + (1 - end) * np.exp(-8 * self.progress)), 0, 1)

    def run(self, teacher: str, query: str) -> dict[str, Any]:
        """The curves of one run."""
        intrinsic, extrinsic = _EXPECTED[teacher]
        rate = self.query_rate(teacher, query)
        answers = np.round(np.cumsum(rate) * np.diff(self.iterations, prepend=0).mean() * 8)
        learned = 1 - np.exp(-answers / 300)
        curves = {
            "query_rate": rate,
            "success": np.ones(50) if self.task == "grid" else np.clip(0.15 + 0.8 * learned, 0, 1),
            "intrinsic": self.noisy(intrinsic * learned + (0.75 * (1 - learned) if query != "never" else 0.7)),
            "extrinsic": self.noisy(extrinsic * learned * 0.8),
            "model": self.noisy(0.05 * (1 - learned) + 0.2 * extrinsic * learned),
            "answers": answers,
        }
        curves["behavioral"] = curves["intrinsic"] + curves["extrinsic"]
        curves["total"] = curves["behavioral"] + curves["model"]
        return curves

    def csv(self, name: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        with (self.folder / name).open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])

    def json(self, name: str, data: Any) -> None:
        (self.folder / name).write_text(json.dumps(data))

    def rows(self, curves: dict[str, Any], names: Sequence[str], before: Sequence[Any]) -> list[list[Any]]:
        return [[*before, it, *(curves[n][i] for n in names)] for i, it in enumerate(self.iterations)]


_LOGGED = ("query_rate", "success", *_KINDS, "answers")
HEADER = ("task", "teacher", "query", "seed", "iteration", *_LOGGED)


def write_study(
    folder: Path,
    *,
    task: str = "grid",
    teachers: Sequence[str] = TEACHERS,
    queries: Sequence[str] = QUERIES,
    seeds: int = 5,
    iterations: int = 1000,
    optional: bool = True,
) -> Path:
    """A made-up study folder; without `optional` only the two files that every study has."""
    writer = StudyWriter(folder, task, seeds, iterations)
    rows: list[list[Any]] = []
    cells: list[dict[str, Any]] = []
    for teacher in teachers:
        for query in queries:
            runs = [writer.run(teacher, query) for _ in range(seeds)]
            for seed, run in enumerate(runs):
                rows += writer.rows(run, _LOGGED, (task, teacher, query, seed))
            cells.append({"teacher": teacher, "query": query, "seeds": seeds, **_figures(runs)})
    writer.csv("metrics.csv", HEADER, rows)
    about = {"task": task, "seeds": seeds, "iterations": iterations, "expectation": "exact"}
    writer.json("summary.json", {**about, "cells": cells, "personas": []})
    if optional:
        _write_optional(writer, teachers, queries)
    return folder


def _figures(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    last = {name: [float(run[name][-5:].mean()) for run in runs] for name in _LOGGED}
    last["answers"] = [float(run["answers"][-1]) for run in runs]
    last["query_rate_total"] = [float(run["query_rate"].mean()) for run in runs]
    last["success_alone"] = [float(run["success"][-1]) for run in runs]
    return {name: interval(last[name]) for name in _CELL_FIGURES}


def _write_optional(writer: StudyWriter, teachers: Sequence[str], queries: Sequence[str]) -> None:
    samples: list[list[Any]] = []
    for count in ("1", "5", "10", "20", "50", "exact"):
        error = 0.0 if count == "exact" else 0.3 / int(count)
        for seed in range(writer.seeds):
            run = writer.run("twodifdetm", "dagger")
            run["model"] = 0.03 * np.exp(-3 * writer.progress) + error * writer.progress
            run["model"] = run["model"] * writer.rng.uniform(0.9, 1.1, 50)
            rows = writer.rows(run, _LOGGED, (writer.task, "twodifdetm", "dagger", seed))
            samples += [[*row, count] for row in rows]
    writer.csv("samples.csv", (*HEADER, "samples"), samples)
    objective: list[list[Any]] = []
    for teacher in teachers:
        for seed in range(writer.seeds):
            fall = writer.noisy(np.exp(-5 * writer.progress))
            curves = {"query_on_progress": fall * 0.4, "no_progress": fall * 0.6}
            objective += writer.rows(curves, list(curves), (teacher, "apil", seed))
    header = ("teacher", "query", "seed", "iteration", "query_on_progress", "no_progress")
    writer.csv("query_objective.csv", header, objective)
    models = [_model(writer, t, q, s) for t in teachers for q in queries for s in range(writer.seeds)]
    names = [{"teacher": t, "intrinsic": _EXPECTED[t][0], "extrinsic": _EXPECTED[t][1]} for t in teachers]
    writer.json("teachers.json", {"expectations": names, "models": models})
    writer.json("thresholds.json", {"intrun": {"threshold": 0.1, "how": "Found on detm."}})


def _model(writer: StudyWriter, teacher: str, query: str, seed: int) -> dict[str, Any]:
    count = 2 if teacher.startswith("two") else 1
    base = writer.rng.normal(size=50)
    apart = (2.0 if teacher == "twodifdetm" else 0.3) * np.eye(50)[:count]
    return {
        "teacher": teacher,
        "query": query,
        "seed": seed,
        "members": ["first", "last"][:count],
        "personas": (base + apart).tolist(),
        "persona_js": None if count == 1 else 0.6 if teacher == "twodifdetm" else 0.004,
        "mixture_js": 0.01,
        "identity_calibration_error": None if count == 1 else 0.02,
        "identity_mean": [1 / count] * count,
        "identity_true": [1 / count] * count,
    }
