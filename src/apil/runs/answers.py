"""`answers.jsonl`: every question and answer, written before it is acted on, and read back on resume."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from apil.config import RunConfig
from apil.errors import ApilError
from apil.learning.build import NAMED, Parts
from apil.runs.files import whole_rows
from apil.types import ActionBox, Answer

_SYNC_SECONDS = 1.0


class AnswerBook:
    """The answers of one run.

    A row holds iteration, episode, step, the teacher's identity, its action (a list where it is a vector) and distance,
    and the query policy that asked. A question that stayed without an answer has null for all three, an answer without
    a distance null for that.
    """

    def __init__(self, path: Path, config: RunConfig, from_iteration: int = 0, parts: Parts = NAMED) -> None:
        """Opens the book of a run; rows from `from_iteration` on are remembered and will not be asked for again."""
        self._end = f', "query": "{config.query}"}}\n'
        self.before = 0
        """Rows before `from_iteration`."""
        task = parts.task_of(config)
        bounds = _Bounds(config.batch, task.actions, task.box, len(parts.members(config)))
        self._known: dict[tuple[int, int], dict[int, dict[str, Any]]] = {}
        rows, size = whole_rows(path)
        for row in rows:
            if not _is_answer(row, bounds):
                raise ApilError(f"{path} has a row that is not an answer ({str(row)[:80]}): restore it or train anew.")
            if row["iteration"] < from_iteration:
                self.before += 1
            else:
                self._known.setdefault((row["iteration"], row["step"]), {})[row["episode"]] = row
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
            os.ftruncate(self._file, size)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            raise ApilError(f"Cannot write {path}: {error.strerror}. Check space and permissions.") from error
        self._path = path
        self._synced = time.monotonic()

    def take(self, iteration: int, t: int) -> dict[int, dict[str, Any]]:
        """The remembered answers of a step by episode; each is given out once."""
        return self._known.pop((iteration, t), {}) if self._known else {}

    def write(self, iteration: int, t: int, asked: Sequence[bool], columns: Sequence[Sequence[Any]]) -> None:
        """Appends the answers of a step: `columns` are identity, action, distance and given, by episode."""
        start, middle = f'{{"iteration": {iteration}, "episode": ', f', "step": {t}, "identity": '
        lines = [
            f'{start}{episode}{middle}{identity}, "action": {action}, "distance": {distance}{self._end}'
            if given
            else f'{start}{episode}{middle}null, "action": null, "distance": null{self._end}'
            for episode, (ask, identity, action, distance, given) in enumerate(zip(asked, *columns, strict=True))
            if ask
        ]
        # JSON has no infinity, and NaN is a distance that was not told.
        text = "".join(lines).replace('"distance": inf', '"distance": 1e999').replace(": nan", ": null")
        try:
            _write_all(self._file, text.encode())
            if time.monotonic() - self._synced > _SYNC_SECONDS:
                self.sync()
        except OSError as error:
            raise ApilError(f"Cannot write {self._path}: {error.strerror}. Free space, then resume.") from error

    def sync(self) -> None:
        """Makes what was written durable."""
        os.fsync(self._file)
        self._synced = time.monotonic()

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)


@dataclass(frozen=True)
class _Bounds:
    """What an answer of a run can be."""

    episodes: int
    actions: int
    box: ActionBox | None
    teachers: int

    def allow(self, action: Any) -> bool:
        """Whether it can be an action of the task."""
        if self.box is None:
            return type(action) is int and 0 <= action < self.actions
        numbers = isinstance(action, list) and len(action) == self.actions and all(type(x) is float for x in action)
        return numbers and bool(self.box.contains(torch.tensor(action)))


def _is_answer(row: Any, bounds: _Bounds) -> bool:
    """Whether a row read from disk can be used."""
    if not isinstance(row, dict) or not {"identity", "action", "distance"} <= set(row):
        return False
    whole = {name: row.get(name) for name in ("iteration", "episode", "step")}
    if not all(type(value) is int and value >= 0 for value in whole.values()) or row["episode"] >= bounds.episodes:
        return False
    identity, action, distance = row["identity"], row["action"], row["distance"]
    if identity is None and action is None and distance is None:
        return True
    counts = type(identity) is int and 0 <= identity < bounds.teachers and bounds.allow(action)
    return counts and (distance is None or (isinstance(distance, float) and distance >= 0))


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


class AnswerBooks:
    """The books of a stack of runs: an `AnswerLog`."""

    def __init__(self, books: Sequence[AnswerBook]) -> None:
        self.books = books

    def consult(self, iteration: int, t: int, asked: Tensor, ask: Callable[[Tensor], Answer]) -> Answer:
        """Asks only for what no book remembers, and writes those answers down."""
        known = [book.take(iteration, t) for book in self.books]
        if any(known):
            return self._remember(iteration, t, asked, ask, known)
        answer = ask(asked)
        self._write(iteration, t, asked, answer)
        return answer

    def _remember(
        self,
        iteration: int,
        t: int,
        asked: Tensor,
        ask: Callable[[Tensor], Answer],
        known: Sequence[dict[int, dict[str, Any]]],
    ) -> Answer:
        """The same where some answers are known from before a stop."""
        missing = asked.clone()
        for run, rows in enumerate(known):
            missing[run, list(rows)] = False
        new = ask(missing)
        given = missing if new.given is None else missing & new.given
        self._write(iteration, t, missing, new)
        answer = Answer(new.action.clone(), new.distance.clone(), new.identity.clone(), given.clone())
        _fill(answer, known)
        return answer

    def _write(self, iteration: int, t: int, asked: Tensor, answer: Answer) -> None:
        flags = asked.tolist()
        if not any(True in own for own in flags):
            return
        given = asked if answer.given is None else answer.given
        columns = [part.tolist() for part in (answer.identity, answer.action, answer.distance, given)]
        for run, (book, own) in enumerate(zip(self.books, flags, strict=True)):
            if True in own:
                book.write(iteration, t, own, [column[run] for column in columns])


def _fill(answer: Answer, known: Sequence[dict[int, dict[str, Any]]]) -> None:
    """Writes remembered answers into `answer`."""
    assert answer.given is not None
    for run, rows in enumerate(known):
        for episode, row in rows.items():
            if row["action"] is not None:
                answer.action[run, episode] = torch.tensor(row["action"])
                answer.distance[run, episode] = math.nan if row["distance"] is None else row["distance"]
                answer.identity[run, episode] = row["identity"]
                answer.given[run, episode] = True
