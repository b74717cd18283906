"""Tables state what was measured, beside what was expected and what the paper prints."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apil.errors import ApilError
from apil.studies.records import QUERIES, TEACHERS, read_study
from apil.studies.statistics import interval
from apil.studies.tables import all_tables, queries_table, teachers_table, uncertainty_table

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
_HEADER = ("task", "teacher", "query", "seed", "iteration", *_LOGGED)


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
    writer.csv("metrics.csv", _HEADER, rows)
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
    writer.csv("samples.csv", (*_HEADER, "samples"), samples)
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


@pytest.fixture(scope="module")
def study_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("study"))


def test_uncertainty_stands_beside_expectation_and_paper_for_every_trainer(study_folder: Path) -> None:
    text = uncertainty_table(read_study(study_folder)).markdown()
    assert "| expectation | 0.000 | 0.727 | 0.727 | 0.000 |" in text
    assert "| paper | 0.04 | 0.72 | 0.72 | 0.05 |" in text
    assert "| paper | 0.00 | 0.00 | 0.00 | 0.56 |" in text
    assert all(text.count(f"| {query} |") == 2 for query in QUERIES)
    for said in ("exact", "5 seeds", "1,000 training iterations", "bits", "last tenth of training"):
        assert said in text


def test_a_figure_whose_interval_misses_the_papers_number_is_marked(tmp_path: Path) -> None:
    folder = write_study(tmp_path, teachers=["rand"], queries=["dagger", "bc"], optional=False)
    summary = json.loads((folder / "summary.json").read_text())
    for cell, low in zip(summary["cells"], (0.70, 0.80), strict=True):
        cell["intrinsic"] = {"mean": low + 0.02, "low": low, "high": low + 0.04}
        cell["extrinsic"] = {"mean": 0.004, "low": 0.004, "high": 0.004}
    (folder / "summary.json").write_text(json.dumps(summary))
    intrinsic, extrinsic = uncertainty_table(read_study(folder)).grids
    assert ("dagger", "0.720 [0.700, 0.740]") in intrinsic.rows
    assert ("bc", "0.820 [0.800, 0.840] ≠") in intrinsic.rows
    assert ("bc", "0.004 [0.004, 0.004]") in extrinsic.rows, "0.004 rounds to the paper's 0.00"


def test_a_task_outside_the_paper_has_no_row_for_it(tmp_path: Path) -> None:
    text = uncertainty_table(read_study(write_study(tmp_path, task="maze", optional=False))).markdown()
    assert "| paper |" not in text
    assert "| expectation | 0 | > 0 | > 0 | 0 |" in text, "without records only the sign is known"


def test_questions_are_listed_for_each_teacher_and_policy(study_folder: Path) -> None:
    table = queries_table(read_study(study_folder))
    assert [grid.heading for grid in table.grids] == [f"Teacher {teacher}" for teacher in TEACHERS]
    first = table.grids[0]
    assert [row[0] for row in first.rows] == list(QUERIES)
    dagger = dict(zip(first.header, first.rows[1], strict=True))
    assert dagger["query rate, last tenth"] == "1.000 [1.000, 1.000]"
    assert dagger["answers, whole run"] == "8,000 [8,000, 8,000]"
    assert "success with help" not in first.header, "a figure that no cell has gets no column"


def test_teachers_are_told_to_be_the_same_or_not(study_folder: Path) -> None:
    table = teachers_table(read_study(study_folder))
    grids = {grid.heading.split()[1].rstrip(":"): grid for grid in table.grids}
    assert "in truth they differ" in grids["twodifdetm"].heading
    assert "in truth they are the same" in grids["tworand"].heading
    assert grids["twodifdetm"].rows[0][1] == "0.600 [0.600, 0.600]"
    assert grids["detm"].rows[0][1] == "–"


def test_a_study_without_teacher_records_has_the_other_tables(tmp_path: Path) -> None:
    tables = all_tables(read_study(write_study(tmp_path, optional=False)))
    assert [table.name for table in tables] == ["table_uncertainty", "table_queries"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("summary.json", "{", "not JSON"),
        ("summary.json", "{}", "not as expected"),
        ("summary.json", "[]", "not an object"),
        ("metrics.csv", "teacher,query\n", "lacks the columns"),
        ("metrics.csv", ",".join(_HEADER) + "\ngrid,detm,bc,0,20" + ",x" * 8 + "\n", "not a number"),
    ],
)
def test_broken_records_are_named_in_one_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    folder = write_study(tmp_path, teachers=["detm"], queries=["bc"], seeds=1, optional=False)
    (folder / name).write_text(content)
    with pytest.raises(ApilError, match=message) as caught:
        read_study(folder)
    assert "\n" not in str(caught.value)


def test_a_folder_that_holds_no_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ApilError, match=r"summary\.json"):
        read_study(tmp_path)
    with pytest.raises(ApilError, match="No study folder"):
        read_study(tmp_path / "nowhere")
