"""A study from start to report: of one task by its name, or of what a file describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.progress import TaskID

from apil.errors import ApilError, plural
from apil.files import make_folder, refuse_link
from apil.learning.build import committee_of, stackable
from apil.query import QUERY_POLICIES, needs_threshold
from apil.runs.calibration import load_calibration, threshold_of
from apil.runs.resolve import resolve
from apil.settings.record import described
from apil.studies.bill import write_bill
from apil.studies.board import Board
from apil.studies.engines import Open, Tally, local, run_cells
from apil.studies.equal import Measured, write_points, write_pooled
from apil.studies.files import StudyFile, finished_part, own_plan, read_study_file
from apil.studies.folder import claimed, looked_at, reporting
from apil.studies.interactions import write_comparison, write_task
from apil.studies.kind import Asked, StudyKind, kind_of
from apil.studies.options import MACHINERY, StudyOptions, Upkeep
from apil.studies.plan import Cell
from apil.studies.records import StudyRecords, read_study
from apil.studies.report import build_report
from apil.studies.stack import standing, work_of
from apil.studies.summary import write_records
from apil.tasks import TASKS
from apil.terminal import progress_bars
from apil.terminal.bars import Bars


class Reporter:
    """Where a study says how it stands: lines and bars."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self.line = bars.line
        self._made: dict[str, TaskID] = {}

    def progress(self, what: str, done: int, total: int) -> None:
        """What is being done, how much of it is done, and of how much."""
        if what not in self._made:
            self._made[what] = self._bars.add(what, total)
        self._bars.update(self._made[what], done=done, total=total)

    def advance(self, what: str, units: int) -> None:
        self._bars.advance(self._made[what], units)

    def tally(self, what: str, runs: Tally) -> None:
        """How many runs are in which state, beside the bar."""
        words = f"{what}: {runs.done} runs done, {runs.running} running"
        failed = f", {runs.failed} failed" if runs.failed else ""
        self._bars.update(self._made[what], what=words + failed)
        self._bars.expect(self._made[what], runs.left)


def study(
    spec: str | Path,
    *,
    out: str | Path | None = None,
    command: str = "",
    progress: bool = True,
    **given: Any,
) -> dict[str, StudyRecords]:
    """Compares query policies: trains what is not finished, writes tables, figures and a report.

    `spec` is the name of a task, or a .toml file that describes a study. `given` are the options of a study
    (`StudyOptions`) and, for a task, settings of its runs by their typed names and options of the task. Finished runs
    in `out` (results/NAME if not given) are kept. `command` is noted in the folder as the way to make it again.
    Returns the records of each task by its name.

    Examples:
        >>> few = {"teachers": ("detm",), "queries": ("apil", "dagger")}
        >>> found = apil.study("grid", seeds=3, iterations=500, episodes=100, workers=1, out="runs/study", **few)
        >>> 0 <= found["grid"].cell("detm", "apil").figure("query_rate").mean <= 1
        True
    """
    own = {name: value for name, value in given.items() if name in described(StudyOptions)}
    rest = {name: value for name, value in given.items() if name not in own}
    options = StudyOptions(**own)
    with progress_bars(progress) as bars, _engine(options, own.get("workers"), reporter := Reporter(bars)) as engine:
        if str(spec).endswith(".toml"):
            return _of_file(Path(spec), options, set(own) | set(rest), out, command, reporter, engine)
        return {str(spec): _of_task(TASKS.check(str(spec)), options, rest, out, command, reporter, engine)}


@dataclass(frozen=True)
class _Chosen:
    """Where the runs of a study are trained."""

    open: Open
    workers: int
    """Stacks at a time."""


@contextmanager
def _engine(options: StudyOptions, workers: int | None, reporter: Reporter) -> Iterator[_Chosen]:
    """The engine that was asked for; `workers` as given."""
    if options.engine == "local" or options.so_far:
        for name in ("ray_address", "storage"):
            if getattr(options, name) is not None and options.engine == "local":
                raise ApilError(f"{name} is for the engine 'ray': leave it out, or choose that engine.")
        yield _Chosen(local, options.workers)
        return
    from apil.studies.ray_engine import connected, on_ray

    with connected(options.ray_address, workers) as cluster:
        reporter.line(cluster.about)
        yield _Chosen(on_ray(options.storage, options.keep_old), workers or cluster.cores)


def _of_task(
    task: str,
    options: StudyOptions,
    given: Mapping[str, Any],
    out: str | Path | None,
    command: str,
    reporter: Reporter,
    engine: _Chosen,
) -> StudyRecords:
    kind = kind_of(task)
    asked = _asked(task, kind, options, given, out, reporter)
    made_by = command or f"apil study {task} --out {asked.out}"
    with looked_at(asked.out, task) if asked.so_far else claimed(asked.out, task, made_by):
        notes = kind.thresholds(asked, lambda done, total: reporter.progress(f"calibrating on {task}", done, total))
        thresholds = {query: threshold_of({task: notes}, task, query) for query in asked.queries}
        if asked.so_far:  # a policy whose threshold was not found yet has no runs
            known = tuple(q for q in asked.queries if thresholds[q] is not None or not needs_threshold(q))
            asked = replace(asked, queries=known)
        cells = finish(kind.plan(asked, thresholds), asked.out, asked.episodes, options, reporter, engine=engine)
        reporter.line("Writing tables, figures and the report")
        with reporting(asked.out):
            write_records(cells, asked.out, {query: notes[query] for query in asked.queries if query in notes})
            write_bill(asked.out, {task: cells})
            kind.examples(asked, cells)
            build_report(asked.out, options.workers)
    return read_study(asked.out)


def _asked(
    task: str,
    kind: StudyKind,
    options: StudyOptions,
    given: Mapping[str, Any],
    out: str | Path | None,
    reporter: Reporter,
) -> Asked:
    """What was asked for, with what was left open filled in."""
    own = {name: value for name, value in given.items() if name in described(kind.arguments)}
    kind.arguments(**own)
    if options.budget is not None and not stackable(task):
        raise ApilError(f"--budget does not go with a study of '{task}', whose rules have thresholds: leave it out.")
    queries = tuple(dict.fromkeys(QUERY_POLICIES.check(query) for query in options.queries or kind.queries()))
    teachers = tuple(dict.fromkeys(options.teachers))
    if not teachers:
        raise ApilError("A study needs at least one teacher: see `apil list`.")
    calibration = load_calibration(options.calibration)
    shared = {name: value for name, value in given.items() if name not in own}
    for name in ("seed", "threshold", "weights", "selection", "query_options"):
        if name in shared:
            raise ApilError(f"{name} does not go with a study of several: leave it out, or write a study file.")
    shared = {"answers": False, **TASKS.trait(task, "study_settings", {}), **shared}
    found = resolve(task, teachers[0], "never", shared, calibration, shared_by=queries, as_printed=True)
    if found.notice:
        reporter.line(found.notice)
    for teacher in teachers:
        committee_of(found.settings.changed(teacher=teacher))
    episodes = kind.episodes if options.episodes is None else options.episodes
    if episodes < 1 and kind.episodes:
        raise ApilError(f"episodes is {episodes}: give a whole number from 1 up.")
    return Asked(
        base=found.settings,
        teachers=teachers,
        queries=queries,
        seeds=options.seeds or kind.seeds,
        episodes=episodes,
        workers=options.workers,
        out=Path(out or Path("results") / kind.folder(task, given)),
        calibration=calibration.get(task, {}),
        budget=options.budget,
        so_far=options.so_far,
        options=own,
    )


def _of_file(
    path: Path,
    options: StudyOptions,
    given: set[str],
    out: str | Path | None,
    command: str,
    reporter: Reporter,
    engine: _Chosen,
) -> dict[str, StudyRecords]:
    for name in sorted(given - {*MACHINERY, "keep_old", "calibration", "so_far"}):
        raise ApilError(f"{name.replace('_', '-')} does not go with a study file: leave it out, or set it in {path}.")
    wanted = read_study_file(path)
    calibration = load_calibration(options.calibration)
    cells = {task.label: own_plan(wanted, task, calibration, path) for task in wanted.tasks}
    folder = Path(out or Path("results") / path.stem)
    command = command or f"apil study {path} --out {folder}"
    if options.so_far:
        with looked_at(folder, path.stem), reporting(folder):
            there = {label: _finished(own, folder / label, wanted, options, reporter) for label, own in cells.items()}
            wanted, cells = finished_part(wanted, there)
            pages = _Pages(wanted, folder, options.workers, reporter)
            for label, own in cells.items():
                pages.add(label, own)
            pages.compare(path.stem)
        return {label: read_study(folder / label) for label in cells}
    with claimed(folder, path.stem, command):
        pages = _Pages(wanted, folder, options.workers, reporter)
        for label, own in cells.items():
            refuse_link(folder / label)
            with claimed(folder / label, label, command):
                finish(own, folder / label, wanted.episodes, options, reporter, engine=engine)
                with reporting(folder):
                    pages.add(label, own)
        with reporting(folder):
            pages.compare(path.stem)
    return {label: read_study(folder / label) for label in cells}


@dataclass
class _Pages:
    """Writes the reports of a study file: one for each task, and one that compares them."""

    wanted: StudyFile
    folder: Path
    workers: int
    reporter: Reporter
    tasks: list[str] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)

    def add(self, label: str, cells: Sequence[Cell]) -> None:
        """Writes tables, figures and report of a task."""
        self.reporter.line("Writing tables, figures and the report")
        self.tasks.append(label)
        if self.wanted.answers:
            self.measured += write_points(self.wanted, cells, self.folder / label, label, self.workers)
        else:
            write_task(self.wanted, cells, self.folder / label, self.workers)

    def compare(self, name: str) -> None:
        if self.wanted.answers:
            write_pooled(self.wanted, self.measured, self.folder, name)
        else:
            write_comparison(self.tasks, self.folder, name)


def _finished(
    cells: Sequence[Cell], folder: Path, wanted: StudyFile, options: StudyOptions, reporter: Reporter
) -> list[Cell]:
    """The finished runs of a task of a study file; none where it has not begun."""
    runs = folder / "runs"
    if not runs.is_dir() or not standing(cells, runs, wanted.episodes).finished:
        return []
    return finish(cells, folder, wanted.episodes, options, reporter)


def finish(
    wanted: Sequence[Cell],
    out: Path,
    episodes: int,
    options: Upkeep,
    reporter: Reporter,
    *,
    name: str = "",
    alone: bool = False,
    engine: _Chosen | None = None,
) -> list[Cell]:
    """Runs what is not finished of a study; returns the runs to report of. `alone` as in `run_cells`.

    Without an `engine` they are trained in processes of this machine.
    """
    engine = engine or _Chosen(local, options.workers)
    cells = list({cell.folder: cell for cell in wanted}.values())  # one run may serve two policies
    runs = out / "runs"
    refuse_link(runs)
    make_folder(runs)
    now = standing(cells, runs, episodes, alone=alone)
    if now.other_code and not options.keep_old:
        raise ApilError(
            f"{len(now.other_code)} finished runs in {runs} were made by other code or versions than these "
            f"({now.other_code[0].folder}, ...): remove them, choose another --out, or mix them with --keep-old."
        )
    if now.spent and not options.so_far:
        raise ApilError(
            f"{len(now.spent)} finished runs in {runs} were evaluated over other --episodes, and their weights "
            f"are gone ({now.spent[0].folder}, ...): give --episodes as before, choose another --out, or remove them."
        )
    if options.so_far:
        reporter.line(f"{len(now.finished)} of {plural(len(cells), 'run')} in {runs} are finished")
        if not now.finished:
            raise ApilError(f"No run in {runs} is finished: leave --so-far out to make them.")
        finished = {cell.folder for cell in now.finished}
        return [cell for cell in wanted if cell.folder in finished]
    for text in now.lines(cells, runs):
        reporter.line(text)
    what, total = f"study {name or cells[0].config.task.name}", max(1, work_of(now.todo))
    reporter.progress(what, 0, total)
    board = Board(out, len(cells), len(now.finished))

    def tally(runs: Tally) -> None:
        reporter.tally(what, runs)
        board.write(runs)

    run_cells(
        now.todo,
        runs,
        episodes,
        engine.workers,
        lambda units: reporter.advance(what, units),
        alone=alone,
        engine=engine.open,
        tally=tally,
    )
    reporter.progress(what, total, total)
    return list(wanted)
