"""`apil calibrate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apil.cli.options import command, from_record, given, run_settings, value_of
from apil.errors import ApilError
from apil.query import QUERY_POLICIES, THRESHOLD_POLICIES
from apil.settings.record import Few, record
from apil.tasks.options import options_of
from apil.terminal import counted, wrote


@dataclass(frozen=True)
class Common:
    task: str = "grid"
    """See `apil list`."""
    teacher: str = "detm"
    """Who answers while query rates are compared; tasks without reference actions need teachers of their own."""
    query: tuple[str, ...] = ("intrun", "extrun", "behvun", "modlun", "errpred", "random")
    """Query policies to calibrate."""
    out: Path = Path("calibration.json")
    """File for the thresholds; entries of other tasks and policies are kept."""


@record
class Search:
    seeds: Few = 5
    """Number of seeds for each candidate; they start at 10000, outside any study."""


_OWN = ("task", "teacher", "query", "seeds", "out")
_OF_ONE_RUN = ("query_options", "seed", "threshold", "budget", "save_every", "answers")


def options(argv: Sequence[str]) -> type:
    own = from_record(options_of(value_of(argv, "--task", Common.task)).arguments)
    words = "Find the threshold at which a policy asks as often as APIL."
    return command("Calibrate", words, Common, [*from_record(Search), *run_settings((*_OWN, *_OF_ONE_RUN)), *own])


def run(typed: Any, argv: Sequence[str]) -> None:
    from apil.files import make_folder, read_json, write_json
    from apil.learning.build import stackable
    from apil.runs.calibration import load_calibration
    from apil.runs.resolve import resolve
    from apil.studies.calibrate import calibrate

    Search(typed.seeds)
    if not typed.query:
        raise ApilError(f"No query policy to calibrate: give some of {', '.join(THRESHOLD_POLICIES)}.")
    for query in typed.query:
        QUERY_POLICIES.check(query)
    if not stackable(typed.task):
        raise ApilError(
            f"Thresholds on {typed.task} are found by `apil study {typed.task}`: they are in the calibration.json of "
            "its folder."
        )
    make_folder(typed.out.parent)
    shipped = load_calibration(typed.out if typed.out.exists() else None)
    base = resolve(typed.task, typed.teacher, "apil", given(typed, argv, _OWN), shipped, as_printed=True).settings
    with counted(f"calibrating on {typed.task}") as progress:
        found = calibrate(base, typed.query, typed.seeds, progress)
    saved = read_json(typed.out) if typed.out.exists() else {}
    saved[typed.task] = {**saved.get(typed.task, {}), **found}
    write_json(typed.out, saved)
    for query, entry in found.items():
        print(f"{query:8} {entry['threshold']:<10g} {entry['how']}")
    wrote(typed.out, f"use it with --calibration {typed.out}")
