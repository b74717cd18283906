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
from apil.learning.build import NAMED, Parts, build
from apil.learning.metrics import Row, row_iterations
from apil.learning.trainer import Trainer
from apil.learning.update import DivergenceError
from apil.runs.answers import AnswerBook, AnswerBooks
from apil.runs.checkpoint import check_fits, load_checkpoint, save_checkpoint
from apil.runs.environment import changed_software, environment
from apil.runs.files import (
    empty_folder,
    locked,
    read_json,
    read_rows,
    remove_leftovers,
    whole_rows,
    write_bytes,
    write_json,
)
from apil.runs.store import load_config

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Outcome:
    """How a training ended."""

    config: RunConfig
    began: int
    """Iterations that had been done before."""
    iteration: int
    """Iterations done; fewer than `config.iterations` if it was stopped."""
    last: Row | None
    """The last row of metrics."""


def start_run(config: RunConfig, folder: Path, *, progress: Progress, parts: Parts = NAMED) -> Outcome:
    """Trains a new run into an empty folder."""
    build([config], parts)  # what cannot be built leaves no folder behind
    empty_folder(folder, "the run")
    with locked(folder):
        empty_folder(folder, "the run")
        # Written first: from here on the run can be resumed.
        write_json(folder / "config.json", config.to_json())
        return _train(config, folder, progress, parts)


def resume_run(folder: Path, *, iterations: int | None, progress: Progress, parts: Parts = NAMED) -> Outcome:
    """Goes on with a stopped run: the files and weights become those of a run that was never stopped."""
    config = load_config(folder)
    with locked(folder):
        if iterations is not None and iterations != config.iterations:
            if iterations < config.iterations:
                raise ApilError(
                    f"The run in {folder} is to have {config.iterations} iterations: they can be raised, not cut."
                )
            config = replace(config, iterations=iterations)
            write_json(folder / "config.json", config.to_json())
        return _train(config, folder, progress, parts)


def _note_environment(folder: Path) -> None:
    """Writes what software the run is made with; tells when it goes on with another: its bytes may then differ."""
    path, now = folder / "environment.json", environment()
    try:
        before = read_json(path) if path.exists() else now
    except ApilError:
        before = {}
    changed = changed_software(before, now)
    if changed:
        print(f"apil: warning: the run began with other software ({changed}); results may differ.", file=sys.stderr)
    if changed or not path.exists():
        write_json(path, now)


def _train(config: RunConfig, folder: Path, progress: Progress, parts: Parts) -> Outcome:
    remove_leftovers(folder)
    _note_environment(folder)
    found = load_checkpoint(folder, config)
    done, saved = found or (0, {})
    metrics = folder / "metrics.jsonl"
    _cut_metrics(metrics, done, config)
    if done >= config.iterations:
        progress(done)
        rows = read_rows(metrics)
        return Outcome(config, done, done, rows[-1] if rows else None)
    (folder / "evaluation.json").unlink(missing_ok=True)  # it is of an agent that is now trained on
    log = _books(config, folder, done, saved, parts)
    trainer = Trainer([config], log, parts)
    if found:
        check_fits(trainer.state(0), saved, folder)
        trainer.restore(done, saved)
    progress(done)
    with _stop_request() as stopped, metrics.open("ab") as rows_file:
        try:
            _loop(trainer, folder, rows_file, log, stopped, progress)
        except DivergenceError as error:
            good = load_checkpoint(folder, config)
            last = f"the checkpoint of iteration {good[0]} is good" if good else "there is no checkpoint yet"
            raise ApilError(f"{error} The run is stopped; {last}.") from error
    last_row = trainer.rows[0][-1] if trainer.rows[0] else None
    return Outcome(config, done, trainer.iteration, last_row)


def _books(config: RunConfig, folder: Path, done: int, saved: dict[str, Any], parts: Parts) -> AnswerBooks | None:
    """The book of answers, if the run keeps one; it must hold every answer that the checkpoint has learned from."""
    if not config.answers:
        return None
    path = folder / "answers.jsonl"
    book = AnswerBook(path, config, from_iteration=done, parts=parts)
    asked = sum(int(saved[name]) for name in ("meter.answers", "meter.unanswered") if name in saved)
    if book.before != asked:
        raise ApilError(f"{path} has {book.before} of {asked} answers before the checkpoint: restore it or train anew.")
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
            _append_timing(folder, {"from": begun_at, "to": trainer.iteration, "seconds": round(seconds, 3)})
            started, begun_at = time.perf_counter(), trainer.iteration


def _append_timing(folder: Path, timing: dict[str, float]) -> None:
    with (folder / "timings.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(timing) + "\n")


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
    due = row_iterations(replace(config, iterations=done)) if done >= config.iterations else _complete(done, config)
    if [row["iteration"] for row in kept] != due:
        raise ApilError(f"{path} lacks rows that were written before the checkpoint: restore it or train anew.")
    text = "".join(json.dumps(row) + "\n" for row in kept)
    write_bytes(path, text.encode())


def _complete(done: int, config: RunConfig) -> list[int]:
    """The iterations of the complete rows so far."""
    return list(range(config.log_every, done + 1, config.log_every))


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
