"""What can be set of a study, beside the settings of its runs. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le
from pydantic import BeforeValidator

from apil.settings.record import Few, FromList, Says, Share, Text, record
from apil.tasks import TASKS

FilePath = Annotated[Path, BeforeValidator(lambda value: Path(value) if isinstance(value, str) else value)]
_Names = Annotated[tuple[Text, ...], FromList]


@record
class StudyOptions:
    """Of a study of one task; a study file has most of them as keys."""

    seeds: Few | None = None
    """Runs of each query policy with each teacher; the task's own number if not given."""
    teachers: _Names = ("detm", "rand", "tworand", "twodifdetm")
    """Who answers; see `apil list`."""
    queries: _Names = ()
    """When to ask; see `apil list`. The task's own choice if not given: the paper's policies and two baselines."""
    episodes: Annotated[int, Ge(0), Le(1_000_000), Says("give a whole number up to 1,000,000")] | None = None
    """Evaluation episodes of each run at the end; the task's own number if not given."""
    workers: Few = 2
    """Processes, one thread each."""
    budget: Share | None = None
    """The share of steps to ask on, for all query policies with a score, in place of their thresholds."""
    calibration: FilePath | None = None
    """A file made by `apil calibrate`; overrides the thresholds that come with apil."""
    keep_old: bool = False
    """Keep finished runs that were made by other code."""
    so_far: bool = False
    """Run nothing: write the tables, figures and report of the runs that are finished so far."""


@record
class NoArguments:
    """Nothing of its own can be set."""


def arguments_of_study(task: str) -> type:
    """A record of the options that a study of a task has of its own."""
    kind = TASKS.facet(task, "study")
    own: type = NoArguments if kind is None else kind.arguments
    return own
