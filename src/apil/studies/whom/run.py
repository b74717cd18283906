"""The comparison from start to report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from apil.files import read_json, write_json
from apil.registry import PLUGINS
from apil.runs.environment import environment
from apil.studies.budget.run import ABOUT, software_of
from apil.studies.folder import claimed
from apil.studies.options import WhomOptions
from apil.studies.plan import Cell
from apil.studies.run import Reporter, finish
from apil.studies.whom.compare import Whom
from apil.studies.whom.definition import Comparing, Planned, read_comparison
from apil.studies.whom.records import points_of, read_points, write_points
from apil.studies.whom.report import write_report
from apil.terminal import progress_bars


def whom(options: WhomOptions, *, out: str | Path = "results/whom", command: str = "", progress: bool = True) -> Whom:
    """Compares selectors by what their answers cost, over the tasks of a folder: trains what is not finished, writes
    records, tables, figures and a report.

    Finished runs in `out` are kept. `command` is noted as the way to make it again.
    """
    plugins = os.environ.get(PLUGINS, "")
    comparing = read_comparison(options.folder, options.tasks, quick=options.quick, choosing=options.choosing)
    folder = Path(out)
    with (
        progress_bars(progress) as bars,
        claimed(folder, "whom", command or f"apil study whom --out {folder}", plugins),
    ):
        reporter = Reporter(bars)
        if not options.so_far or any((folder / "runs" / run.cell.folder).is_dir() for run in comparing.runs):
            cells: list[Cell] = [run.cell for run in comparing.runs]
            done = finish(cells, folder, comparing.shared.episodes, options, reporter, name="whom", alone=True)
            finished = {cell.folder for cell in done}
            _write_records(comparing, [run for run in comparing.runs if run.cell.folder in finished], folder)
        reporter.line("Writing tables, figures and the report")
        about = read_json(folder / ABOUT)
        compared = Whom(read_points(folder), about)
        write_report(folder, compared, about)
    return compared


def _write_records(comparing: Comparing, runs: Sequence[Planned], folder: Path) -> None:
    """All that the report is built from."""
    write_points(folder, [point for run in runs for point in points_of(run, folder / "runs")])
    shared = comparing.shared
    about = {
        "command": read_json(folder / "study.json")["command"],
        "commits": sorted({software_of(folder / "runs" / run.cell.folder) for run in runs}),
        "versions": {name: environment()[name] for name in ("apil", "python", "torch", "numpy", "processor", "cores")},
        "winner": shared.winner,
        "top": shared.top,
        "sparing": shared.sparing,
        "level": shared.level,
        "query": shared.query,
        "looks": shared.looks,
        "episodes": shared.episodes,
        "seeds": list(comparing.seeds),
        "tasks": [
            {"task": label, "name": file.task, "teacher": file.teacher, "answers": file.answers,
             "options": dict(runs[0].cell.config.task.options) if len(comparing.tasks) == 1 else dict(file.options),
             "settings": dict(file.settings)}
            for label, file in comparing.tasks.items()
        ],
        "selectors": [
            {"selector": own.label, "select": own.select, "acting": own.acting, "options": dict(own.options)}
            for own in shared.selectors
        ],
    }  # fmt: skip
    write_json(folder / ABOUT, about)
