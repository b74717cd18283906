"""The benchmark from start to report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from apil.files import read_json, write_json
from apil.registry import PLUGINS
from apil.runs.environment import environment
from apil.studies.bill import write_bill
from apil.studies.budget.compare import Comparison
from apil.studies.budget.definition import Benchmark, read_benchmark
from apil.studies.budget.plan import Planned, planned
from apil.studies.budget.records import Runs, read_runs, run_of, write_runs
from apil.studies.budget.report import write_report
from apil.studies.budget.where import asked, write_asked
from apil.studies.folder import claimed
from apil.studies.options import BudgetOptions
from apil.studies.plan import Cell
from apil.studies.run import Reporter, finish
from apil.terminal import progress_bars

ABOUT = "about.json"
"""What the records are of: the command, the commit, the seeds."""


def budget(
    options: BudgetOptions, *, out: str | Path = "results/budget", command: str = "", progress: bool = True
) -> Comparison:
    """Compares rules at equal numbers of answers over the tasks of a folder: trains what is not finished, writes
    records, tables, figures and a report.

    Finished runs in `out` are kept. `command` is noted as the way to make it again.
    """
    plugins = os.environ.get(PLUGINS, "")
    benchmark = read_benchmark(
        options.folder,
        options.tasks,
        options.rules,
        levels=options.levels,
        quick=options.quick,
        choosing=options.choosing,
    )
    runs = planned(benchmark)
    folder = Path(out)
    command = command or f"apil study budget --out {folder}"
    with progress_bars(progress) as bars, claimed(folder, "budget", command, plugins):
        reporter = Reporter(bars)
        if not options.so_far or any((folder / "runs" / run.cell.folder).is_dir() for run in runs):
            _write_records(benchmark, _finished(runs, folder, benchmark.shared.episodes, options, reporter), folder)
        reporter.line("Writing tables, figures and the report")
        compared = Comparison(Runs(read_runs(folder)))
        write_report(folder, compared, read_json(folder / ABOUT))
    return compared


def _finished(
    runs: Sequence[Planned], folder: Path, episodes: int, options: BudgetOptions, reporter: Reporter
) -> list[Planned]:
    """Trains what is not finished; returns what is."""
    cells: list[Cell] = [run.cell for run in runs]
    done = {cell.folder for cell in finish(cells, folder, episodes, options, reporter, name="budget", alone=True)}
    return [run for run in runs if run.cell.folder in done]


def _write_records(benchmark: Benchmark, runs: Sequence[Planned], folder: Path) -> None:
    """All that the report is built from."""
    inside = folder / "runs"
    write_runs(folder, [run_of(run, inside) for run in runs])
    places = (asked(task, [run for run in runs if run.task is task], inside) for task in benchmark.tasks)
    write_asked(folder, [found for found in places if found is not None])
    write_bill(folder, {task.label: [run.cell for run in runs if run.task is task] for task in benchmark.tasks})
    write_json(folder / ABOUT, _about(benchmark, runs, folder))


def _about(benchmark: Benchmark, runs: Sequence[Planned], folder: Path) -> dict[str, Any]:
    software = sorted({software_of(folder / "runs" / run.cell.folder) for run in runs})
    return {
        "command": read_json(folder / "study.json")["command"],
        "commits": software,
        "versions": {name: environment()[name] for name in ("apil", "python", "torch", "numpy", "processor", "cores")},
        "winner": benchmark.shared.winner,
        "episodes": benchmark.shared.episodes,
        "tasks": [
            {
                "task": task.label,
                "name": task.file.task,
                "teacher": task.file.teacher,
                "distance": task.file.distance,
                "use": task.file.use,
                "budgets": {level: task.file.budgets.of(level) for level in task.levels},
                "full": task.file.full,
                "options": dict(task.file.options),
                "settings": dict(task.file.settings),
                "seeds": list(task.seeds),
            }
            for task in benchmark.tasks
        ],
        "rules": [
            {"rule": rule.label, "query": rule.query, "asking": rule.asking_of("live"), "options": dict(rule.options)}
            for rule in benchmark.rules
        ],
    }


def software_of(folder: Path) -> str:
    """The commit that a run was made by."""
    return str(read_json(folder / "environment.json").get("commit"))
