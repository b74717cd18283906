"""The command line. Parsing imports nothing heavy; each command imports what it needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

import tyro

from apil.config import Expectation, RunConfig, positive
from apil.errors import ApilError
from apil.query import QUERY_POLICIES, THRESHOLD_POLICIES
from apil.tasks import TASKS
from apil.teachers import TEACHERS

if TYPE_CHECKING:
    from rich.progress import Progress

    from apil.runs.calibration import Calibration
    from apil.studies.plan import Cell


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
    """A task; see `apil list`."""
    seeds: int = 5
    """Runs of each query policy with each teacher."""
    out: Path | None = None
    """Folder for the results; results/TASK if not given. Finished runs in it are kept."""
    iterations: int = 1000
    """Of each run: batches of episodes, one update each."""
    teachers: tuple[str, ...] = ("detm", "rand", "tworand", "twodifdetm")
    """Who answers; see `apil list`."""
    queries: tuple[str, ...] = QUERY_POLICIES.names()
    """When to ask; see `apil list`."""
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


def main() -> None:
    """Entry point of `apil`."""
    command = tyro.cli(Command, prog="apil", description=__doc_cli__)
    try:
        if isinstance(command, Train):
            train(command)
        elif isinstance(command, Evaluate):
            evaluate(command)
        elif isinstance(command, Study):
            study(command)
        elif isinstance(command, Calibrate):
            calibrate(command)
        elif isinstance(command, Replay):
            replay(command)
        elif isinstance(command, Doctor):
            doctor(command)
        else:
            show_list()
    except ApilError as error:
        print(f"apil: {error}", file=sys.stderr)
        sys.exit(2)
    except (OSError, MemoryError) as error:
        print(f"apil: {str(error) or 'out of memory'}. Check space, memory and permissions.", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        same = "what is finished is kept, and the same command goes on from there."
        on = f"go on with: apil train --resume {command.resume or command.out}" if isinstance(command, Train) else same
        print(f"apil: stopped at once; {on}", file=sys.stderr)
        sys.exit(130)


__doc_cli__ = "Train an agent from several teachers who disagree, and ask them only when asking helps."


def resolve(command: Train) -> RunConfig:
    """The settings of a run, every open one filled in."""
    from apil.runs.calibration import load_calibration, threshold_of

    iterations = 1000 if command.iterations is None else command.iterations
    positive("iterations", iterations)
    task = TASKS.load(command.task)()
    QUERY_POLICIES.check(command.query)
    threshold = command.threshold
    if threshold is not None and command.query not in THRESHOLD_POLICIES:
        raise ApilError(f"'{command.query}' has no threshold: leave --threshold out, or use another query policy.")
    if threshold is None:
        threshold = threshold_of(load_calibration(command.calibration), command.task, command.query)
    return RunConfig(
        task=command.task,
        teacher=command.teacher,
        query=command.query,
        seed=command.seed,
        iterations=iterations,
        batch=task.batch if command.batch is None else command.batch,
        learning_rate=command.learning_rate,
        expectation=command.expectation,
        samples=command.samples,
        models=command.models,
        threshold=threshold,
        sigma=command.sigma,
        epsilon=task.success_distance if command.epsilon is None else command.epsilon,
        gap=command.gap,
        weights=command.weights or None,
        selection=command.selection,
        log_every=command.log_every,
        save_every=command.save_every,
        teacher_deadline=command.teacher_deadline,
        on_teacher_error=command.on_teacher_error,
        answers=command.answers,
    )


def train(command: Train) -> None:
    """`apil train`"""
    from apil.runs.store import load_config
    from apil.runs.train import resume_run, start_run

    folder = command.resume or command.out
    if command.resume:
        _refuse_other_options(command)
        config = load_config(folder)
    else:
        config = resolve(command)
    total = command.iterations or config.iterations
    with _progress() as progress:
        bar = progress.add_task(f"{config.task}, {config.teacher}, {config.query}", total=total)

        def tell(done: int) -> None:
            progress.update(bar, completed=done)

        if command.resume:
            outcome = resume_run(folder, iterations=command.iterations, progress=tell)
        else:
            outcome = start_run(config, folder, progress=tell)
    if outcome.iteration < outcome.config.iterations:
        print(f"Stopped after {outcome.iteration} of {outcome.config.iterations} iterations; nothing is lost.")
        print(f"Go on with: apil train --resume {quote(str(folder))}")
        sys.exit(130)
    names = ("query_rate", "success", "intrinsic", "extrinsic", "model", "answers", "unanswered")
    figures = {name: outcome.last[name] for name in names if outcome.last and outcome.last.get(name) is not None}
    _print_table(f"At the end of {outcome.config.iterations} iterations", figures)
    if outcome.began == outcome.iteration:
        print(f"{folder} had done its {outcome.iteration} iterations before; train on with --iterations.")
        return
    _wrote(folder, f"next: apil evaluate {quote(str(folder))}")


def _refuse_other_options(command: Train) -> None:
    """A resumed run keeps its settings; an option that would change one must not be ignored in silence."""
    changed = [
        f.name
        for f in fields(Train)
        if f.name not in ("resume", "iterations") and getattr(command, f.name) != getattr(Train(), f.name)
    ]
    if changed:
        option = "--" + changed[0].replace("_", "-")
        raise ApilError(f"{option} cannot be changed on resume: the run keeps its settings; leave the option out.")
    if command.iterations is not None:
        positive("iterations", command.iterations)


def evaluate(command: Evaluate) -> None:
    """`apil evaluate`"""
    from apil.learning.evaluate import evaluate as measure
    from apil.learning.teacher_model import teacher_models
    from apil.runs.checkpoint import load_checkpoint
    from apil.runs.store import load_run, write_evaluation

    positive("episodes", command.episodes)
    config, agents = load_run(command.run)
    with _progress() as progress:
        bar = progress.add_task("evaluating", total=2 * command.episodes)
        result = measure(agents, command.episodes, lambda done: progress.update(bar, completed=done))[0]
    model = teacher_models(agents, min(200, command.episodes))[0]
    done = load_checkpoint(command.run, config)
    result = {"iteration": done[0] if done else 0, **result}
    path = write_evaluation(command.run, {**result, "teacher_model": model})
    _print_table(f"{config.task}, taught by {config.teacher}, query policy {config.query}", result)
    known = {name: value for name, value in model.items() if isinstance(value, float)}
    _print_table("Does the agent know its teachers? (divergences in bits)", known)
    _wrote(path)


def study(command: Study) -> None:
    """`apil study`"""
    from apil.runs.calibration import load_calibration, threshold_of
    from apil.runs.files import locked, make_folder
    from apil.studies.folder import claim_folder
    from apil.studies.plan import plan

    base = _study_base(command)
    calibration = load_calibration(command.calibration)
    queries = tuple(dict.fromkeys(QUERY_POLICIES.check(query) for query in command.queries))
    thresholds = {query: threshold_of(calibration, command.task, query) for query in queries}
    cells = plan(base, tuple(dict.fromkeys(command.teachers)), queries, command.seeds, thresholds)
    out = command.out or Path("results") / command.task
    claim_folder(out, command.task, _command_line(command))
    make_folder(out / "runs")
    with locked(out):
        _run_study(command, cells, out, calibration)


def _command_line(command: Study) -> str:
    """What to type for this study again."""
    words = ["apil", "study", command.task]
    for option in fields(Study):
        value = getattr(command, option.name)
        if option.name not in ("task", "keep_old", "workers") and value != option.default:
            name = "--" + option.name.replace("_", "-")
            many = value if isinstance(value, tuple) else [] if value is True else [value]
            words += [name, *map(str, many)]
    return join(words)


def _run_study(command: Study, cells: list[Cell], out: Path, calibration: Calibration) -> None:
    """Runs what is not finished of a study, and writes its tables, figures and report."""
    from apil.studies.engine import run_cells, standing, work_of
    from apil.studies.report import build_report
    from apil.studies.summary import write_records

    now = standing(cells, out / "runs", command.episodes)
    if now.other_code and not command.keep_old:
        raise ApilError(
            f"{len(now.other_code)} finished runs in {out / 'runs'} were made by other code or versions than these "
            f"({now.other_code[0].folder}, ...): remove them, choose another --out, or mix them with --keep-old."
        )
    print(
        f"{len(cells)} runs in {out / 'runs'}: {len(now.finished)} finished before and kept, "
        f"{len(now.begun)} begun and made anew, {len(now.todo) - len(now.begun)} new"
    )
    for what, named in (("Made anew", now.begun), ("Made by other code or versions", now.other_code)):
        if named:
            print(f"{what}: {', '.join(cell.folder for cell in named)}")
    strangers = {path.name for path in (out / "runs").iterdir()} - {cell.folder for cell in cells}
    if strangers:
        print(f"Left alone: {len(strangers)} runs with other settings, for example {min(strangers)}")
    with _progress() as progress:
        bar = progress.add_task(f"study {command.task}", total=max(1, work_of(now.todo)))
        run_cells(
            now.todo,
            out / "runs",
            command.episodes,
            command.workers,
            lambda n: progress.advance(bar, n),
        )
        progress.update(bar, completed=max(1, work_of(now.todo)))
    print("Writing tables, figures and the report")
    known = {query: entry for query, entry in calibration.get(command.task, {}).items() if query in command.queries}
    write_records(cells, out, known)
    build_report(out, command.workers)
    _wrote(out, f"open {out / 'report.html'}")


def _study_base(command: Study) -> RunConfig:
    """The settings that all runs of a study share."""
    from apil.learning.build import committee_of

    for name in ("seeds", "workers", "episodes"):
        positive(name, getattr(command, name))
    if not command.teachers or not command.queries:
        raise ApilError("A study needs at least one teacher and one query policy: see `apil list`.")
    paper = "monte-carlo" if command.task == "grid" else "exact"
    base = resolve(
        Train(
            task=command.task,
            teacher=command.teachers[0],
            query="never",
            iterations=command.iterations,
            expectation=command.expectation or paper,  # type: ignore[arg-type]
            samples=command.samples,
            models=command.models,
            log_every=command.log_every,
            answers=command.answers,
        )
    )
    for teacher in command.teachers:
        committee_of(RunConfig(task=command.task, teacher=teacher, query="never"))
    return base


def calibrate(command: Calibrate) -> None:
    """`apil calibrate`"""
    from apil.runs.calibration import load_calibration
    from apil.runs.files import make_folder, read_json, write_json
    from apil.studies.calibrate import calibrate as find

    positive("seeds", command.seeds)
    if not command.query:
        raise ApilError(f"No query policy to calibrate: give some of {', '.join(THRESHOLD_POLICIES)}.")
    for query in command.query:
        QUERY_POLICIES.check(query)
    base = resolve(Train(task=command.task, teacher="detm", query="apil", iterations=command.iterations))
    make_folder(command.out.parent)
    if command.out.exists():
        load_calibration(command.out)
    with _progress() as progress:
        bar = progress.add_task(f"calibrating on {command.task}", total=None)
        found = find(
            base,
            command.query,
            command.seeds,
            lambda done, total: progress.update(bar, completed=done, total=total),
        )
    saved = read_json(command.out) if command.out.exists() else {}
    saved[command.task] = {**saved.get(command.task, {}), **found}
    write_json(command.out, saved)
    for query, entry in found.items():
        print(f"{query:8} {entry['threshold']:<10g} {entry['how']}")
    _wrote(command.out, f"use it with --calibration {command.out}")


def replay(command: Replay) -> None:
    """`apil replay`"""
    from apil.runs.replay import frames, save_movie
    from apil.runs.store import load_run

    positive("episodes", command.episodes)
    if command.first < 0:
        raise ApilError(f"first is {command.first}: episode numbers start at 0.")
    _, agents = load_run(command.run)
    shown = frames(agents, command.episodes, command.first)
    if command.out is not None:
        save_movie(shown, command.out)
        _wrote(command.out)
        return
    for frame in shown:
        print(f"episode {frame.episode}, step {frame.step}: {frame.caption}")
        print("\n".join("  " + " ".join(row) for row in frame.picture.cells))


def doctor(command: Doctor) -> None:
    """`apil doctor`"""
    from apil.runs.doctor import examine

    healthy = True
    for finding in examine(command.folder):
        mark = "ok" if finding.good else "MISSING" if finding.needed else "-"
        print(f"{mark:8} {finding.what}: {finding.told}")
        healthy = healthy and (finding.good or not finding.needed)
    if not healthy:
        raise ApilError("Something that apil needs does not work: see MISSING above.")
    print("All that apil needs is there.")


def show_list() -> None:
    """`apil list`"""
    for title, registry in (("Tasks", TASKS), ("Teachers", TEACHERS), ("Query policies", QUERY_POLICIES)):
        print(title)
        for entry in registry:
            print(f"  {entry.name:12} {entry.summary}")
        print()


@contextmanager
def _progress() -> Iterator[Progress]:
    """A progress bar with the time left."""
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as progress:
        yield progress


def _print_table(title: str, figures: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in figures.items():
        table.add_row(name.replace("_", " "), f"{value:.4f}" if isinstance(value, float) else str(value))
    Console().print(table)


def _wrote(path: Path, then: str = "") -> None:
    print(f"Wrote {path}" + (f" ({then})" if then else ""))


if __name__ == "__main__":
    main()
