"""What is kept of the runs: how success alone grew with what the answers cost."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from apil.errors import ApilError
from apil.files import read_json, read_rows, write_text
from apil.runs.looks import curves_of
from apil.studies.whom.definition import Planned

NAME = "records.csv"


@dataclass(frozen=True)
class Point:
    """Success alone of a run after some answers; the last of a run is its evaluation, after it has learned to its
    end."""

    task: str
    selector: str
    seed: int
    answers: int
    cost: float
    success: float


def points_of(planned: Planned, runs: Path) -> list[Point]:
    """The points of a finished run, in order."""
    folder = runs / planned.cell.folder
    rows = read_rows(folder / "metrics.jsonl")
    curves = curves_of(rows)
    answers = np.array([0.0, *(row["answers"] for row in rows)])
    costs = np.array([0.0, *(_cost(row) for row in rows)])
    at = [(look.answers, look.success) for look in (curves.looks if curves else ())]
    at.append((int(rows[-1]["answers"]), float(read_json(folder / "evaluation.json")["success_alone"])))
    own = planned.task, planned.selector, planned.cell.config.seed
    return [Point(*own, n, float(np.interp(n, answers, costs)), success) for n, success in at]


def _cost(row: Mapping[str, Any]) -> float:
    return float(row.get("cost", row["answers"]))


def write_points(folder: Path, points: Iterable[Point]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(Point))
    for point in points:
        writer.writerow(f"{value:.9g}" if isinstance(value, float) else value for value in asdict(point).values())
    write_text(folder / NAME, text.getvalue())


def read_points(folder: Path) -> list[Point]:
    path = folder / NAME
    if not path.is_file():
        raise ApilError(f"There is no {path}, and no run is finished: leave --so-far out to make them.")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [
                Point(
                    r["task"], r["selector"], int(r["seed"]), int(r["answers"]), float(r["cost"]), float(r["success"])
                )
                for r in csv.DictReader(file)
            ]
    except (KeyError, ValueError, TypeError, UnicodeDecodeError) as error:
        raise ApilError(f"{path} is damaged ({error}): restore it.") from error


@dataclass(frozen=True)
class Run:
    """One run as it is compared."""

    seed: int
    answers: int
    cost: float
    success: float
    """At its end."""
    points: tuple[Point, ...]

    def cost_to(self, level: float) -> float:
        """The cost after which success alone is at least `level`; infinite if it never was.

        The curve is made one that does not fall (isotonic regression: a single look is high by chance too often) and
        read between its points.
        """
        risen = isotonic_regression([point.success for point in self.points]).x
        above = np.flatnonzero(risen >= level)
        if not above.size:
            return math.inf
        first = int(above[0])
        if first == 0:
            return self.points[0].cost
        low, high = risen[first - 1], risen[first]
        before, after = self.points[first - 1].cost, self.points[first].cost
        return float(before + (after - before) * (level - low) / (high - low))

    def success_at(self, cost: float) -> float:
        """Success alone when so much was paid, on the same curve."""
        risen = isotonic_regression([point.success for point in self.points]).x
        return float(np.interp(cost, [point.cost for point in self.points], risen))


def runs_of(points: Sequence[Point]) -> dict[tuple[str, str], list[Run]]:
    """The runs by task and selector, in the order of the seeds."""
    grouped: dict[tuple[str, str, int], list[Point]] = {}
    for point in points:
        grouped.setdefault((point.task, point.selector, point.seed), []).append(point)
    found: dict[tuple[str, str], list[Run]] = {}
    for (task, selector, seed), own in grouped.items():
        last = own[-1]
        found.setdefault((task, selector), []).append(Run(seed, last.answers, last.cost, last.success, tuple(own)))
    return {key: sorted(runs, key=lambda run: run.seed) for key, runs in found.items()}
