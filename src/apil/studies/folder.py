"""The folder of a study: it holds one study and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from apil.errors import ApilError
from apil.files import locked, make_folder, read_json, taken, write_json
from apil.registry import PLUGINS

MARK = "study.json"
"""The file that says of which study a folder is."""
_REPORT = ".report.lock"


@contextmanager
def claimed(out: Path, task: str, command: str, plugins: str | None = None) -> Iterator[None]:
    """Makes `out` the folder of a study of `task`, made by `command`, and keeps others from it meanwhile.

    `plugins` are those that the command needs, as APIL_PLUGINS names them; the present ones if not given.
    """
    _check(out, task)
    make_folder(out)
    with locked(out):
        _check(out, task)
        named = os.environ.get(PLUGINS, "") if plugins is None else plugins
        paths = [_relative(plugin) for plugin in map(str.strip, named.split(",")) if plugin]
        given = f"{PLUGINS}={quote(','.join(paths))} " if paths else ""  # the command needs their parts
        write_json(out / MARK, {"task": task, "command": given + command})
        yield


@contextmanager
def looked_at(out: Path, task: str) -> Iterator[None]:
    """Checks the folder of a study of `task` without locking it: another process may be at work in it."""
    _check(out, task)
    make_folder(out)
    yield


@contextmanager
def reporting(out: Path) -> Iterator[None]:
    """One process writes a report at a time: a look at a study that runs is over before the study writes its own."""
    with locked(out, _REPORT, wait=True):
        yield


def _check(out: Path, task: str) -> None:
    """Refuses a folder that holds something else than a study of `task`."""
    remedy = "choose another --out, or remove it."
    if taken(out):
        if not out.is_dir():
            raise ApilError(f"{out} is a file, not a folder: {remedy}")
        mark = out / MARK
        if not mark.is_file():
            raise ApilError(f"{out} holds something that is not a study of apil: {remedy}")
        held = read_json(mark)
        other = held.get("task") if isinstance(held, dict) else None
        if other != task:
            raise ApilError(f"{out} holds a study of '{other}', not of '{task}': {remedy}")


def _relative(plugin: str) -> str:
    """A plugin as it was named; an absolute path from the current folder on, and from elsewhere its file name."""
    path, here = Path(plugin), Path.cwd()
    if not path.is_absolute():
        return plugin
    folder = path.parent.resolve()
    return str(folder.relative_to(here) / path.name) if folder.is_relative_to(here) else path.name
