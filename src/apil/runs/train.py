"""Training into a run folder, and resuming after any stop as if there had been none."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from apil.errors import ApilError
from apil.files import empty_folder, locked, read_rows
from apil.learning.build import NAMED, Parts, build
from apil.learning.collect import Agents
from apil.learning.metrics import Row
from apil.learning.trainer import Trainer, check_crew
from apil.learning.update import DivergenceError
from apil.runs.checkpoint import load_checkpoint
from apil.runs.crew import dismiss
from apil.runs.earlier import Earlier
from apil.runs.ending import noted_end
from apil.runs.folder import load_config, located
from apil.runs.owned import remove_own_files
from apil.runs.writer import Due, Record, train_on
from apil.settings import RunSettings
from apil.teachers.protocol import desk_of

Progress = Callable[[int], None]
Look = Callable[[Trainer], None]
"""Called after every iteration."""


@dataclass(frozen=True)
class Outcome:
    """How a training ended."""

    config: RunSettings
    began: int
    """Iterations that had been done before."""
    iteration: int
    """Iterations done."""
    stopped: bool
    """It was stopped before its end."""
    last: Row | None
    """The last row of metrics."""


def start_run(
    config: RunSettings,
    folder: Path,
    *,
    progress: Progress,
    parts: Parts = NAMED,
    answers_from: Path | None = None,
    look: Look = lambda trainer: None,
) -> Outcome:
    """Trains a new run into an empty folder; its store begins with the answers of an earlier run, if one is given."""
    parts = parts.made_for(config)
    agents = build([config], parts)  # what cannot be built leaves no folder behind
    check_crew([config], agents, parts.crew)
    earlier = None if answers_from is None else Earlier.of(answers_from, config, parts)
    empty_folder(folder, "the run")
    with locked(folder):
        empty_folder(folder, "the run")
        try:
            if earlier is not None:
                earlier.write(folder, config)
            return _train(config, folder, progress, parts, agents, look)
        except BaseException:
            if not (folder / "config.json").exists():  # it cannot be resumed: the same command must be able to start it
                with suppress(ApilError):
                    remove_own_files(folder)
            raise


def resume_run(
    folder: Path,
    *,
    iterations: int | None,
    progress: Progress,
    parts: Parts = NAMED,
    look: Look = lambda trainer: None,
) -> Outcome:
    """Goes on with a stopped run: the files and weights become those of a run that was never stopped."""
    config = load_config(folder)
    with locked(folder):
        if iterations is not None and iterations != config.iterations:
            if iterations < config.iterations:
                raise ApilError(
                    f"The run in {folder} is to have {config.iterations} iterations: they can be raised, not cut."
                )
            config = config.changed(iterations=iterations)
        return _train(config, folder, progress, parts.made_for(located(folder, config, parts)), None, look)


def _train(
    config: RunSettings, folder: Path, progress: Progress, parts: Parts, agents: Agents | None, look: Look
) -> Outcome:
    record = Record(folder, config, parts)
    began = record.done
    try:
        if not record.ended:
            _go_on(record, progress, agents, look)
        else:
            with noted_end([record]):  # an error after the last checkpoint may have left another note
                progress(began)
            dismiss(parts.crew)
    finally:
        record.close()
    rows = read_rows(folder / "metrics.jsonl")
    return Outcome(config, began, record.done, not record.ended, rows[-1] if rows else None)


def _go_on(record: Record, progress: Progress, agents: Agents | None, look: Look) -> None:
    config, desk = record.config, desk_of(record.parts.teacher)
    interrupt = (lambda: None) if desk is None else desk.interrupt
    words = "Stopping after this iteration; once more to stop at once."
    with crew_stop(words) if not record.parts.crew.alone else stop_request(words, interrupt) as stopped:
        try:
            due: Due = lambda done, since, took: done % config.save_every == 0  # noqa: E731
            train_on([record], due, progress, stopped, look=look, agents=agents)
        except DivergenceError as error:
            good = load_checkpoint(record.folder, config)
            last = f"the checkpoint of iteration {good.iteration} is good" if good else "there is no checkpoint yet"
            raise ApilError(f"{error} The run is stopped; {last}.") from error


_AGAIN = 5.0
"""Seconds within which signals count as one where several processes train: torchrun passes on what the terminal has
sent to all of them."""


def crew_stop(words: str = "") -> AbstractContextManager[list[int]]:
    """`stop_request` in a process of several that train one run."""
    return stop_request(words, patience=_AGAIN)


@contextmanager
def stop_request(words: str, begin: Callable[[], None] = lambda: None, patience: float = 0.0) -> Iterator[list[int]]:
    """Ctrl-C (or SIGTERM) adds to the list that is yielded, calls `begin`, and says so; a second one stops at once, if
    it comes more than `patience` seconds later."""
    stopped: list[int] = []
    first = 0.0

    def request(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if stopped and time.monotonic() < first + patience:
            return
        if stopped:
            raise KeyboardInterrupt
        first = time.monotonic()
        stopped.append(number)
        begin()
        if words:
            print(f"\n{words}", file=sys.stderr)

    try:
        before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: whoever runs the threads handles signals
        yield stopped
        return
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
