"""What is particular about a study on a task: the facet `study` that a task may bring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from apil.learning.collect import Agents
from apil.learning.evaluate import evaluate
from apil.learning.trainer import Trainer
from apil.query import study_policies
from apil.settings import RunSettings
from apil.studies.options import NoArguments
from apil.studies.plan import Cell, plan
from apil.tasks import TASKS

Look = Callable[[Trainer], None]
"""Called after every iteration of a run in training."""


@dataclass(frozen=True)
class Asked:
    """What a study of a task was asked for."""

    base: RunSettings
    """What all runs share."""
    teachers: tuple[str, ...]
    queries: tuple[str, ...]
    seeds: int
    episodes: int
    """Of evaluation, for each run; 0 for all that a task has."""
    workers: int
    out: Path
    calibration: Mapping[str, Any]
    """Thresholds by query policy, with how each was found."""
    budget: float | None
    so_far: bool
    """Nothing is trained: the report is of the runs that are finished."""
    options: Mapping[str, Any]
    """Of the study itself: those of `StudyKind.arguments`."""


class StudyKind(Protocol):
    """How rules are compared on a task. What is here holds for a task that brings no facet of its own."""

    arguments: type = NoArguments
    """A record of options of the study itself. Importing it must not import torch."""
    seeds: int = 5
    """Runs of each query policy with each teacher, unless given."""
    episodes: int = 1000
    """Of evaluation, unless given."""
    starts: int = 20_000
    """Episodes over which the uncertainty of a perfect copy of the teachers is measured."""

    def queries(self) -> tuple[str, ...]:
        """The query policies that are compared, unless given."""
        return study_policies()

    def folder(self, task: str, given: Mapping[str, Any]) -> str:
        """The name of its folder under results/, unless given."""
        return task

    def thresholds(self, asked: Asked, progress: Callable[[int, int], None]) -> dict[str, dict[str, Any]]:
        """Thresholds with how each was found; may search for those that are not known."""
        return dict(asked.calibration)

    def plan(self, asked: Asked, thresholds: Mapping[str, float | None]) -> list[Cell]:
        """The runs."""
        return plan(asked.base, asked.teachers, asked.queries, asked.seeds, thresholds, asked.budget)

    def look(self, folder: Path, settings: RunSettings) -> Look | None:
        """Looks at an agent in training, noted in the run's folder; None for none."""
        return None

    def evaluate(self, agents: Agents, episodes: int) -> list[dict[str, Any]]:
        """What each trained run can do."""
        return evaluate(agents, episodes)

    def evaluate_alone(self, agents: Agents, episodes: int) -> list[dict[str, Any]]:
        """At least `success_alone` and `success_greedy` of each trained run, with nobody to ask."""
        return self.evaluate(agents, episodes)

    def summary(self, runs: Sequence[RunSettings]) -> dict[str, Any]:
        """What it adds to the top level of summary.json."""
        return {}

    def examples(self, asked: Asked, cells: Sequence[Cell]) -> None:
        """Pictures of episodes for the report, written into the study's folder."""
        return


@dataclass
class PlainStudy(StudyKind):
    """A study without options of its own; that of a task that brings no facet."""

    seeds: int = 5
    episodes: int = 1000
    compared: tuple[str, ...] = ()
    """Query policies; the paper's, two baselines and every policy from outside apil if not given."""

    def queries(self) -> tuple[str, ...]:
        return self.compared or study_policies()

    def evaluate_alone(self, agents: Agents, episodes: int) -> list[dict[str, Any]]:
        return evaluate(agents, episodes, helped=False)


def kind_of(task: str) -> StudyKind:
    """How rules are compared on a task of that name."""
    own: StudyKind | None = TASKS.facet(task, "study")
    return PlainStudy() if own is None else own
