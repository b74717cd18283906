"""`apil watch` and `apil compare`: runs and studies in training or ended, by what is in their folders."""

from __future__ import annotations

from pathlib import Path

import tyro

from apil.settings.record import record
from apil.terminal import print_columns, wrote


@record
class Watch:
    """Show a run or a study in the terminal while it trains, or how it ended. Reads only."""

    run: tyro.conf.Positional[Path]
    """Folder written by `apil train` or `apil study`; it may be training, finished, stopped or killed."""
    once: bool = False
    """Print the state as plain lines and exit."""


@record
class Compare:
    """Compare runs side by side: a table in the terminal, a figure and CSV files in a folder."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders written by `apil train`; they may still be in training."""
    out: Path = Path("runs/compared")
    """Folder for the figure (compare.png, .svg), the table (compare.csv) and all metrics (metrics.csv)."""


def watch(command: Watch) -> None:
    try:
        if (command.run / "study.json").is_file():
            from apil.studies.board import watch_study

            watch_study(command.run, once=command.once)
        else:
            from apil.runs.panel import watch

            watch(command.run, once=command.once)
    except KeyboardInterrupt:  # the way to stop watching; the run continues
        return


def compare(command: Compare) -> None:
    from apil.studies.side_by_side import compare

    compared = compare(command.runs, command.out)
    print_columns("Runs side by side", compared.columns)
    for path in compared.written:
        wrote(path)
