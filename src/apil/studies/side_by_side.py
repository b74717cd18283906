"""Runs side by side: a table, a figure, and their metrics as one CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes

from apil.errors import ApilError
from apil.files import make_folder, write_bytes, write_text
from apil.runs.view import RunView, Watcher
from apil.studies.figures import RC, legend, panel_grid, pictures, styled

_MOST = 16
"""Runs in one figure: more cannot be distinguished."""


@dataclass(frozen=True)
class Compared:
    """What was found."""

    columns: Mapping[str, Mapping[str, Any]]
    """Figures of each run by its name; a run may lack some."""
    written: Sequence[Path]
    """Files."""


def compare(folders: Sequence[Path], out: Path) -> Compared:
    """Compares runs, ended or in training, and writes a figure and tables into the folder `out`."""
    if not 1 <= len(folders) <= _MOST:
        raise ApilError(f"{len(folders)} runs cannot be shown side by side: give 1 to {_MOST} run folders.")
    views = {str(folder): Watcher(folder).look() for folder in dict.fromkeys(folders)}
    empty = [name for name, view in views.items() if not view.rows]
    if empty:
        raise ApilError(f"{empty[0]} has no row of metrics yet: leave it out, or wait for `apil watch` to show one.")
    columns = {name: summary(view) for name, view in views.items()}
    make_folder(out)
    files = {f"compare.{kind}": data for kind, data in _drawn(views).items()}
    for name, data in files.items():
        write_bytes(out / name, data)
    write_text(out / "compare.csv", _csv({"run": name, **column} for name, column in columns.items()))
    rows = ({"run": name, **_plain(row)} for name, view in views.items() for row in view.rows)
    write_text(out / "metrics.csv", _csv(rows))
    return Compared(columns, [out / name for name in (*files, "compare.csv", "metrics.csv")])


def summary(view: RunView) -> dict[str, Any]:
    """The figures of a run: success, answers, costs. Success alone is that of the last look or evaluation."""
    last, run = view.last, view.settings
    found: dict[str, Any] = {
        "task": run.task.name,
        "teacher": run.teachers.name,
        "query": run.query.name,
        "seed": run.seed,
        "state": view.state,
        "iterations": last["iteration"],
        "answers": last.get("answers"),
        "cost": last.get("cost"),
        "unanswered": last.get("unanswered"),
        "query_rate": last.get("query_rate"),
        "success_alone": view.looks[-1].success if view.looks else None,
        "success_with_help": last.get("success"),
        "validation_loss": last.get("validation_loss"),
        "seconds": view.seconds or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a row."""
    return {name: value for name, value in row.items() if isinstance(value, int | float)}


def _csv(rows: Iterable[Mapping[str, Any]]) -> str:
    rows = list(rows)
    file = io.StringIO()
    writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _drawn(views: Mapping[str, RunView]) -> dict[str, bytes]:
    with matplotlib.rc_context(RC):
        figure, axes = panel_grid(2, 2, 1.9, beside=0.75, below=0.75)
        success, alone, rate, answers = (panel for row in axes for panel in row)
        for name, view in views.items():
            style = styled(name, {}, list(views))
            _line(success, view, "answers", "success", name, style)
            _line(rate, view, "iteration", "query_rate", name, style)
            _line(answers, view, "iteration", "answers", name, style)
            looks = [(look.answers, look.success) for look in view.looks if look.answers is not None]
            alone.plot(*zip(*looks, strict=True) if looks else ([], []), label=name, marker="o", ms=4, **style)
        _label(success, "success with help", "answers")
        _label(
            alone,
            "success alone" + ("" if any(view.looks for view in views.values()) else " (not measured)"),
            "answers",
        )
        _label(rate, "share of steps asked", "iterations")
        _label(answers, "answers", "iterations")
        for panel in (success, alone):
            panel.set_ylim(-0.03, 1.03)
        figure.suptitle("Runs side by side", y=1 - 0.07 / figure.get_size_inches()[1])
        for panel in figure.axes:
            panel.set_xlim(left=0)
        legend(figure, 2)
        figure.subplots_adjust(left=0.08)  # no panel has a label for which there would be room
        return pictures(figure)


def _line(panel: Axes, view: RunView, x: str, y: str, name: str, style: Mapping[str, Any]) -> None:
    points = [(row[x], row[y]) for row in view.rows if x in row and y in row]
    panel.plot(*zip(*points, strict=True) if points else ([], []), label=name, marker=".", ms=3, **style)


def _label(panel: Axes, title: str, x: str) -> None:
    panel.set_title(title)
    panel.set_xlabel(x)
