"""Charts that a reader can point at: the data of a figure, drawn by `templates/page.js.jinja` in the browser.

A page has each figure as a picture too, for printing and for browsers without scripts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from apil.studies.records import StudyRecords
from apil.studies.statistics import Estimate, bands
from apil.studies.text import printable, spelled


@dataclass(frozen=True)
class Look:
    """How a series is drawn."""

    colour: str
    dashed: bool = False
    open: bool = False
    """Marks are circles, not discs."""


@dataclass(frozen=True)
class Series:
    """The figures of one rule in one panel."""

    name: str
    points: tuple[tuple[float, ...], ...]
    """Each x, mean, low, high and, where x has an interval too, its low and high."""
    flat: bool = False
    """One figure for all x: a line across the panel."""


@dataclass(frozen=True)
class Chart:
    """Panels on the same axes, with a series for each rule."""

    x: str
    """What is across; `y` what is upwards."""
    y: str
    panels: tuple[tuple[str, tuple[Series, ...]], ...]
    """Title and series."""
    looks: dict[str, Look]
    """By the name of a series."""
    scale: Literal["linear", "log", "symlog"] = "linear"
    ticks: tuple[float, ...] = ()
    """Of x; chosen by the browser if there are none."""
    marks: bool = True
    """Whether points have marks; else they are joined by a line with a band."""
    top: float = 1.0
    """The highest y."""
    line: float | None = None
    """Where a dotted line goes across."""
    kind: Literal["points"] = "points"

    @property
    def data(self) -> dict[str, Any]:
        """What the page holds: names as papers spell them, numbers with four digits."""
        panels = [
            {
                "title": printable(title),
                "series": [{**asdict(one), "name": _named(one.name), "points": _short(one.points)} for one in series],
            }
            for title, series in self.panels
        ]
        looks = {_named(name): asdict(look) for name, look in self.looks.items()}
        return {**asdict(self), "panels": panels, "looks": looks}


@dataclass(frozen=True)
class Rows:
    """Panels with a row for each rule: one figure and its interval, from left to right."""

    x: str
    panels: tuple[tuple[str, tuple[tuple[str, Estimate], ...]], ...]
    """Title, and the figure of each rule, from the top."""
    looks: dict[str, Look]
    """By the name of a rule."""
    digits: int = 3
    kind: Literal["rows"] = "rows"

    @property
    def data(self) -> dict[str, Any]:
        """What the page holds; a row is a name, mean, low and high."""
        panels = [
            {
                "title": printable(title),
                "rows": [[_named(name), *_short(((of.mean, of.low, of.high),))[0]] for name, of in rows if of.known],
            }
            for title, rows in self.panels
        ]
        looks = {_named(name): asdict(look) for name, look in self.looks.items()}
        return {"kind": self.kind, "x": self.x, "digits": self.digits, "panels": panels, "looks": looks}


def _named(name: str) -> str:
    return printable(spelled(name))


def _short(points: Iterable[Sequence[float]]) -> list[list[float]]:
    return [[float(f"{value:.4g}") for value in point] for point in points]


def point(x: float, figure: Estimate, across: Estimate | None = None) -> tuple[float, ...]:
    """A point of a series; `across` is the interval of x, if it has one."""
    ends = () if across is None else (across.low, across.high)
    return (x, figure.mean, figure.low, figure.high, *ends)


def by_teacher(study: StudyRecords, series: Any) -> tuple[tuple[str, tuple[Series, ...]], ...]:
    """A panel for each teacher; `series(teacher, query)` gives that of a rule, or None."""
    return tuple(
        (f"teacher {spelled(teacher)}", tuple(one for query in study.queries if (one := series(teacher, query))))
        for teacher in study.teachers
    )


def query_rates(study: StudyRecords, looks: dict[str, Look]) -> Chart | None:
    """The share of steps asked over training, with bands."""

    def series(teacher: str, query: str) -> Series | None:
        iterations, values = study.metrics.where(teacher=teacher, query=query).over_training("query_rate")
        if not np.isfinite(values).any():
            return None
        found = bands(values)
        rows = np.stack([iterations, found.mean, found.low, found.high], axis=1)
        return Series(query, tuple(tuple(row) for row in rows[np.isfinite(found.mean)].tolist()))

    if not study.metrics.columns or not study.metrics.names("teacher"):
        return None
    panels = by_teacher(study, series)
    return Chart("training iteration", "query rate (share of steps)", panels, looks, marks=False)


def success_for_answers(study: StudyRecords, looks: dict[str, Look], scale: Literal["linear", "symlog"]) -> Chart:
    """Success alone at the end of training against all answers used."""

    def series(teacher: str, query: str) -> Series | None:
        cell = study.cell(teacher, query)
        answers, success = cell.figure("answers"), cell.figure("success_alone")
        known = answers.known and success.known
        return Series(query, (point(answers.mean, success, answers),)) if known else None

    panels = by_teacher(study, series)
    return Chart("answers, whole training", "success alone (share of episodes)", panels, looks, scale)


def at_points(study: StudyRecords, looks: dict[str, Look], name: str) -> Chart:
    """Success alone against the number of answers that every rule had."""

    def series(teacher: str, query: str) -> Series | None:
        cell = study.cell(teacher, query)
        known = [point(at.answers, getattr(at, name)) for at in cell.at if getattr(at, name).known]
        return Series(query, tuple(known), flat=cell.at[0].answers == 0) if known else None

    panels, ticks = by_teacher(study, series), tuple(float(at) for at in study.points)
    return Chart("answers", "success alone (share of episodes)", panels, looks, "log", ticks)
