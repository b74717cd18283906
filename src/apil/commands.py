"""What can be typed: a record for each command, which `tyro` turns into options. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Union

import tyro

from apil.config import Expectation
from apil.query import study_policies


@dataclass(frozen=True)
class Train:
    """Train one agent and save it in a run folder."""

    task: str = "grid"
    """Where the agent lives; see `apil list`."""
    teacher: str = "twodifdetm"
    """Who answers: a name from `apil list`, or members joined by '+', for example first+last+uniform."""
    query: str = "apil"
    """When to ask; see `apil list`."""
    iterations: int | None = None
    """Batches of episodes, one update each; 1000 if not given. Can be raised with --resume."""
    seed: int = 0
    """The run's randomness, all of it."""
    out: Path = Path("runs/demo")
    """Folder for the run; must not hold anything yet."""
    resume: Path | None = None
    """A stopped run to go on with; its settings are in the folder."""
    batch: int | None = None
    """Episodes in an iteration; the task's own number if not given."""
    learning_rate: float = 1e-3
    """Of Adam, for every part."""
    expectation: Expectation = "exact"
    """How the expectation over identities is taken: a sum over all teachers, or the paper's samples."""
    samples: int = 5
    """N1: identities drawn for each model under monte-carlo."""
    models: int = 10
    """N2: dropout masks, the models that vote."""
    threshold: float | None = None
    """Of the query policy; the calibrated one if not given."""
    budget: float | None = None
    """The share of steps to ask on, for example 0.1: a query policy with a score then needs no threshold."""
    query_options: tuple[str, ...] = ()
    """Settings of the query policy as name=value, for example k=5 for `every`."""
    calibration: Path | None = None
    """A file made by `apil calibrate`; overrides the thresholds that ship with apil."""
    weights: tuple[float, ...] = ()
    """Probability of each member of the committee; equal if not given."""
    selection: Literal["episode", "query"] | None = None
    """A member is drawn for each episode, or anew for each query; the committee's own rule if not given."""
    sigma: float = 2.0
    """APIL: progress means that the distance shrinks by this factor."""
    epsilon: float | None = None
    """APIL: a final distance up to this is a good end; the task's own if not given."""
    gap: float | Literal["estimate"] = 0.0
    """APIL: the final distance of an agent that always follows the teachers, subtracted from every distance; estimate
    takes the mean over the training episodes in which they were followed at every step."""
    log_every: int = 20
    """Iterations between two rows of metrics."""
    save_every: int = 100
    """Iterations between two checkpoints."""
    answers: bool = True
    """Write every question and answer to answers.jsonl; a resumed run never asks them again."""
    teacher_deadline: float | None = None
    """Seconds a teacher has for one batch of answers; no limit if not given."""
    on_teacher_error: Literal["stop", "skip"] = "stop"
    """A teacher that fails, hangs or answers nonsense stops the run, or the step goes on as one not asked."""


@dataclass(frozen=True)
class Evaluate:
    """Measure a trained agent, alone and with help."""

    run: tyro.conf.Positional[Path]
    """Run folder written by `apil train`."""
    episodes: int = 1000
    """Alone, and as many again with help."""


@dataclass(frozen=True)
class Study:
    """Run every query policy with every teacher over several seeds; write tables, figures and a report."""

    task: tyro.conf.Positional[str]
    """A task; see `apil list`. Or a .toml file that describes a study of your own."""
    seeds: int = 5
    """Runs of each query policy with each teacher."""
    out: Path | None = None
    """Folder for the results; results/TASK if not given. Finished runs in it are kept."""
    iterations: int = 1000
    """Of each run: batches of episodes, one update each."""
    teachers: tuple[str, ...] = ("detm", "rand", "tworand", "twodifdetm")
    """Who answers; see `apil list`."""
    queries: tuple[str, ...] = field(default_factory=study_policies)
    """When to ask; see `apil list`. The paper's, its baselines and your own if not given."""
    workers: int = 2
    """Processes, one thread each."""
    log_every: int = 20
    """Iterations between two rows of metrics."""
    expectation: Expectation | None = None
    """How the expectation over identities is taken; monte-carlo for grid (the paper's), exact elsewhere."""
    samples: int = 5
    """N1: identities drawn for each model under monte-carlo."""
    models: int = 10
    """N2: dropout masks."""
    episodes: int = 1000
    """Evaluation episodes of each run at the end."""
    answers: bool = False
    """Write every question and answer of each run to its answers.jsonl."""
    keep_old: bool = False
    """Keep finished runs that were made by other code."""
    calibration: Path | None = None
    """A file made by `apil calibrate`; overrides the thresholds that ship with apil."""
    budget: float | None = None
    """The share of steps to ask on, for all query policies with a score, in the place of their thresholds."""


@dataclass(frozen=True)
class Calibrate:
    """Find the threshold that brings a policy's query rate with DETM on par with APIL's."""

    task: str = "grid"
    """See `apil list`."""
    query: tuple[str, ...] = ("intrun", "extrun", "behvun", "modlun", "errpred", "random")
    """One or several query policies."""
    seeds: int = 5
    """Seeds from 10000 on, outside any study."""
    iterations: int = 1000
    """Of each run; the rate is that over the whole run."""
    out: Path = Path("calibration.json")
    """File for the thresholds; entries of other tasks and policies in it are kept."""


@dataclass(frozen=True)
class Replay:
    """Show episodes of a trained agent: who acted, where it asked, which teacher answered what."""

    run: tyro.conf.Positional[Path]
    """Run folder written by `apil train`."""
    episodes: int = 1
    """How many to show."""
    first: int = 0
    """Number of the first episode; the same number is the same start."""
    out: Path | None = None
    """A .gif or .mp4 file; in the terminal if not given."""


@dataclass(frozen=True)
class Doctor:
    """Check the installation and say what to do about what is missing."""

    folder: Path = Path()
    """Where runs would be written."""


@dataclass(frozen=True)
class List:
    """Show tasks, teachers and query policies."""


Command = Union[  # noqa: UP007 (tyro reads the annotations of a Union)
    Annotated[Train, tyro.conf.subcommand("train")],
    Annotated[Evaluate, tyro.conf.subcommand("evaluate")],
    Annotated[Study, tyro.conf.subcommand("study")],
    Annotated[Calibrate, tyro.conf.subcommand("calibrate")],
    Annotated[Replay, tyro.conf.subcommand("replay")],
    Annotated[Doctor, tyro.conf.subcommand("doctor")],
    Annotated[List, tyro.conf.subcommand("list")],
]
