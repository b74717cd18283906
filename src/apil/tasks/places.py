"""Where the data of a run lie: noted with the run, so that it can be resumed and replayed from another folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apil.errors import ApilError
from apil.files import read_json
from apil.settings.record import Option
from apil.tasks import TASKS
from apil.tasks.options import options_of

NOTE = "environment.json"
"""In a run folder: the file that may differ between two equal runs."""
KEY = "places"


def note_places(folder: Path, task: str, options: Mapping[str, Option]) -> dict[str, dict[str, str]]:
    """What is noted of the files that the options name: their places as of now, from the root and from the folder."""
    noted = {}
    for name, typed in _named(task, options).items():
        there = os.path.abspath(find_place(folder, name, typed) or typed)
        noted[name] = {"absolute": there, "from_run": os.path.relpath(there, folder.resolve())}
    return noted


def find_options(folder: Path, task: str, options: Mapping[str, Option]) -> dict[str, Option]:
    """The options of a run with its files where they are now; an error if one is nowhere."""
    found = dict(options)
    for name, typed in _named(task, options).items():
        there = find_place(folder, name, typed)
        if there is None:
            places = ", ".join(dict.fromkeys([*_noted(folder, name), os.path.abspath(typed)]))
            raise ApilError(
                f"The run in {folder} needs '{typed}' ({name}), which is at none of these places: {places}. Move or "
                "link it to one of them."
            )
        found[name] = there
    return found


def find_place(folder: Path, name: str, typed: str) -> str | None:
    """Where a file or folder is now that a run calls `typed`: where it was, or as seen from the run, or from here."""
    there = [place for place in (*_noted(folder, name), typed) if os.path.exists(place)]
    # It keeps its name where that leads to the same: what is written of it stays as it was.
    same = bool(there) and os.path.exists(typed) and os.path.samefile(typed, there[0])
    return typed if same else next(iter(there), None)


def _named(task: str, options: Mapping[str, Option]) -> dict[str, str]:
    places = options_of(task).places if task in TASKS.names() else ()
    return {name: typed for name in places if isinstance(typed := options.get(name), str) and typed}


def _noted(folder: Path, name: str) -> list[str]:
    """The places that were noted; none where the run is of an older apil, or was moved without its note."""
    try:
        found: Any = read_json(folder / NOTE)[KEY][name]
        return [found["absolute"], str(folder / found["from_run"])]
    except (ApilError, LookupError, TypeError):
        return []
