"""The command line. Parsing imports nothing heavy; each command imports what it needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING, Field, fields
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Any

import tyro

from apil.commands import Calibrate, Command, Doctor, Evaluate, Replay, Study, Train
from apil.config import Option, RunConfig, positive
from apil.errors import ApilError
from apil.query import QUERY_POLICIES, THRESHOLD_POLICIES, needs_threshold, takes_budget
from apil.tasks import TASKS
from apil.teachers import TEACHERS

if TYPE_CHECKING:
    from rich.progress import Progress

    from apil.studies.plan import Cell


def main() -> None:
    """Entry point of `apil`."""
    command: Any = None
    try:
        command = tyro.cli(Command, prog="apil", description=__doc_cli__)
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
    except BrokenPipeError:
        # Whoever read the output has seen enough; Python would complain again when it closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
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
    if threshold is not None and not needs_threshold(command.query):
        raise ApilError(f"'{command.query}' has no threshold: leave --threshold out, or use another query policy.")
    if threshold is None and command.budget is None:
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
        budget=command.budget,
        query_options=options_of(command.query_options),
    )


def options_of(words: tuple[str, ...]) -> dict[str, Option]:
    """Settings typed as name=value: true and false, numbers, and words."""
    options: dict[str, Option] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (name and equals and text):
            raise ApilError(f"'{word}' is not an option: write name=value, for example k=5.")
        options[name] = _plain(text)
    return options


def _plain(text: str) -> Option:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


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
    if command.task.endswith(".toml"):
        own_study(command)
        return
    from apil.runs.calibration import load_calibration, threshold_of
    from apil.runs.files import locked, make_folder
    from apil.studies.folder import claim_folder
    from apil.studies.plan import plan
    from apil.studies.report import build_report
    from apil.studies.summary import write_records

    base = _study_base(command)
    calibration = load_calibration(command.calibration)
    queries = tuple(dict.fromkeys(QUERY_POLICIES.check(query) for query in command.queries))
    budgets = {query: command.budget for query in queries if takes_budget(query)}
    thresholds = {query: threshold_of(calibration, command.task, query) for query in queries}
    cells = plan(base, tuple(dict.fromkeys(command.teachers)), queries, command.seeds, thresholds, budgets)
    out = command.out or Path("results") / command.task
    claim_folder(out, command.task, _command_line(command))
    make_folder(out / "runs")
    known = {query: entry for query, entry in calibration.get(command.task, {}).items() if query in command.queries}
    with locked(out):
        _run_cells(command, cells, out, command.episodes)
        write_records(cells, out, known)
        build_report(out, command.workers)
    _wrote(out, f"open {out / 'report.html'}")


_OF_THE_COMMAND = ("task", "out", "workers", "keep_old", "calibration")
"""Options of `apil study` that a study file leaves to the command line."""


def own_study(command: Study) -> None:
    """`apil study FILE.toml`"""
    from apil.runs.calibration import load_calibration
    from apil.runs.files import locked, make_folder
    from apil.studies.folder import claim_folder
    from apil.studies.own import own_plan, read_own_study
    from apil.studies.own_report import write_comparison, write_task

    for option in fields(Study):
        if option.name not in _OF_THE_COMMAND and getattr(command, option.name) != _usual(option):
            name = option.name.replace("_", "-")
            raise ApilError(f"--{name} does not go with a study file: set it in {command.task}.")
    positive("workers", command.workers)
    path = Path(command.task)
    wanted = read_own_study(path)
    calibration = load_calibration(command.calibration)
    cells = {task.label: own_plan(wanted, task, calibration) for task in wanted.tasks}
    out = command.out or Path("results") / path.stem
    claim_folder(out, path.stem, _command_line(command))
    with locked(out):
        found = {}
        for task in wanted.tasks:
            folder = out / task.label
            claim_folder(folder, task.label, _command_line(command))
            make_folder(folder / "runs")
            _run_cells(command, cells[task.label], folder, wanted.episodes)
            found[task.label] = write_task(wanted, cells[task.label], folder, command.workers)
        write_comparison(wanted, found, out, path.stem)
    _wrote(out, f"open {out / 'report.html'}")


def _command_line(command: Study) -> str:
    """What to type for this study again."""
    words = ["apil", "study", command.task]
    for option in fields(Study):
        value = getattr(command, option.name)
        if option.name not in ("task", "keep_old", "workers") and value != _usual(option):
            name = "--" + option.name.replace("_", "-")
            many = value if isinstance(value, tuple) else [] if value is True else [value]
            words += [name, *map(str, many)]
    return join(words)


def _usual(option: Field[Any]) -> Any:
    """The default of an option."""
    return option.default if option.default_factory is MISSING else option.default_factory()


def _run_cells(command: Study, cells: list[Cell], out: Path, episodes: int) -> None:
    """Runs what is not finished of a study."""
    from apil.studies.engine import run_cells, standing, work_of

    now = standing(cells, out / "runs", episodes)
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
        bar = progress.add_task(f"study {cells[0].config.task}", total=max(1, work_of(now.todo)))
        run_cells(
            now.todo,
            out / "runs",
            episodes,
            command.workers,
            lambda n: progress.advance(bar, n),
        )
        progress.update(bar, completed=max(1, work_of(now.todo)))
    print("Writing tables, figures and the report")


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
            print(f"  {entry.name:16} {entry.summary}")
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
