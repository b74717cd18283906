"""What can be typed: a record for each command, which `tyro` turns into options. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Union

import tyro

from apil.config import Expectation


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
    """Batches of episodes, one update each; the preset's on r2r, else 1000. Can be raised with --resume."""
    seed: int = 0
    """The run's randomness, all of it."""
    out: Path = Path("runs/demo")
    """Folder for the run; must not hold anything yet."""
    resume: Path | None = None
    """A stopped run to go on with; its settings are in the folder."""
    batch: int | None = None
    """Episodes in an iteration; the task's own number if not given."""
    learning_rate: float | None = None
    """For every part; 1e-3 if neither this nor a preset says otherwise."""
    optimizer: Literal["adam", "muon"] | None = None
    """Of the policy; Adam if neither this nor a preset says otherwise."""
    average: float | None = None
    """Decay of the moving average of the weights, which is what acts in evaluation; 0 for none. None if not in a
    preset."""
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
    save_every: int = 200
    """Iterations between two checkpoints."""
    answers: bool = True
    """Write every question and answer to answers.jsonl; a resumed run never asks them again."""
    teacher_deadline: float | None = None
    """Seconds a teacher has for one batch of answers; no limit if not given."""
    on_teacher_error: Literal["stop", "skip"] = "stop"
    """A teacher that fails, hangs or answers nonsense stops the run, or the step goes on as one not asked."""
    data: str = ""
    """R2R: the folder or file made by `apil data r2r` or `apil data houses`; generated houses if not given."""
    preset: Literal["desk", "paper"] = "desk"
    """R2R: sizes and length of a run, for a desk (minutes) or the paper's."""
    features: str | None = None
    """R2R: what the agent sees beside the geometry of exits: some of captions, objects, rooms, images; or geometry.
    Those of captions,objects,rooms that the data have if not given."""
    reading: Literal["closer", "literal"] = "closer"
    """R2R: reference actions also come closer to the goal, or the paper's words taken literally."""
    held_out: int = 0
    """R2R: train scans that are kept out of training, as the split held_out, to choose hyperparameters on."""
    horizon: int = 10
    """R2R: steps after which an episode ends."""
    option: tuple[str, ...] = ()
    """R2R: sizes of the state encoder, as name=value: width=256 text_layers=2; see docs/guide/r2r.md."""


@dataclass(frozen=True)
class Evaluate:
    """Measure a trained agent, alone and with help."""

    run: tyro.conf.Positional[Path]
    """Run folder written by `apil train`."""
    episodes: int | None = None
    """Alone, and as many again with help; 1000 if not given. R2R: the first of the split; all if not given."""
    split: str | None = None
    """R2R: val_unseen (if not given), val_seen, train or held_out."""
    sample: bool = False
    """R2R: sample actions from the mean policy, the paper's way, instead of taking the likeliest."""
    shuffle: bool = False
    """R2R: give each episode another's instruction, to see what the language is worth."""
    draw: int = 0
    """R2R: draw the first so many episodes as maps into the run folder."""
    data: str = ""
    """R2R: where the data are now, if not where the run found them."""


@dataclass(frozen=True)
class Study:
    """Run every query policy with every teacher over several seeds; write tables, figures and a report."""

    task: tyro.conf.Positional[str]
    """A task; see `apil list`. Or a .toml file that describes a study of your own."""
    seeds: int | None = None
    """Runs of each query policy with each teacher; 5 if not given, on r2r 3."""
    out: Path | None = None
    """Folder for the results; results/TASK if not given (r2r without --data: results/houses). Finished runs in it are
    kept."""
    iterations: int | None = None
    """Of each run: batches of episodes, one update each; the preset's on r2r, else 1000."""
    teachers: tuple[str, ...] = ("detm", "rand", "tworand", "twodifdetm")
    """Who answers; see `apil list`."""
    queries: tuple[str, ...] = ()
    """When to ask; see `apil list`. All if not given, on r2r those of the paper's table."""
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
    episodes: int | None = None
    """Evaluation episodes of each run at the end; 1000 if not given, on r2r all of val_unseen and val_seen."""
    answers: bool = False
    """Write every question and answer of each run to its answers.jsonl."""
    keep_old: bool = False
    """Keep finished runs that were made by other code."""
    so_far: bool = False
    """Run nothing: write the tables, figures and report of the runs that are finished so far."""
    calibration: Path | None = None
    """A file made by `apil calibrate`; overrides the thresholds that ship with apil."""
    data: str = ""
    """R2R: the folder or file made by `apil data r2r`; generated houses if not given."""
    preset: Literal["desk", "paper"] = "desk"
    """R2R: sizes and length of the runs."""
    other_seeds: int = 1
    """R2R: seeds of the policies other than dagger and apil, which have --seeds (3 if not given)."""
    maps: int = 3
    """R2R: example maps in the report. They show data of R2R: give 0 for a report that is passed on."""
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
class DataR2R:
    """Check the public Room-to-Room files and compile them into one file; see docs/guide/r2r.md."""

    source: Annotated[Path, tyro.conf.arg(name="from")]
    """Folder with connectivity/, annotations/ and so on, with their packed archives (*.tar.xz), or both."""
    out: Path = Path("data/r2r")
    """Folder for r2r.safetensors."""
    image_features: Path | None = None
    """36-view image features: a .tsv file, or .h5 / .hdf5 with scan_viewpoint keys. Pooled to 8 directions."""
    text_model: str | None = None
    """A language model that reads the instructions: minilm, if that is installed, or the folder of a BERT encoder."""


@dataclass(frozen=True)
class DataHouses:
    """Generate houses with paths and instructions in the formats of R2R, and compile them."""

    out: Path = Path("data/houses")
    """Folder for the raw files and r2r.safetensors; replaced if it holds generated houses, refused if anything else."""
    houses: int = 20
    """How many; the last fifth of them is kept unseen for evaluation."""
    seed: int = 0
    """Another seed gives other houses."""


@dataclass(frozen=True)
class DataShow:
    """Show what a compiled file holds."""

    data: tyro.conf.Positional[Path] = Path("data/r2r")
    """The file, or its folder."""


@dataclass(frozen=True)
class Export:
    """Write episodes of a trained agent as a Minari dataset: who acted, where it asked, which teacher, the answer."""

    run: tyro.conf.Positional[Path]
    """Run folder written by `apil train`."""
    out: str
    """A dataset id such as maze/apil-v0 (under MINARI_DATASETS_PATH), or a folder."""
    episodes: int = 100
    """How many."""


@dataclass(frozen=True)
class Doctor:
    """Check the installation and say what to do about what is missing."""

    folder: Path = Path()
    """Where runs would be written."""


@dataclass(frozen=True)
class List:
    """Show tasks, teachers and query policies."""


DataCommand = Union[  # noqa: UP007 (tyro reads the annotations of a Union)
    Annotated[DataR2R, tyro.conf.subcommand("r2r")],
    Annotated[DataHouses, tyro.conf.subcommand("houses")],
    Annotated[DataShow, tyro.conf.subcommand("show")],
]

Command = Union[  # noqa: UP007 (tyro reads the annotations of a Union)
    Annotated[Train, tyro.conf.subcommand("train")],
    Annotated[Evaluate, tyro.conf.subcommand("evaluate")],
    Annotated[Study, tyro.conf.subcommand("study")],
    Annotated[Calibrate, tyro.conf.subcommand("calibrate")],
    Annotated[Replay, tyro.conf.subcommand("replay")],
    Annotated[DataCommand, tyro.conf.subcommand("data", description="Prepare the data of a task.")],
    Annotated[Export, tyro.conf.subcommand("export")],
    Annotated[Doctor, tyro.conf.subcommand("doctor")],
    Annotated[List, tyro.conf.subcommand("list")],
]
