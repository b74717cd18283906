"""`apil evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from apil.cli.options import command, from_record, given
from apil.errors import ApilError
from apil.runs.evaluation import evaluation_of
from apil.terminal import counted, print_table, wrote


@dataclass(frozen=True)
class Common:
    run: tyro.conf.Positional[Path]
    """Run folder written by `apil train`. `apil evaluate RUN --help` shows what can be set on its task."""


def _task_of(argv: Sequence[str]) -> str:
    """The task of the run that is named; '' where there is none."""
    for word in argv:
        with suppress(ApilError, OSError, ValueError):  # reported when the run is opened
            if not word.startswith("--") and (Path(word) / "config.json").is_file():
                from apil.runs.folder import load_config

                name: str = load_config(Path(word)).task.name
                return name
    return ""


def options(argv: Sequence[str]) -> type:
    """What can be typed depends on the task of the run."""
    own = evaluation_of(_task_of(argv)).arguments
    return command("Evaluate", "Measure a trained agent, alone and with help.", Common, from_record(own))


def run(typed: Any, argv: Sequence[str]) -> None:
    from apil.files import write_json
    from apil.runs.ending import ending
    from apil.runs.folder import load_config

    evaluation = evaluation_of(load_config(typed.run).task.name)
    with counted("evaluating") as progress:
        found = evaluation.measure(typed.run, given(typed, argv, ("run",)), progress)
    for title, figures in found.tables.items():
        print_table(title, dict(figures))
    end = ending(typed.run)
    if end.state != "finished":
        print(f"The run is not trained to its end: {end}")
    path = typed.run / found.file
    try:
        write_json(path, dict(found.result))
    except ApilError as error:
        raise ApilError(f"{error} The figures above are not saved.") from error
    wrote(path)
    for note in found.more():
        print(note)
