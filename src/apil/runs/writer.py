"""The files of runs in training: opened where the last good checkpoint left them, and kept up from there."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from apil.device import Device
from apil.errors import AccessError, ApilError
from apil.files import append_text, move, read_json, remove_leftovers, together, write_json
from apil.learning.build import NAMED, Parts
from apil.learning.collect import Agents
from apil.learning.metrics import Meter, Row
from apil.learning.trainer import Trainer
from apil.runs.answers import AnswerBook, AnswerBooks
from apil.runs.checkpoint import KEPT, ROWS, Checkpoint, check_fits, keep_up_to, load_checkpoint, save_checkpoint
from apil.runs.crew import lead
from apil.runs.describe import write_description
from apil.runs.earlier import header_of, noted_prefix
from apil.runs.ending import noted_end
from apil.runs.environment import changed_software, changes_arithmetic, environment
from apil.runs.journal import Journal, Prefix, rest_of
from apil.runs.owned import refuse_links
from apil.runs.store_file import NAME as STORE
from apil.runs.store_file import StoreFile
from apil.settings import RunSettings
from apil.tasks.places import KEY as PLACES
from apil.tasks.places import NOTE, note_places
from apil.terminal import Hears

Due = Callable[[int, float, float], bool]
"""Whether to save now: iterations done, seconds since the last save, seconds that it took."""


_TELL_SECONDS = 1.0
"""After which progress is reported, also before the next row of metrics."""


class Record:
    """The folder of one run in training."""

    def __init__(self, folder: Path, config: RunSettings, parts: Parts = NAMED) -> None:
        """Reads and checks everything before it changes anything."""
        self.folder, self.config, self.parts = folder, config, parts
        refuse_links(folder)
        found = load_checkpoint(folder, config)
        self.done = found.iteration if found else 0
        """Iterations done before."""
        self.saved: dict[str, Tensor] = found.tensors if found else {}
        """The state after them; empty if there are none."""
        files = found.files if found else dict.fromkeys(ROWS, Prefix())
        self._metrics = Journal(folder / "metrics.jsonl", files["metrics.jsonl"])
        path = folder / "answers.jsonl"
        self.answers = (
            AnswerBook(path, config, 0 if config.walks else self.done, files["answers.jsonl"], parts)
            if config.answers
            else None
        )
        self.store = self._store(found) if config.learner.replay else None
        self.ended = found is not None and (found.ended or found.iteration >= config.iterations)
        """The run was trained to its end before."""
        try:
            self._prepare(found)
        except BaseException:
            self.close()
            raise

    def _store(self, found: Checkpoint | None) -> StoreFile:
        prefix = found.files[STORE] if found else noted_prefix(self.folder)
        return StoreFile(self.folder / STORE, header_of(self.config, self.parts), prefix)

    def _prepare(self, found: Checkpoint | None) -> None:
        """Drops what will be written again."""
        remove_leftovers(self.folder)
        if found:
            keep_up_to(self.folder, found.iteration)
        if not self.ended:
            # The config comes first: from here on the run can be resumed.
            write_json(self.folder / "config.json", self.config.to_json())
            _set_aside(self.folder)
            _note_environment(self.folder, self.config, self.parts.device)
        early = _line(early_row(self.config, found))
        keep = len(early) if self._metrics.rest.startswith(early) else 0
        self._metrics.open(keep)
        if not keep:
            self._metrics.append(early)
        if self.answers is not None:
            self.answers.open()
        if self.config.walks and self.answers is not None:
            self.answers.forget()
        self.stored = 0 if self.store is None else self.store.open(keep=bool(self.config.walks))
        """Rows in the store before this training."""

    def add(self, row: Row) -> None:
        """Appends a row of metrics."""
        self._metrics.append(_line(row))

    def save(self, trainer: Trainer, run: int, seconds: float, kept: int = KEPT) -> None:
        """Writes a checkpoint, after what it builds on is durable. `seconds` of training led to it."""
        files = dict.fromkeys(ROWS, Prefix())
        journals = [self._metrics] if self.answers is None else [self._metrics, self.answers.journal]
        for name, journal in zip(ROWS, journals, strict=False):
            journal.sync()
            files[name] = journal.prefix
        if self.store is not None:
            assert trainer.store is not None
            files[STORE] = self.store.sync(trainer.store.shelves[run].rows)
        save_checkpoint(self.folder, trainer, run, files, kept)
        timing = {"from": self.done, "to": trainer.iteration, "seconds": round(seconds, 3)}
        self.done, self.ended = trainer.iteration, trainer.done or not trainer.running[run]
        append_text(self.folder / "timings.jsonl", json.dumps(timing) + "\n")

    def close(self) -> None:
        """Closes the files."""
        self._metrics.close()
        if self.answers is not None:
            self.answers.journal.close()
        if self.store is not None:
            self.store.close()


def _set_aside(folder: Path) -> None:
    """Keeps the evaluation of an agent that is now trained on under the iteration that it is of."""
    path = folder / "evaluation.json"
    if not path.exists():
        return
    try:
        kept = folder / f"evaluation-at-{int(read_json(path).get('iteration', 0)):08d}.json"
    except (ApilError, TypeError, AttributeError, ValueError):
        return
    move(path, kept)
    print(f"apil: {path} is of an earlier agent; it is kept as {kept.name}.", file=sys.stderr)


def _line(row: Row | None) -> bytes:
    return b"" if row is None else (json.dumps(row, allow_nan=False) + "\n").encode()


def early_row(config: RunSettings, found: Checkpoint | None) -> Row | None:
    """The last row of a finished run that came before its time; None if the rows came out even.

    A checkpoint does not build on it, as training on replaces it; it can be made again from the sums.
    """
    if found is None or found.iteration < config.iterations or found.iteration % config.log_every == 0:
        return None
    # What an answer costs is in the sums already; that it is not always 1 is all that is asked here.
    meter = Meter(1, torch.zeros(1, 1) if "meter.cost" in found.tensors else None)
    meter.restore([found.tensors])
    return meter.rows(found.iteration)[0]


def is_whole(folder: Path, config: RunSettings) -> bool:
    """Whether a run is trained to its end and has exactly the rows it should have."""
    try:
        found = load_checkpoint(folder, config)
        if found is None or not (found.ended or found.iteration == config.iterations):
            return False
        after = rest_of(folder / "metrics.jsonl", found.files["metrics.jsonl"])
        more = rest_of(folder / "answers.jsonl", found.files["answers.jsonl"]) if config.answers else b""
        return after == _line(early_row(config, found)) and not more
    except AccessError:
        raise
    except ApilError:
        return False


def _note_environment(folder: Path, config: RunSettings, device: Device) -> None:
    """Writes what the run is made with and where its data lie; tells when it is resumed with something else."""
    path, now = folder / NOTE, environment(str(device.torch))
    try:
        before = read_json(path) if path.exists() else now
    except AccessError:
        raise
    except ApilError:
        before = {}
    changed = changed_software(before, now)
    if changed:
        how = "will" if changes_arithmetic(before, now) else "may"
        print(
            f"apil: warning: the run began with something else ({changed}): its bytes {how} differ from those of a run "
            "that was never stopped.",
            file=sys.stderr,
        )
    found = {**(now if changed or not path.exists() else before)}
    places = note_places(folder, config.task.name, config.task.options)
    found |= {PLACES: places} if places else {}
    if found != before or not path.exists():
        write_json(path, found)


def train_on(
    records: Sequence[Record],
    due: Due,
    progress: Callable[[int], None],
    stopped: Sequence[int] = (),
    kept: int = KEPT,
    look: Callable[[Trainer], None] = lambda trainer: None,
    agents: Agents | None = None,
) -> Trainer:
    """Trains a stack of runs that stand at the same iteration to the end, or until there is something in `stopped`.

    At the end each run has a checkpoint; `kept` is how many checkpoints stay then. `look` is called after
    every iteration. `agents` are those of the runs, if they are built already.
    """
    with noted_end(records):
        return _trained(records, due, progress, stopped, kept, look, agents)


def _trained(
    records: Sequence[Record],
    due: Due,
    progress: Callable[[int], None],
    stopped: Sequence[int],
    kept: int,
    look: Callable[[Trainer], None],
    agents: Agents | None,
) -> Trainer:
    books = [record.answers for record in records if record.answers is not None]
    log = AnswerBooks(books) if books else None
    stores = [record.store for record in records if record.store is not None]
    trainer = Trainer([record.config for record in records], log, records[0].parts, agents, stores or None)
    listener: object = progress
    if isinstance(listener, Hears):
        trainer.tell_answers(listener.heard)
    for run, record in enumerate(records):
        if record.store is not None:
            trainer.recall(run, record.stored)
    if records[0].done:
        for run, record in enumerate(records):
            check_fits(trainer.state(run), record.saved, record.folder)
        trainer.restore(records[0].done, [record.saved for record in records])
    elif any(record.stored for record in records):
        trainer.observe_stored()
    try:
        trainer.open_desk(records[0].folder)
        if records[0].config.walks:
            trainer.count_stored(stores[0].before)
        for run, record in enumerate(records):
            write_description(record.folder, trainer.agents, run, record.config)
        progress(trainer.progress)
        lead(records[0].parts.crew, trainer)
        _loop(trainer, log, records, due, progress, stopped, kept, look)
    finally:
        trainer.close()
        if log is not None:
            log.close()
    return trainer


def _loop(
    trainer: Trainer,
    log: AnswerBooks | None,
    records: Sequence[Record],
    due: Due,
    progress: Callable[[int], None],
    stopped: Sequence[int],
    kept: int,
    look: Callable[[Trainer], None],
) -> None:
    log_every = records[0].config.log_every
    crew = records[0].parts.crew
    since, took = time.perf_counter(), 0.0
    reported = since
    stops = crew.any(bool(stopped))
    while not trainer.done and not stops:
        rows = trainer.step()
        look(trainer)
        stops = crew.any(bool(stopped))
        complete = trainer.iteration % log_every == 0
        if rows is not None and complete:
            _add(records, rows)
        now = time.perf_counter()
        every = trainer.done or stops or due(trainer.iteration, now - since, took)
        # A run that has ended is saved at once, and left alone while the others go on.
        wanted = [
            (run, record)
            for run, (record, running) in enumerate(zip(records, trainer.running, strict=True))
            if not record.ended and (every or not running)
        ]
        if wanted and log is not None:
            log.flush()
        _save(trainer, wanted, now - since, kept)
        if every:
            since = time.perf_counter()
            took = since - now
        if rows is not None and not complete:
            _add(records, rows)
        if rows is not None or now - reported > _TELL_SECONDS:
            reported = now
            progress(trainer.progress)


def _save(trainer: Trainer, wanted: Sequence[tuple[int, Record]], seconds: float, kept: int) -> None:
    """Saves runs, each given with its place in the stack; `kept` checkpoints stay of those that have ended."""
    ended = [trainer.done or not running for running in trainer.running]

    def save(of_run: tuple[int, Record]) -> None:
        run, record = of_run
        record.save(trainer, run, seconds, kept if ended[run] else KEPT)

    together(save, wanted)


def _add(records: Sequence[Record], rows: Sequence[Row | None]) -> None:
    for record, row in zip(records, rows, strict=True):
        if row is not None:
            record.add(row)
