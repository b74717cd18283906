"""Training into a run folder, and going on after any stop as if there had been none."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from apil.config import RunConfig
from apil.errors import ApilError
from apil.learning.build import build, committee_of
from apil.learning.metrics import Row
from apil.learning.trainer import Trainer
from apil.learning.update import DivergenceError
from apil.runs.answers import AnswerBook, AnswerBooks
from apil.runs.checkpoint import check_fits, load_checkpoint, save_checkpoint
from apil.runs.environment import environment
from apil.runs.files import empty_folder, read_json, read_rows, whole_rows, write_bytes, write_json
from apil.runs.store import load_config
from apil.tasks import TASKS

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Outcome:
    """How a training ended."""

    config: RunConfig
    iteration: int
    """Iterations done; fewer than `config.iterations` if it was stopped."""
    last: Row | None
    """The last row of metrics."""


def start_run(config: RunConfig, folder: Path, *, answers: bool, progress: Progress) -> Outcome:
    """Trains a new run into an empty folder."""
    build([config])  # what cannot be built leaves no folder behind
    empty_folder(folder, "the run", but=_prepared(folder))
    with _locked(folder):
        write_json(folder / "environment.json", environment())
        if answers:
            write_bytes(folder / "answers.jsonl", b"")
        else:
            (folder / "answers.jsonl").unlink(missing_ok=True)
        # Written last: a folder with a config is a run that can be resumed; one without has not begun.
        write_json(folder / "config.json", config.to_json())
        return _train(config, folder, progress)


def _prepared(folder: Path) -> tuple[str, ...]:
    """What a run that was killed before it began may have left behind: never an answer."""
    book = folder / "answers.jsonl"
    empty = book.is_file() and book.stat().st_size == 0
    return ("environment.json", book.name) if empty else ("environment.json",)


def resume_run(folder: Path, *, iterations: int | None, progress: Progress) -> Outcome:
    """Goes on with a stopped run: the files and weights become those of a run that was never stopped."""
    config = load_config(folder)
    with _locked(folder):
        if iterations is not None and iterations != config.iterations:
            done = (load_checkpoint(folder) or (0, {}))[0]
            if iterations < done:
                raise ApilError(f"{folder} has done {done} iterations already: --iterations can be raised, not cut.")
            config = replace(config, iterations=iterations)
            write_json(folder / "config.json", config.to_json())
        _warn_of_changes(folder)
        return _train(config, folder, progress)


def _warn_of_changes(folder: Path) -> None:
    """Tells when the run goes on with other code or versions: its bytes may then differ."""
    before, now = read_json(folder / "environment.json"), environment()
    if not isinstance(before, dict):
        raise ApilError(f"{folder / 'environment.json'} is not a record: restore it or train anew.")
    changed = [name for name in ("code", "torch", "numpy", "python", "processor") if before.get(name) != now[name]]
    if changed:
        told = ", ".join(f"{name} {before.get(name)} -> {now[name]}" for name in changed)
        print(f"apil: warning: the run began with other software ({told}); results may differ.", file=sys.stderr)


def _train(config: RunConfig, folder: Path, progress: Progress) -> Outcome:
    found = load_checkpoint(folder)
    done = found[0] if found else 0
    log = _books(config, folder, done)
    trainer = Trainer([config], log)
    if found:
        check_fits({n: v for n, v in trainer.state(0).items() if n not in _COUNTS}, found[1], folder)
        _check_counts(found[1], folder)
        trainer.restore(done, found[1])
    metrics = folder / "metrics.jsonl"
    _cut_metrics(metrics, done, config)
    progress(done)
    if done >= config.iterations:
        rows = read_rows(metrics)
        return Outcome(config, done, rows[-1] if rows else None)
    with _stop_request() as stopped, metrics.open("ab") as rows_file:
        try:
            _loop(trainer, folder, rows_file, log, stopped, progress)
        except DivergenceError as error:
            saved = load_checkpoint(folder)
            last = f"the checkpoint of iteration {saved[0]} is good" if saved else "there is no checkpoint yet"
            raise ApilError(f"{error} The run is stopped; {last}.") from error
    last_row = trainer.rows[0][-1] if trainer.rows[0] else None
    return Outcome(config, trainer.iteration, last_row)


_COUNTS = ("meter.answers", "meter.unanswered", "meter.counts")


def _check_counts(saved: dict[str, Any], folder: Path) -> None:
    if not all(name in saved for name in _COUNTS):
        raise ApilError(f"The checkpoint in {folder} lacks its sums: train the run anew.")


def _books(config: RunConfig, folder: Path, done: int) -> AnswerBooks | None:
    path = folder / "answers.jsonl"
    if not path.exists():
        return None
    teachers, actions = len(committee_of(config).members), TASKS.load(config.task)().actions
    book = AnswerBook(path, config.query, actions=actions, teachers=teachers, from_iteration=done)
    return AnswerBooks([book])


def _loop(
    trainer: Trainer, folder: Path, rows_file: Any, log: AnswerBooks | None, stopped: list[int], progress: Progress
) -> None:
    config = trainer.configs[0]
    started, begun_at = time.perf_counter(), trainer.iteration
    while trainer.iteration < config.iterations and not stopped:
        rows = trainer.step()
        if rows is not None:
            _append(rows_file, rows[0])
            progress(trainer.iteration)
        if trainer.iteration % config.save_every == 0 or trainer.iteration == config.iterations or stopped:
            _save(trainer, folder, rows_file, log)
            seconds = time.perf_counter() - started
            timing = {"from": begun_at, "to": trainer.iteration, "seconds": round(seconds, 3)}
            with (folder / "timings.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(timing) + "\n")
            started, begun_at = time.perf_counter(), trainer.iteration


def _append(file: Any, row: Row) -> None:
    try:
        file.write((json.dumps(row, allow_nan=False) + "\n").encode())
        file.flush()
    except OSError as error:
        raise ApilError(f"Cannot write {file.name}: {error.strerror}. Free space, then resume.") from error


def _save(trainer: Trainer, folder: Path, rows_file: Any, log: AnswerBooks | None) -> None:
    """A checkpoint is written after the rows it builds on are durable."""
    os.fsync(rows_file.fileno())
    for book in log.books if log else ():
        book.sync()
    save_checkpoint(folder, trainer, 0)


def _cut_metrics(path: Path, done: int, config: RunConfig) -> None:
    """Drops the rows that will be written again: those after the checkpoint, and an early last row before more."""
    rows, _ = whole_rows(path)
    kept = [row for row in rows if _kept(row, done, config)]
    text = "".join(json.dumps(row) + "\n" for row in kept)
    write_bytes(path, text.encode())


def _kept(row: Any, done: int, config: RunConfig) -> bool:
    iteration = row.get("iteration") if isinstance(row, dict) else None
    if not isinstance(iteration, int):
        raise ApilError("metrics.jsonl has a row without an iteration: restore the file or train anew.")
    return iteration <= done and (iteration % config.log_every == 0 or iteration == config.iterations)


@contextmanager
def _stop_request() -> Iterator[list[int]]:
    """Ctrl-C (or SIGTERM) asks for a stop after this iteration; a second one stops at once."""
    stopped: list[int] = []

    def request(number: int, frame: FrameType | None) -> None:
        if stopped:
            raise KeyboardInterrupt
        stopped.append(number)
        print("\nStopping after this iteration; once more to stop at once.", file=sys.stderr)

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


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process trains a run at a time; the lock goes with the process, however it ends."""
    import fcntl

    try:
        file = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ApilError(f"Cannot write into {folder}: {error.strerror}. Check its permissions.") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise ApilError(f"Another process is training in {folder}: wait for it, or stop it first.") from None
    try:
        yield
    finally:
        os.close(file)
