"""`apil evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from apil.cli.options import command, from_record, given
from apil.errors import ApilError
from apil.runs.evaluation import evaluation_of
from apil.terminal import print_table, progress_bar, wrote


@dataclass(frozen=True)
class Common:
    """What every evaluation has."""

    run: tyro.conf.Positional[Path]
    """Run folder written by `apil train`. `apil evaluate RUN --help` shows what can be set on its task."""


def _task_of(argv: Sequence[str]) -> str:
    """The task of the run that is named; '' where there is none."""
    from apil.runs.folder import load_config

    for word in argv:
        try:
            if not word.startswith("--") and (Path(word) / "config.json").is_file():
                name: str = load_config(Path(word)).task.name
                return name
        except (ApilError, OSError, ValueError):  # told when the run is opened
            continue
    return ""


def options(argv: Sequence[str]) -> type:
    """What can be typed depends on the task of the run."""
    own = evaluation_of(_task_of(argv)).arguments if argv else evaluation_of("").arguments
    return command("Evaluate", "Measure a trained agent, alone and with help.", Common, from_record(own))


def run(typed: Any, argv: Sequence[str]) -> None:
    """`apil evaluate`"""
    from apil.files import write_json
    from apil.runs.folder import load_config

    evaluation = evaluation_of(load_config(typed.run).task.name)
    with progress_bar() as progress:
        bar = progress.add_task("evaluating", total=None)
        found = evaluation.measure(
            typed.run,
            given(typed, argv, ("run",)),
            lambda done, total: progress.update(bar, completed=done, total=total),
        )
    for title, figures in found.tables.items():
        print_table(title, dict(figures))
    path = typed.run / found.file
    write_json(path, dict(found.result))
    wrote(path)
    for note in found.notes:
        print(note)
