"""Where rules asked: counts of the answers of each on a plane, from the stores of their runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apil.files import read_json, write_json
from apil.runs.stored import answers
from apil.studies.budget.definition import BudgetTask
from apil.studies.budget.plan import Planned
from apil.studies.statistics import Floats, principal_plane
from apil.tasks import TASKS
from apil.tasks.options import options_of
from apil.tasks.plane import MakePlane, Plane

NAME = "where.json"
LEVEL = "middle"


@dataclass(frozen=True)
class Asked:
    """How often each rule asked in each cell of the plane of a task, over all its runs at one budget."""

    task: str
    level: str
    x: str
    y: str
    bounds: tuple[float, float, float, float]
    """x from and to, y from and to."""
    downwards: bool
    counts: dict[str, list[str]]
    """By rule: a text for each row along y, with the counts of its columns along x."""

    def table(self, rule: str) -> Floats:
        """[rows, columns]"""
        return np.array([row.split() for row in self.counts[rule]], dtype=np.float64)


def asked(task: BudgetTask, runs: Iterable[Planned], folder: Path, level: str = LEVEL) -> Asked | None:
    """Of the finished runs of a task, in their folders below `folder`; None where there is no answer."""
    seen: dict[str, list[NDArray[np.float32]]] = {}
    for run in runs:
        if run.level == level:
            seen.setdefault(run.cell.query, []).append(answers(folder / run.cell.folder).features)
    features = {rule: np.concatenate(parts) for rule, parts in seen.items()}
    features = {rule: rows for rule, rows in features.items() if len(rows)}
    if not features:
        return None
    own: MakePlane | None = TASKS.facet(task.file.task, "plane")
    if own is None:
        found, shares = principal_plane([rows.astype(np.float64) for rows in features.values()])
        plane, places = _principal(shares), dict(zip(features, found, strict=True))
    else:
        plane = own(options_of(task.file.task).resolve(task.file.options).options)
        places = {rule: np.asarray(plane.place(rows), np.float64) for rule, rows in features.items()}
    bounds = plane.bounds or _around(np.concatenate(list(places.values())))
    counts = {rule: _counted(own, plane, bounds) for rule, own in places.items()}
    return Asked(task.label, level, plane.x, plane.y, bounds, plane.downwards, counts)


def _principal(shares: Floats) -> Plane:
    """The first two principal axes of all that was asked about, of a task that brings no plane."""
    x, y = (f"{name} principal axis ({share:.0%})" for name, share in zip(("first", "second"), shares, strict=True))
    return Plane(lambda rows: rows[:, :2], x, y)


def _around(places: Floats) -> tuple[float, float, float, float]:
    """The range of the places, which is not empty."""
    low, high = places.min(0), places.max(0)
    high = np.where(high > low, high, low + 1.0)
    return float(low[0]), float(high[0]), float(low[1]), float(high[1])


def _counted(places: Floats, plane: Plane, bounds: tuple[float, float, float, float]) -> list[str]:
    """Rows along y; a place outside the bounds counts in the cell next to it."""
    inside = np.clip(places, (bounds[0], bounds[2]), (bounds[1], bounds[3]))
    found, _, _ = np.histogram2d(inside[:, 0], inside[:, 1], plane.cells, (bounds[:2], bounds[2:]))
    return [" ".join(map(str, row)) for row in found.T.astype(int).tolist()]


def write_asked(folder: Path, found: Iterable[Asked]) -> None:
    write_json(folder / NAME, [asdict(own) for own in found])


def read_asked(folder: Path) -> list[Asked]:
    """What `write_asked` wrote; nothing where that is not there."""
    if not (folder / NAME).is_file():
        return []
    found: Sequence[Mapping[str, Any]] = read_json(folder / NAME)
    return [Asked(**{**own, "bounds": tuple(own["bounds"])}) for own in found]
