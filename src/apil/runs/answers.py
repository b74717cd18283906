"""`answers.jsonl`: every question and answer, written ahead of the checkpoints, and read back on resume."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import repeat
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apil.errors import ApilError
from apil.learning.ask import Keep
from apil.learning.build import NAMED, Parts
from apil.runs.journal import ChangedRowsError, Journal, Prefix, Syncer
from apil.settings import RunSettings
from apil.types import ActionBox, Answer

_SLOW_SECONDS = 0.001
"""A batch of answers that took longer is written at once; a write takes some millionths of a second."""
_LATE_SECONDS = 0.05
"""Others are written together at the first question after this time."""


_REMEDY = "restore it, or remove the row to ask that question again."
_FIELDS = {"iteration", "episode", "step", "identity", "action", "distance", "query"}


class DamagedAnswersError(ApilError):
    """Answers on disk that cannot be used. They cannot be made again, so nobody but the user may drop them."""


class AnswerBook:
    """The answers of one run.

    A row holds iteration, episode, step, the teacher's identity, its action (a list where it is a vector) and distance,
    the query policy that asked, and the CRC-32 of the row up to there. A question that stayed without an answer has
    null for all three, an answer without a distance null for that.
    """

    def __init__(
        self,
        path: Path,
        config: RunSettings,
        from_iteration: int = 0,
        prefix: Prefix | None = None,
        parts: Parts = NAMED,
    ) -> None:
        """Reads and checks the book of a run; changes nothing before `open`.

        `prefix` is what a checkpoint after `from_iteration` iterations builds on; the rows after it are remembered and
        will not be asked for again.
        """
        self._query = config.query.name
        try:
            self.journal = Journal(path, prefix or Prefix())
        except ChangedRowsError as error:
            raise DamagedAnswersError(str(error)) from None
        self._known: dict[tuple[int, int], dict[int, dict[str, Any]]] = {}
        self._whole = self.journal.rest.rfind(b"\n") + 1
        if self._whole:
            self._remember(path, _Bounds.of(config, parts, from_iteration))

    def forget(self) -> None:
        """Drops the answers to be given out again, where the questions will not come again; the file keeps them."""
        self._known.clear()

    def _remember(self, path: Path, bounds: _Bounds) -> None:
        for row in _rows(path, self.journal.rest[: self._whole]):
            if not _is_answer(row, bounds):
                raise DamagedAnswersError(f"{path} has a row that is not an answer ({str(row)[:80]}): {_REMEDY}")
            self._known.setdefault((row["iteration"], row["step"]), {})[row["episode"]] = row

    def open(self) -> None:
        """Makes the book ready for writing; half a line at its end is cut off."""
        self.journal.open(keep=self._whole)

    @property
    def remembers(self) -> bool:
        """Whether there are answers that were not given out yet."""
        return bool(self._known)

    def take(self, iteration: int, t: int) -> dict[int, dict[str, Any]]:
        """The remembered answers of a step by episode; each is given out once."""
        return self._known.pop((iteration, t), {})

    def write(self, moments: Sequence[tuple[int, int]], answers: Sequence[NDArray[Any]]) -> None:
        """Hands answers to the operating system.

        `moments` are iteration and step, `answers` are put, given, identity, action and distance, each
        [moments, episodes]; actions that are vectors have one more axis.
        """
        put, given, identity, action, distance = answers
        places, episodes = np.nonzero(put)
        if not len(places):
            return
        columns = [part[put].tolist() for part in (identity, action, distance)]
        if action.ndim > put.ndim:
            columns[1] = [tuple(vector) for vector in columns[1]]
        if not given[put].all():
            columns = [_blanked(column, given[put].tolist()) for column in columns]
        # A cache takes 0.0 and -0.0 for the same.
        tail = _tail.__wrapped__ if np.signbit(distance[put]).any() else _tail
        starts = [f'{{"iteration": {iteration}, "episode": ' for iteration, _ in moments]
        middles = [f', "step": {step}, "identity": ' for _, step in moments]
        tails = map(tail, *columns, repeat(self._query))
        rows = [
            f"{starts[place]}{episode}{middles[place]}{end}".encode()
            for place, episode, end in zip(places.tolist(), episodes.tolist(), tails, strict=True)
        ]
        self.journal.append(_sealed(rows))

    def write_one(self, iteration: int, t: int, place: tuple[int, int], answer: Answer) -> None:
        """The same for one answer; `place` is the run in the stack and the episode."""
        said: list[Any] = [None, None, None]
        if answer.given is None or answer.given.numpy()[place]:
            said = [part.numpy()[place].tolist() for part in (answer.identity, answer.action, answer.distance)]
            said[1] = tuple(said[1]) if isinstance(said[1], list) else said[1]
        head = f'{{"iteration": {iteration}, "episode": {place[1]}, "step": {t}, "identity": '
        self.journal.append(_sealed([(head + _tail.__wrapped__(*said, self._query)).encode()]))


@lru_cache(maxsize=4096)
def _tail(identity: int | None, action: int | tuple[float, ...] | None, distance: float | None, query: str) -> str:
    """The rest of a row, except its checksum; the same few come again and again on a board."""
    # JSON has no infinity, and NaN is a distance that was not reported.
    number = "1e999" if distance == math.inf else "null" if distance is None or math.isnan(distance) else repr(distance)
    taken = list(action) if isinstance(action, tuple) else _null(action)
    return f'{_null(identity)}, "action": {taken}, "distance": {number}, "query": "{query}"'


def _null(value: int | None) -> int | str:
    return "null" if value is None else value


def _blanked(column: Sequence[Any], given: Sequence[bool]) -> list[Any]:
    """None where no answer was given."""
    return [value if there else None for value, there in zip(column, given, strict=True)]


def _sealed(rows: Sequence[bytes]) -> bytes:
    """Rows that lack their end as lines, each with its checksum."""
    return b"".join([b'%b, "crc32": %d}\n' % (row, crc32(row)) for row in rows])


def _rows(path: Path, content: bytes) -> Iterator[Any]:
    """The rows of lines; refuses those that are not as they were written."""
    for line in content.split(b"\n")[:-1]:
        try:
            row = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            reason = f"{path} has a row that cannot be read ({type(error).__name__}): {_REMEDY}"
            raise DamagedAnswersError(reason) from error
        if isinstance(row, dict) and "crc32" in row:  # rows of older versions have none
            start = line[: line.rfind(b', "crc32": ')]
            if _sealed([start]) != line + b"\n":
                raise DamagedAnswersError(f"{path} has a row that was changed since ({str(row)[:100]}): {_REMEDY}")
        yield row


@dataclass(frozen=True)
class _Bounds:
    """What an answer of a run can be."""

    from_iteration: int
    episodes: int
    actions: int
    box: ActionBox | None
    teachers: int

    @staticmethod
    def of(config: RunSettings, parts: Parts, from_iteration: int) -> _Bounds:
        """From the parts of a run."""
        task = parts.task_of(config)
        return _Bounds(from_iteration, config.learner.batch, task.actions, task.box, len(parts.members(config)))

    def allow(self, action: Any) -> bool:
        """Whether it can be an action of the task."""
        if self.box is None:
            return type(action) is int and 0 <= action < self.actions
        numbers = isinstance(action, list) and len(action) == self.actions and all(type(x) is float for x in action)
        return numbers and bool(self.box.contains(torch.tensor(action)))


def _is_answer(row: Any, bounds: _Bounds) -> bool:
    """Whether a row read from disk can be used."""
    if not isinstance(row, dict) or set(row) - {"crc32"} != _FIELDS:
        return False
    whole = {name: row.get(name) for name in ("iteration", "episode", "step")}
    if not all(type(value) is int and value >= 0 for value in whole.values()):
        return False
    if row["episode"] >= bounds.episodes or row["iteration"] < bounds.from_iteration:
        return False
    identity, action, distance = row["identity"], row["action"], row["distance"]
    if identity is None and action is None and distance is None:
        return True
    counts = type(identity) is int and 0 <= identity < bounds.teachers and bounds.allow(action)
    return counts and (distance is None or (isinstance(distance, float) and distance >= 0))


class AnswerBooks:
    """The books of a stack of runs: an `AnswerLog`.

    When an answer reaches the operating system, and so survives the end of this process: before the next question is
    put, if its teacher is asked one question at a time (people, services, scripts). Answers that come in batches from
    teachers that are simulated wait for each other, to be written together: until the first question a twentieth of a
    second after the last write, and never beyond a checkpoint or an end that is not sudden. Such answers are cheap to
    compute again. A batch that took more than a thousandth of a second is written at once.
    """

    def __init__(self, books: Sequence[AnswerBook]) -> None:
        self.books = books
        self._waiting: list[tuple[int, int, Tensor, Answer]] = []
        self._asked = self._written = time.monotonic()
        self._remembers = any(book.remembers for book in books)
        self._syncer = Syncer([book.journal for book in books])

    def consult(self, iteration: int, t: int, put: Tensor, ask: Callable[[Tensor, Keep], Answer]) -> Answer:
        """Asks only for what no book remembers, and notes those answers."""
        if self._remembers:
            return self._remember(iteration, t, put, ask)
        return self._ask(iteration, t, put, ask)

    def _ask(self, iteration: int, t: int, put: Tensor, ask: Callable[[Tensor, Keep], Answer]) -> Answer:
        self._asked = time.monotonic()
        return ask(put, partial(self._keep, iteration, t))

    def _keep(self, iteration: int, t: int, settled: Tensor, answer: Answer, alone: bool) -> None:
        if alone:
            self.note(iteration, t, settled, answer)
            return
        self._waiting.append((iteration, t, settled, answer))
        now = time.monotonic()
        if now - self._asked > _SLOW_SECONDS or now - self._written > _LATE_SECONDS:
            self.flush()

    def note(self, iteration: int, t: int, put: Tensor, answer: Answer) -> None:
        """Hands answers to the operating system at once."""
        self.flush()
        for run, episode in put.nonzero().tolist():
            self.books[run].write_one(iteration, t, (run, episode), answer)
        self._syncer.appended()

    def _remember(self, iteration: int, t: int, put: Tensor, ask: Callable[[Tensor, Keep], Answer]) -> Answer:
        """The same where some answers are known from before a stop."""
        known = [book.take(iteration, t) for book in self.books]
        self._remembers = any(book.remembers for book in self.books)
        missing = put.clone()
        for run, rows in enumerate(known):
            missing[run, list(rows)] = False
        new = self._ask(iteration, t, missing, ask)
        given = missing if new.given is None else missing & new.given
        answer = Answer(new.action.clone(), new.distance.clone(), new.identity.clone(), given.clone())
        _fill(answer, known)
        return answer

    def flush(self) -> None:
        """Hands all answers so far to the operating system."""
        waiting, self._waiting = self._waiting, []
        self._written = time.monotonic()
        if not waiting:
            return
        moments = [(iteration, t) for iteration, t, _, _ in waiting]
        given = [put if answer.given is None else answer.given for _, _, put, answer in waiting]
        numbers = [[getattr(answer, name) for *_, answer in waiting] for name in ("identity", "action", "distance")]
        stacked = [torch.stack(part).detach() for part in ([put for _, _, put, _ in waiting], given, *numbers)]
        columns = [part.double().numpy() if part.is_floating_point() else part.numpy() for part in stacked]
        for run, book in enumerate(self.books):
            book.write(moments, [column[:, run] for column in columns])
        self._syncer.appended()

    def close(self) -> None:
        """Writes and syncs all answers so far; the books are still open."""
        try:
            self.flush()
        finally:
            self._syncer.close()


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
