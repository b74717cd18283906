"""Where the stacks of a study run: the protocol of an engine, the engine `local`, and the loop that feeds an engine."""

from __future__ import annotations

import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from apil.errors import ApilError, in_one_line, plural
from apil.files import make_folder, refuse_link, write_text
from apil.runs.train import stop_request
from apil.runs.writer import Due
from apil.studies.events import Event
from apil.studies.pace import Pace
from apil.studies.plan import Cell, stacks
from apil.studies.stack import FAILED, Progress, StoppedError, run_stack, save_due, work_of
from apil.studies.workers import worker_context, worker_pool


@dataclass(frozen=True)
class Work:
    """What all stacks of a study share."""

    runs: Path
    """Every cell has a folder in it."""
    episodes: int
    """Of evaluation, for each run."""
    due: Due
    """Says when a stack saves its runs."""
    alone: bool = False
    """Agents are measured with nobody to ask, and nothing else is."""


_TALLY_SECONDS = 2.0
"""Between two tallies, unless a stack begins or ends."""
Tell = Callable[[Event], None]


class Engine(Protocol):
    """Runs stacks. Cells are functions of their settings: where and in which order does not change a byte."""

    slots: int
    """How many stacks it wants to have at once."""

    def submit(self, job: int, cells: Sequence[Cell]) -> None:
        """Hands in a stack under a number of its own."""

    def wait(self, tell: Tell) -> None:
        """Tells what has happened; returns when something has, or after a moment."""


Open = Callable[[Work, int, Sequence[int]], AbstractContextManager[Engine]]
"""Opens an engine for so many workers. Once there is something in the list, its stacks stop after a checkpoint."""


@dataclass(frozen=True)
class Tally:
    """How many runs of a study are in which state."""

    done: int
    running: int
    failed: int
    left: float | None = field(default=None, compare=False)
    """Seconds until all have ended, as far as can be estimated."""


def attempt(work: Work, job: int, cells: Sequence[Cell], tell: Tell, stop: Callable[[], bool]) -> Event:
    """Runs a stack where it is called; returns how it ended."""
    if stop():
        return Event(job, "stopped")
    tell(Event(job, "began"))
    try:
        run_stack(
            cells,
            work.runs,
            work.episodes,
            work.due,
            lambda units: tell(Event(job, "did", units)),
            stop,
            alone=work.alone,
        )
    except StoppedError:
        return Event(job, "stopped")
    except Exception as error:
        why = str(error) if isinstance(error, ApilError) else in_one_line(error)
        return Event(job, "failed", why=why, log=f"On {socket.gethostname()}:\n{traceback.format_exc()}")
    return Event(job, "ended")


class _Here:
    """Runs one stack after another in this process."""

    slots = 1

    def __init__(self, work: Work, stopped: Sequence[int]) -> None:
        self._work, self._stopped = work, stopped
        self._waiting: SimpleQueue[tuple[int, Sequence[Cell]]] = SimpleQueue()

    def submit(self, job: int, cells: Sequence[Cell]) -> None:
        self._waiting.put((job, cells))

    def wait(self, tell: Tell) -> None:
        tell(attempt(self._work, *self._waiting.get(), tell, lambda: bool(self._stopped)))


@dataclass(frozen=True)
class _Wires:
    """Between this process and its workers."""

    events: Any
    """A queue of what happens to stacks."""
    stop: Any
    """Set once they shall stop."""


class _Pool:
    """Runs stacks in processes of this machine."""

    def __init__(
        self, work: Work, workers: int, pool: ProcessPoolExecutor, wires: _Wires, stopped: Sequence[int]
    ) -> None:
        self.slots = workers + 1  # one waits for the worker that is free next
        self._work, self._pool, self._wires, self._stopped = work, pool, wires, stopped
        self._pending: set[Future[Event]] = set()

    def submit(self, job: int, cells: Sequence[Cell]) -> None:
        self._pending.add(self._pool.submit(_in_worker, self._work, job, cells))

    def wait(self, tell: Tell) -> None:
        if self._stopped:
            self._wires.stop.set()
        finished, self._pending = wait(self._pending, timeout=0.2, return_when=FIRST_COMPLETED)
        while not self._wires.events.empty():
            tell(self._wires.events.get())
        for future in finished:
            tell(future.result())


_wires: _Wires
"""Those of this worker."""


def _set_up(wires: _Wires) -> None:
    global _wires
    _wires = wires


def _in_worker(work: Work, job: int, cells: Sequence[Cell]) -> Event:
    return attempt(work, job, cells, _wires.events.put, _wires.stop.is_set)


@contextmanager
def local(work: Work, workers: int, stopped: Sequence[int]) -> Iterator[Engine]:
    """This machine: processes of one thread each, or this process where one is enough."""
    if workers == 1:
        yield _Here(work, stopped)
        return
    context = worker_context()
    wires = _Wires(context.Queue(), context.Event())
    with worker_pool(workers, _set_up, wires) as pool:
        yield _Pool(work, workers, pool, wires, stopped)


def run_cells(
    cells: Sequence[Cell],
    runs: Path,
    episodes: int,
    workers: int,
    progress: Progress,
    due: Due = save_due,
    *,
    alone: bool = False,
    engine: Open = local,
    tally: Callable[[Tally], None] = lambda tally: None,
) -> None:
    """Trains and evaluates the cells, each in its folder under `runs`; `due` says when a stack saves its runs.

    If `alone`, agents are measured with nobody to ask, and nothing else is. A run that fails does not stop the others.
    Ctrl-C stops all after a checkpoint.
    """
    for folder in (runs, *(runs / cell.folder for cell in cells)):
        refuse_link(folder)
    made = stacks(cells, workers)
    with (
        stop_request("Stopping after a checkpoint; once more to stop at once.") as stopped,
        engine(Work(runs, episodes, due, alone), max(1, min(workers, len(made))), stopped) as opened,
    ):
        pace = Pace(max(1, min(workers, len(made))))
        feed = _Feed(opened, deque(made), runs, progress, tally, pace)
        while feed.goes_on(bool(stopped)):
            opened.wait(feed.hear)
    if stopped:
        raise KeyboardInterrupt
    feed.report_failures(len(cells))


@dataclass
class _Job:
    """A stack that an engine has."""

    cells: Sequence[Cell]
    units: int = 0
    """Of work, reported so far."""
    running: bool = False


@dataclass
class _Feed:
    """Hands stacks to an engine and hears what becomes of them."""

    engine: Engine
    waiting: deque[Sequence[Cell]]
    runs: Path
    progress: Progress
    tally: Callable[[Tally], None]
    pace: Pace
    jobs: dict[int, _Job] = field(default_factory=dict)
    """What the engine has now."""
    handed: int = 0
    done: int = 0
    """Runs that are finished."""
    failed: dict[str, str] = field(default_factory=dict)
    """Folders of the runs that failed, with the reason of each."""
    reported: float = 0.0
    """When the tally was passed on last."""

    def goes_on(self, stopping: bool) -> bool:
        """Hands in what there is room for; whether there is something to wait for."""
        while self.waiting and len(self.jobs) < self.engine.slots and not stopping:
            self.handed += 1
            self.jobs[self.handed] = _Job(self.waiting.popleft())
            self.engine.submit(self.handed, self.jobs[self.handed].cells)
        return bool(self.jobs)

    def hear(self, event: Event) -> None:
        job = self.jobs.get(event.job)
        if job is None:  # what a worker said before the end may arrive after it
            return
        job.running = event.kind in ("began", "did")
        if job.running:
            self.pace.began(event.job, job.cells)
        else:
            self.pace.ended(event.job, whole=event.kind == "ended")
        if event.kind == "did":
            self.pace.did(event.job, event.units)
            self._count(job, event.units)
        elif event.kind == "ended":
            self.done += len(job.cells)
        elif event.kind == "lost":
            self._count(job, -job.units)
            names = ", ".join(cell.folder for cell in job.cells[:3])
            print(f"apil: warning: a worker was lost ({event.why}): {names} resume elsewhere.", file=sys.stderr)
        elif event.kind == "failed":
            self._fail(job, event)
        if event.kind in ("ended", "stopped", "failed"):
            del self.jobs[event.job]
        if event.kind != "did" or time.monotonic() > self.reported + _TALLY_SECONDS:
            self.reported = time.monotonic()
            running = sum(len(job.cells) for job in self.jobs.values() if job.running)
            waiting = [*self.waiting, *(own.cells for own in self.jobs.values() if not own.running)]
            self.tally(Tally(self.done, running, len(self.failed), self.pace.left(waiting)))

    def _count(self, job: _Job, units: int) -> None:
        job.units += units
        self.progress(units)

    def _fail(self, job: _Job, event: Event) -> None:
        """A stack that fails is halved until the run that fails stands alone: the others finish without it."""
        if len(job.cells) > 1:
            half = len(job.cells) // 2
            self.waiting.extendleft((job.cells[half:], job.cells[:half]))
            self._count(job, -job.units)
            return
        (cell,) = job.cells
        self._count(job, work_of(job.cells) - job.units)
        self.failed[cell.folder] = event.why
        make_folder(self.runs / cell.folder)
        write_text(self.runs / cell.folder / FAILED, event.log)

    def report_failures(self, cells: int) -> None:
        if self.failed:
            first, *others = self.failed
            why = self.failed[first].rstrip(".")
            more = f" So did {', '.join(others)}." if others else ""
            raise ApilError(
                f"{len(self.failed)} of {plural(cells, 'run')} failed. {first}: {why}. Its log is "
                f"{self.runs / first / FAILED}.{more} The same command tries them again; --so-far reports on the "
                "others."
            )
