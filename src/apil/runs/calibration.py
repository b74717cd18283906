"""Thresholds that belong to a task, with how each was found. They ship with the package; a file overrides them.

The file is `{task: {query: {"threshold": number, "how": sentence}}}`.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from apil.errors import ApilError
from apil.files import read_json
from apil.query import default_threshold

Calibration = dict[str, dict[str, dict[str, Any]]]


def load_calibration(path: Path | None) -> Calibration:
    """The shipped thresholds, overridden entry by entry by those of `path`."""
    shipped: Calibration = json.loads(resources.files("apil").joinpath("calibration.json").read_text("utf-8"))
    if path is None:
        return shipped
    own = read_json(path)
    try:
        entries = [entry for queries in own.values() for entry in queries.values()]
        good = all(
            type(e["threshold"]) in (int, float) and 0 <= e["threshold"] <= 1e9 and isinstance(e["how"], str)
            for e in entries
        )
    except (AttributeError, KeyError, TypeError):
        good = False
    if not good:
        raise ApilError(
            f'{path} is not a calibration: expected {{task: {{query: {{"threshold": number, "how": text}}}}}}; '
            "make one with `apil calibrate`."
        )
    return {task: {**shipped.get(task, {}), **own.get(task, {})} for task in {**shipped, **own}}


def threshold_of(calibration: Calibration, task: str, query: str) -> float | None:
    """The threshold of a query policy on a task, else its default; None where there is none."""
    entry = calibration.get(task, {}).get(query)
    return default_threshold(query) if entry is None else float(entry["threshold"])
