"""`apil study` and `apil calibrate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, Field, fields, replace
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

from apil.cli.show import progress_bar, wrote
from apil.cli.training import resolve
from apil.commands import Calibrate, Study, Train
from apil.config import RunConfig, positive
from apil.errors import ApilError
from apil.query import QUERY_POLICIES, THRESHOLD_POLICIES, needs_threshold, study_policies, takes_budget

if TYPE_CHECKING:
    from apil.studies.plan import Cell


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
    # Generated houses are not R2R: they must not take the place of its results.
    out = command.out or Path("results") / ("houses" if command.task == "r2r" and not command.data else command.task)
    calibration = load_calibration(command.calibration)
    claim_folder(out, command.task, typed)
    make_folder(out / "runs")
    with locked(out):
        if command.task == "r2r":
            calibration["r2r"] = _r2r_thresholds(command, base, queries, out, calibration.get("r2r", {}))
        thresholds = {query: threshold_of(calibration, command.task, query) for query in queries}
        if command.so_far:  # a policy whose threshold was not found yet has no runs
            queries = tuple(query for query in queries if thresholds[query] is not None or not needs_threshold(query))
        cells = _study_cells(command, base, queries, thresholds)
        assert command.episodes is not None
        cells = _run_cells(command, cells, out, command.episodes)
        known = {query: entry for query, entry in calibration.get(command.task, {}).items() if query in queries}
        _write_report(command, cells, out, known)
    wrote(out, f"open {out / 'report.html'}")


def _write_report(command: Study, cells: list[Cell], out: Path, thresholds: dict[str, dict[str, Any]]) -> None:
    """Records, tables, figures and the page, from the finished runs of a study."""
    from apil.r2r.routes import write_examples
    from apil.studies.report import build_report
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
    from apil.studies.plan import Cell

    # What a smaller study in this folder does not need is kept here for a larger one; thresholds.json is the report's.
    file = out / "calibration.json"
    # Thresholds of other data, lengths or sizes are not these.
    made_for = Cell(replace(base, teacher="detm")).folder.rsplit("-", 1)[1]
    kept = read_json(file) if file.exists() else {}
    found = kept.get("thresholds", {}) if isinstance(kept, dict) and kept.get("settings") == made_for else {}
    missing = [q for q in queries if q in THRESHOLD_POLICIES and q not in known and q not in found]
    if missing and not command.so_far:
        with progress_bar() as progress:
            bar = progress.add_task(f"calibrating {', '.join(missing)} on detm", total=None)
            found |= calibrate_briefly(
                base,
                missing,
                command.workers,
                lambda done, total: progress.update(bar, completed=done, total=total),
                out / "calibration_runs.json",
            )
        write_json(file, {"settings": made_for, "thresholds": found})
    return {**found, **known}


_OF_THE_COMMAND = ("task", "out", "workers", "keep_old", "calibration")
"""Options of `apil study` that a study file leaves to the command line."""


def own_study(command: Study) -> None:
    """`apil study FILE.toml`"""
    from apil.runs.calibration import load_calibration
    from apil.runs.files import locked, make_folder
    from apil.studies.comparison import write_comparison, write_task
    from apil.studies.files import own_plan, read_own_study
    from apil.studies.folder import claim_folder

    for option in fields(Study):
        if option.name not in _OF_THE_COMMAND and getattr(command, option.name) != _usual(option):
            name = option.name.replace("_", "-")
            raise ApilError(f"--{name} does not go with a study file: leave it out, or set it in {command.task}.")
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
    wrote(out, f"open {out / 'report.html'}")


def _command_line(command: Study) -> str:
    """What to type for this study again."""
    words = ["apil", "study", command.task]
    for option in fields(Study):
        value = getattr(command, option.name)
        if option.name not in ("task", "so_far", "workers") and value != _usual(option):
            name = "--" + option.name.replace("_", "-")
            many = value if isinstance(value, tuple) else [] if value is True else [value]
            words += [name, *map(str, many)]
    return join(words)


def _usual(option: Field[Any]) -> Any:
    """The default of an option."""
    return option.default if option.default_factory is MISSING else option.default_factory()


def _run_cells(command: Study, cells: list[Cell], out: Path, episodes: int) -> list[Cell]:
    """Runs what is not finished of a study; returns the runs to report of."""
    from apil.studies.engine import run_cells, standing, work_of

    wanted = cells
    once: dict[str, Cell] = {}
    for cell in wanted:  # one run may serve two policies
        once.setdefault(cell.folder, cell)
    cells = list(once.values())
    now = standing(cells, out / "runs", episodes)
    if now.other_code and not command.keep_old:
        raise ApilError(
            f"{len(now.other_code)} finished runs in {out / 'runs'} were made by other code or versions than these "
            f"({now.other_code[0].folder}, ...): remove them, choose another --out, or mix them with --keep-old."
        )
    if now.spent and not command.so_far:
        raise ApilError(
            f"{len(now.spent)} finished runs in {out / 'runs'} were evaluated over other --episodes, and their weights "
            f"are gone ({now.spent[0].folder}, ...): give --episodes as before, choose another --out, or remove them."
        )
    if command.so_far:
        print(f"{len(now.finished)} of {len(cells)} runs in {out / 'runs'} are finished")
        if not now.finished:
            raise ApilError(f"No run in {out / 'runs'} is finished: leave --so-far out to make them.")
        finished = {cell.folder for cell in now.finished}
        return [cell for cell in wanted if cell.folder in finished]
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
    with progress_bar() as progress:
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
    return wanted


def _study_base(command: Study) -> RunConfig:
    """The settings that all runs of a study share."""
    from apil.learning.build import committee_of

    for name in ("seeds", "workers", "other_seeds", *(("episodes",) if command.task != "r2r" else ())):
        positive(name, getattr(command, name))
    if command.episodes is not None and command.episodes < 0:
        raise ApilError(f"--episodes is {command.episodes}: give a number of episodes, or 0 for all of each split.")
    if command.task == "r2r" and command.budget is not None:
        raise ApilError(
            "--budget does not go with `apil study r2r`, whose rules have thresholds: leave it out or use `apil train`."
        )
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
    if command.task == "r2r":
        raise ApilError(
            "Thresholds on r2r are found by `apil study r2r`: they are in the calibration.json of its folder."
        )
    base = resolve(Train(task=command.task, teacher="detm", query="apil", iterations=command.iterations))
    make_folder(command.out.parent)
    if command.out.exists():
        load_calibration(command.out)
    with progress_bar() as progress:
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
    wrote(command.out, f"use it with --calibration {command.out}")
