"""The options of a study, beside the settings of its runs. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Protocol

from annotated_types import Ge, Le
from pydantic import BeforeValidator

from apil.settings.record import Few, FromList, Says, Share, Text, record
from apil.tasks import TASKS

FilePath = Annotated[Path, BeforeValidator(lambda value: Path(value) if isinstance(value, str) else value)]
_Names = Annotated[tuple[Text, ...], FromList]
MACHINERY = ("workers", "engine", "ray_address", "storage")
"""Options that say where a study runs and do not change its results."""


class Upkeep(Protocol):
    """How the runs of a study are made and kept."""

    @property
    def workers(self) -> int: ...

    @property
    def keep_old(self) -> bool: ...

    @property
    def so_far(self) -> bool: ...


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
    """Processes, one thread each. With --engine ray stacks at a time; all cores of the cluster if not given."""
    engine: Literal["local", "ray"] = "local"
    """Where runs are trained: `local`, in processes of this machine, or `ray`, on a Ray cluster (extra ray)."""
    ray_address: Text | None = None
    """The cluster for --engine ray: auto, or HOST:PORT. RAY_ADDRESS if not given; without that Ray starts here."""
    storage: Text | None = None
    """A shared folder, or a path such as s3://bucket/study, in which --engine ray keeps checkpoints. If not given they
    are sent to the study's folder."""
    budget: Share | None = None
    """The share of steps to ask on, for all query policies with a score, in place of their thresholds."""
    calibration: FilePath | None = None
    """A file made by `apil calibrate`; overrides the thresholds that come with apil."""
    keep_old: bool = False
    """Keep finished runs that were made by other code."""
    so_far: bool = False
    """Run nothing: write the tables, figures and report of the runs that are finished so far."""


@record
class BudgetOptions:
    """Of the benchmark of rules at equal answers, `apil study budget`."""

    folder: FilePath = Path("examples/budget")
    """The files that describe it: study.toml, and one for each task."""
    tasks: _Names = ()
    """Labels of the tasks; all that are for the report if not given."""
    rules: _Names = ()
    """Labels of the rules, or any query policies; all of study.toml if not given. never, dagger and random are always
    there."""
    levels: Annotated[tuple[Literal["low", "middle", "high"], ...], FromList] = ()
    """Which of the three budgets; all if not given. Finished runs of one level are kept when another is added."""
    quick: bool = False
    """Three seeds and, unless --levels are given, the middle budget."""
    choosing: bool = False
    """The seeds, and unless --tasks are given the tasks, that are for choosing rules and settings."""
    workers: Few = 2
    """Processes, one thread each."""
    keep_old: bool = False
    """Keep finished runs that were made by other code."""
    so_far: bool = False
    """Run nothing: write the tables and figures of the runs that are finished or, where there are none, of the records
    in the folder."""


@record
class WhomOptions:
    """Of the comparison of selectors, `apil study whom`."""

    folder: FilePath = Path("examples/whom")
    """The files that describe it: study.toml, and one for each task."""
    tasks: _Names = ()
    """Labels of the tasks; all if not given."""
    quick: bool = False
    """Three seeds."""
    choosing: bool = False
    """The seeds and the tasks that are for choosing settings."""
    workers: Few = 2
    """Processes, one thread each."""
    keep_old: bool = False
    """Keep finished runs that were made by other code."""
    so_far: bool = False
    """Run nothing: write the tables and figures of the runs that are finished or, where there are none, of the records
    in the folder."""


@record
class NoArguments:
    """No options of its own."""


def arguments_of_study(task: str) -> type:
    """A record of the options that a study of a task has of its own."""
    kind = TASKS.facet(task, "study")
    own: type = NoArguments if kind is None else kind.arguments
    return own
