"""A made-up study folder of R2R: the shape of a real one, with unequal numbers of seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from made_up_study import HEADER, StudyWriter

from apil.studies.records import TEACHERS
from apil.studies.statistics import interval

_KINDS = ("intrinsic", "extrinsic", "behavioral", "model", "total")
_LOGGED = ("query_rate", "success", *_KINDS, "answers")
SEEDS = {"bc": 1, "dagger": 3, "intrun": 1, "extrun": 1, "behvun": 1, "errpred": 1, "apil": 3}
_RATE = {"bc": 1.0, "dagger": 1.0, "apil": 0.3, "errpred": 0.31, "intrun": 0.33, "behvun": 0.35, "extrun": 0.02}
_SUCCESS = {"bc": 0.33, "dagger": 0.44, "apil": 0.45, "errpred": 0.41, "intrun": 0.38, "behvun": 0.39, "extrun": 0.12}
_STEPS = 600
"""Of the walks of an iteration."""


def write_r2r_study(
    folder: Path, teachers: Sequence[str] = TEACHERS, seeds: Mapping[str, int] = SEEDS, iterations: int = 1500
) -> Path:
    """DAgger and APIL with three seeds, the others with one; ExtrUn under TWODIFDETM alone.

    Of seed s and teacher number k success alone on val_unseen is `_SUCCESS` + 0.01 (s + k), for APIL + 0.02 s.
    """
    writer = StudyWriter(folder, "r2r", max(seeds.values()), iterations)
    rows, cells, runs, objective = [], [], [], []
    for k, teacher in enumerate(teachers):
        for query in seeds:
            if query == "extrun" and teacher != "twodifdetm":
                continue
            curves = [_curves(writer, teacher, query) for _ in range(seeds[query])]
            splits = [_splits(query, seed, k) for seed in range(seeds[query])]
            for seed, curve in enumerate(curves):
                rows += writer.rows(curve, _LOGGED, ("r2r", teacher, query, seed))
                answers = float(curve["answers"][-1])
                about = {"teacher": teacher, "query": query, "seed": seed, "answers": answers}
                runs.append({**about, "splits": splits[seed]})
                if query == "apil":
                    fall = {
                        "query_on_progress": 0.25 + 0 * curve["success"],
                        "no_progress": 0.5 - 0.2 * curve["success"],
                    }
                    objective += writer.rows(fall, list(fall), (teacher, query, seed))
            cells.append({"teacher": teacher, "query": query, "seeds": seeds[query], **_figures(curves, splits)})
    writer.csv("metrics.csv", HEADER, rows)
    header = ("teacher", "query", "seed", "iteration", "query_on_progress", "no_progress")
    writer.csv("query_objective.csv", header, objective)
    about = {"task": "r2r", "seeds": max(seeds.values()), "iterations": iterations, "expectation": "exact"}
    ceiling = [{"teacher": t, "success": 0.999 - 0.01 * k, "final_distance": 0.12 + k} for k, t in enumerate(teachers)]
    writer.json("summary.json", {**about, "cells": cells, "personas": [], "teachers": ceiling})
    writer.json("evaluations.json", {"runs": runs})
    return folder


def _curves(writer: StudyWriter, teacher: str, query: str) -> dict[str, Any]:
    rate = np.clip(_RATE[query] + 0.1 * np.exp(-3 * writer.progress), 0, 1)
    answers = np.cumsum(rate * _STEPS * np.diff(writer.iterations, prepend=0))
    learned = 1 - np.exp(-answers / 150_000)
    helped = {"bc": 0.99, "dagger": 0.1 + 0.5 * learned}.get(query, 0.4 + 0.45 * learned)
    intrinsic = 0.8 - (0.5 if teacher == "rand" else 0.6) * learned
    extrinsic = (0.02 if teacher == "twodifdetm" else 0.001) * learned
    curves = {
        "query_rate": rate,
        "success": writer.noisy(helped).clip(0, 1),
        "intrinsic": writer.noisy(intrinsic),
        "extrinsic": extrinsic,
        "model": 0.1 * (1 - learned),
        "answers": np.round(answers),
    }
    curves["behavioral"] = curves["intrinsic"] + curves["extrinsic"]
    curves["total"] = curves["behavioral"] + curves["model"]
    return curves


def _splits(query: str, seed: int, teacher: int) -> dict[str, dict[str, float]]:
    alone = _SUCCESS[query] + 0.01 * (seed + teacher) + (0.02 * seed if query == "apil" else 0.0)
    unseen = {
        "success_alone": alone,
        "success_with_help": 0.8,
        "oracle_success": alone + 0.1,
        "spl": alone - 0.04,
        "ndtw": 0.5,
        "navigation_error": 6.25,
        "path_length": 10.5,
        "query_rate": _RATE[query],
    }
    return {"val_unseen": unseen, "val_seen": {**unseen, "success_alone": alone + 0.08}}


def _figures(curves: Sequence[dict[str, Any]], splits: Sequence[dict[str, dict[str, float]]]) -> dict[str, Any]:
    last = {name: [float(run[name][-5:].mean()) for run in curves] for name in _LOGGED}
    last["answers"] = [float(run["answers"][-1]) for run in curves]
    last["success_alone"] = [split["val_unseen"]["success_alone"] for split in splits]
    measures = {
        split: {name: interval([own[split][name] for own in splits]) for name in splits[0][split]}
        for split in splits[0]
    }
    return {**{name: interval(values) for name, values in last.items()}, "splits": measures}
