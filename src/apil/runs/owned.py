"""The files that apil writes into a run folder. Whatever else lies there is the user's, and is left alone."""

from __future__ import annotations

import os
import re
from collections.abc import Container
from pathlib import Path

from apil.errors import AccessError
from apil.files import LOCK, refuse_link, remove

_CONFIG, _FINISHED = "config.json", "finished.json"
_OWN = re.compile(
    r"(config|agent|environment|earlier|finished|end)\.json|(metrics|answers|timings)\.jsonl|answers\.(store|png)"
    r"|checkpoint-\d{8,}\.(json|safetensors)|evaluation(-.+)?\.json|look-\d{8,}\.json|failed\.log|\.lock"
)
_PEOPLE = re.compile(r"(people\.(sqlite.*|log)|(links|teaching)\.json)")
"""What people said is never removed."""


def own_files(folder: Path, *, people: bool = False) -> list[Path]:
    """What is there of apil's own files, sorted; `people`: with those of the people who teach."""
    try:
        found = sorted(folder.iterdir())
        return [path for path in found if _OWN.fullmatch(path.name) or (people and _PEOPLE.fullmatch(path.name))]
    except OSError as error:
        raise AccessError(f"Cannot read {folder}: {error.strerror}. Check its permissions.") from error


def refuse_links(folder: Path) -> None:
    """Refuses a folder in which one of apil's files is a symbolic link: to write it would change another file."""
    for path in own_files(folder, people=True):
        refuse_link(path)


def remove_own_files(folder: Path, keep: Container[str] = ()) -> None:
    """Removes apil's files except those to `keep`: all of them, or none and an error that says why.

    What makes a run of the folder goes first. However it ends, the folder then holds no run or all of one.
    """
    refuse_links(folder)
    paths = [path for path in own_files(folder) if path.name != LOCK and path.name not in keep]
    for path in paths:
        if path.is_dir():
            raise AccessError(f"{path} is a folder, where apil keeps a file: move it away.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise AccessError(f"Cannot write into {folder}: Permission denied. Check its permissions.")
    for path in sorted(paths, key=lambda path: path.name not in (_FINISHED, _CONFIG)):
        remove(path)
