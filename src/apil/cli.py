"""The command line. Parsing imports nothing heavy; each command imports what it needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, Field, fields, replace
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Any

import tyro

from apil.commands import (
    Calibrate,
    Command,
    DataHouses,
    DataR2R,
    DataShow,
    Doctor,
    Evaluate,
    Export,
    List,
    Replay,
    Study,
    Train,
)
from apil.config import Option, RunConfig, positive
from apil.errors import ApilError, unknown_name
from apil.query import QUERY_POLICIES, THRESHOLD_POLICIES, needs_threshold, study_policies, takes_budget
from apil.tasks import TASKS
from apil.teachers import TEACHERS

if TYPE_CHECKING:
    from rich.progress import Progress

    from apil.learning.collect import Agents
    from apil.studies.plan import Cell
    from apil.tasks.r2r.task import R2R


def main() -> None:
    """Entry point of `apil`."""
    command: Any = None
    try:
        command = tyro.cli(Command, prog="apil", description=__doc_cli__)
        _CARRIED_OUT[type(command)](command)
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
    from apil.learning.build import make_task
    from apil.runs.calibration import load_calibration, threshold_of

    settings, options = _r2r_settings(command) if command.task == "r2r" else ({}, {})
    if command.iterations is not None:
        positive("iterations", command.iterations)
        settings["iterations"] = command.iterations
    for name in ("learning_rate", "optimizer", "average"):
        if getattr(command, name) is not None:
            settings[name] = getattr(command, name)
    task = make_task(RunConfig(task=command.task, teacher=command.teacher, query=command.query, options=options))
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
        batch=task.batch if command.batch is None else command.batch,
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
        options=options,
        **settings,
    )


def _r2r_settings(command: Train) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of the preset, and the options of the task and its encoder."""
    from apil.tasks.r2r.presets import PRESETS
    from apil.tasks.r2r.task import R2R

    preset = PRESETS[command.preset]
    encoder = {**preset.encoder, "features": command.features}
    encoder |= options_of(command.option)
    if not command.data:
        print("No --data: the agent lives in generated houses (made on first use); see docs/guide/r2r.md.")
    place = {"data": command.data, "horizon": command.horizon, "reading": command.reading, "held_out": command.held_out}
    return dict(preset.settings), {**place, "digest": R2R(**place).world.digest, **encoder}  # type: ignore[arg-type]


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
    from apil.runs.store import load_config, load_run, write_evaluation

    if command.episodes is not None:
        positive("episodes", command.episodes)
    if command.draw < 0:
        raise ApilError(f"draw is {command.draw}: give the number of episodes to draw.")
    if load_config(command.run).task == "r2r":
        _evaluate_r2r(command)
        return
    episodes = 1000 if command.episodes is None else command.episodes
    config, agents = load_run(command.run)
    with _progress() as progress:
        bar = progress.add_task("evaluating", total=2 * episodes)
        result = measure(agents, episodes, lambda done: progress.update(bar, completed=done))[0]
    model = teacher_models(agents, min(200, episodes))[0]
    done = load_checkpoint(command.run, config)
    result = {"iteration": done.iteration if done else 0, **result}
    path = write_evaluation(command.run, {**result, "teacher_model": model})
    _print_table(f"{config.task}, taught by {config.teacher}, query policy {config.query}", result)
    known = {name: value for name, value in model.items() if isinstance(value, float)}
    _print_table("Does the agent know its teachers? (divergences in bits)", known)
    _wrote(path)


def _evaluate_r2r(command: Evaluate) -> None:
    """`apil evaluate` of a run on R2R."""
    from apil.learning.build import make_task
    from apil.learning.navigation import evaluate_split
    from apil.runs.store import load_config, load_run, write_evaluation
    from apil.tasks.r2r.task import R2R

    config = load_config(command.run)
    options = {**config.options, "data": command.data or config.options["data"]}
    split = command.split or "val_unseen"
    task = make_task(replace(config, options=options))
    assert isinstance(task, R2R)
    if split not in task.splits:
        raise unknown_name("split", split, task.splits)
    _, agents = load_run(command.run, options=options)
    with _progress() as progress:
        total = len(task.of_split(split).episodes[: command.episodes])
        bar = progress.add_task(f"evaluating on {split}", total=2 * total)
        result = evaluate_split(
            agents,
            split,
            greedy=not command.sample,
            limit=command.episodes,
            shuffle=command.shuffle,
            progress=lambda done: progress.update(bar, completed=done),
        )
    path = write_evaluation(command.run, result, f"{split}-shuffled" if command.shuffle else split)
    _print_table(f"R2R {split}, taught by {config.teacher}, query policy {config.query}", result)
    _wrote(path)
    if command.draw:
        _draw_maps(command, config, agents, task.of_split(split))


def _draw_maps(command: Evaluate, config: RunConfig, agents: Agents, task: R2R) -> None:
    """Maps of the first episodes, as they went with help."""
    from apil.studies.routes import draw_first

    walked = task.shuffled() if command.shuffle else task
    folder = command.run / "maps"
    drawn = draw_first(config, agents, walked, folder, command.draw, greedy=not command.sample, limit=command.episodes)
    print(f"Wrote {len(drawn) // 2} maps into {folder}")


def study(command: Study) -> None:
    """`apil study`"""
    if command.task.endswith(".toml"):
        own_study(command)
        return
    from apil.runs.calibration import load_calibration, threshold_of
    from apil.runs.files import locked, make_folder
    from apil.studies.folder import claim_folder

    typed = _command_line(command)
    command = _filled(command)
    base = _study_base(command)
    queries = tuple(dict.fromkeys(QUERY_POLICIES.check(query) for query in command.queries))
    out = command.out or Path("results") / command.task
    calibration = load_calibration(command.calibration)
    claim_folder(out, command.task, typed)
    make_folder(out / "runs")
    with locked(out):
        if command.task == "r2r":
            calibration["r2r"] = _r2r_thresholds(command, base, queries, out, calibration.get("r2r", {}))
        thresholds = {query: threshold_of(calibration, command.task, query) for query in queries}
        cells = _study_cells(command, base, queries, thresholds)
        assert command.episodes is not None
        _run_cells(command, cells, out, command.episodes)
        known = {query: entry for query, entry in calibration.get(command.task, {}).items() if query in queries}
        _write_report(command, cells, out, known)
    _wrote(out, f"open {out / 'report.html'}")


def _write_report(command: Study, cells: list[Cell], out: Path, thresholds: dict[str, dict[str, Any]]) -> None:
    """Records, tables, figures and the page, from the finished runs of a study."""
    from apil.studies.report import build_report
    from apil.studies.routes import write_examples
    from apil.studies.summary import write_records

    assert command.episodes is not None
    write_records(cells, out, thresholds)
    if command.task == "r2r":
        write_examples(cells, out, command.episodes, command.maps)
    build_report(out, command.workers)


def _filled(command: Study) -> Study:
    """The command with what was left open filled in."""
    from apil.studies.plan import R2R_QUERIES

    r2r = command.task == "r2r"
    return replace(
        command,
        seeds=command.seeds if command.seeds is not None else 3 if r2r else 5,
        queries=command.queries or (R2R_QUERIES if r2r else study_policies()),
        episodes=command.episodes if command.episodes is not None else 0 if r2r else 1000,
    )


def _study_cells(
    command: Study, base: RunConfig, queries: tuple[str, ...], thresholds: dict[str, float | None]
) -> list[Cell]:
    from apil.studies.plan import plan, plan_r2r

    teachers = tuple(dict.fromkeys(command.teachers))
    assert command.seeds is not None
    if command.task == "r2r":
        return plan_r2r(base, teachers, queries, command.seeds, command.other_seeds, thresholds)
    budgets = {query: command.budget for query in queries if takes_budget(query)}
    return plan(base, teachers, queries, command.seeds, thresholds, budgets)


def _r2r_thresholds(
    command: Study, base: RunConfig, queries: Sequence[str], out: Path, known: dict[str, Any]
) -> dict[str, Any]:
    """Thresholds of the study: those given, or found once on DETM in runs of a fifth of the length."""
    from apil.runs.files import read_json, write_json
    from apil.studies.calibrate import calibrate_briefly

    found = read_json(out / "thresholds.json") if (out / "thresholds.json").exists() else {}
    missing = [q for q in queries if q in THRESHOLD_POLICIES and q not in known and q not in found]
    if missing:
        with _progress() as progress:
            bar = progress.add_task(f"calibrating {', '.join(missing)} on detm", total=None)
            found |= calibrate_briefly(
                base, missing, command.workers, lambda done, total: progress.update(bar, completed=done, total=total)
            )
        write_json(out / "thresholds.json", found)
    return {**found, **known}


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
        f"{len(now.trained)} trained before and evaluated now, {len(now.begun)} begun and gone on with, "
        f"{len(now.anew)} begun and made anew, {len(now.todo) - len(now.trained + now.begun + now.anew)} new"
    )
    for what, named in (
        ("Evaluated", now.trained),
        ("Gone on with", now.begun),
        ("Made anew", now.anew),
        ("Made by other code or versions", now.other_code),
    ):
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

    for name in ("seeds", "workers", "other_seeds", *(("episodes",) if command.task != "r2r" else ())):
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
            data=command.data,
            preset=command.preset,
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
        rows = [" ".join(row) for row in frame.picture.cells] or [frame.picture.text]
        print("\n".join(f"  {row}" for row in rows))


def data_r2r(command: DataR2R) -> None:
    """`apil data r2r`"""
    from apil.tasks.r2r.compile import compile_world

    with _stages() as tell:
        path = compile_world(command.source, command.out, tell, command.image_features, command.text_model)
    data_show(DataShow(path))
    _wrote(path)


def data_houses(command: DataHouses) -> None:
    """`apil data houses`"""
    from apil.tasks.r2r.houses_folder import write_houses
    from apil.tasks.r2r.world import World

    with _stages() as tell:
        path = write_houses(command.out, command.houses, command.seed, tell)
    world = World.open(path)
    paths = ", ".join(f"{int(split.path_index.max()) + 1} {name}" for name, split in world.splits.items())
    print(f"{len(world.scans)} houses with {len(world.viewpoints)} viewpoints; paths: {paths}")
    _wrote(path)


@contextmanager
def _stages() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar for work that tells what it is doing, and how much of how much is done."""
    with _progress() as progress:
        bar = progress.add_task("reading", total=1)

        def tell(stage: str, done: int, total: int) -> None:
            progress.update(bar, description=stage, completed=done, total=total)

        yield tell
        progress.update(bar, description="compiled", completed=1, total=1)


def data_show(command: DataShow) -> None:
    """`apil data show`"""
    from apil.tasks.r2r.summary import GRAPHS, differences, is_official, summary
    from apil.tasks.r2r.world import World

    world = World.open(command.data)
    figures = summary(world)
    _print_table("Graphs", figures[GRAPHS])
    _print_columns("Splits", {name: figures[name] for name in world.splits})
    lacking = [
        name for name in ("captions", "objects", "rooms", "glove", "images", "readings") if name not in world.features
    ]
    print(f"Vocabulary: {len(world.vocabulary)} words. Features: {', '.join(world.features) or 'none'}")
    if lacking:
        print(f"Not in the raw files: {', '.join(lacking)} (docs/guide/r2r.md says where to get them)")
    if is_official(world):
        told = [f"Not as published for R2R: {difference}" for difference in differences(figures)]
        print("\n".join(told) or "All figures are as published for R2R.")


def export(command: Export) -> None:
    """`apil export`"""
    from apil.runs.export import export_episodes
    from apil.runs.store import load_run

    positive("episodes", command.episodes)
    config, agents = load_run(command.run)
    about = {"task": config.task, "teacher": config.teacher, "query": config.query, "seed": config.seed}
    with _progress() as progress:
        bar = progress.add_task("exporting", total=command.episodes)
        folder = export_episodes(
            agents,
            command.out,
            command.episodes,
            about=about,
            progress=lambda done: progress.update(bar, completed=done),
        )
    _wrote(folder, f"teach with it: apil.teachers.load_demonstrations({command.out!r})")


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


def show_list(command: List) -> None:
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


def _print_columns(title: str, columns: dict[str, dict[str, float]]) -> None:
    """Figures side by side; a column may lack some."""
    from rich.console import Console
    from rich.table import Table

    table = Table("", *(name.replace("_", " ") for name in columns), title=title, title_justify="left")
    for figure in dict.fromkeys(figure for column in columns.values() for figure in column):
        values = [column.get(figure, "-") for column in columns.values()]
        shown = [f"{value:.3f}" if isinstance(value, float) else str(value) for value in values]
        table.add_row(figure.replace("_", " "), *shown)
    Console().print(table)


def _wrote(path: Path, then: str = "") -> None:
    print(f"Wrote {path}" + (f" ({then})" if then else ""))


_CARRIED_OUT: dict[type, Callable[[Any], None]] = {
    Train: train,
    Evaluate: evaluate,
    Study: study,
    Calibrate: calibrate,
    Replay: replay,
    DataR2R: data_r2r,
    DataHouses: data_houses,
    DataShow: data_show,
    Export: export,
    Doctor: doctor,
    List: show_list,
}
"""What each command does."""


if __name__ == "__main__":
    main()
