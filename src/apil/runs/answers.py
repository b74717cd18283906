"""`answers.jsonl`: every question and answer, written before it is learned from, and read back on resume."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from apil.config import RunConfig
from apil.errors import ApilError
from apil.learning.build import committee_of
from apil.runs.journal import ChangedRowsError, Journal, Prefix
from apil.tasks import TASKS
from apil.types import Answer

_SLOW_SECONDS = 0.001
"""An answer that took longer is written at once; a write takes some millionths of a second."""
_LATE_SECONDS = 0.02
"""Others wait so long at most for those after them."""


class DamagedAnswersError(ApilError):
    """Answers on disk that cannot be used. They cannot be made again, so nobody but the user may drop them."""


class AnswerBook:
    """The answers of one run.

    A row holds iteration, episode, step, the teacher's identity, its action and distance, and the query policy that
    asked. A question that stayed without an answer has null for all three.
    """

    def __init__(self, path: Path, config: RunConfig, from_iteration: int = 0, prefix: Prefix | None = None) -> None:
        """Reads and checks the book of a run; changes nothing before `open`.

        `prefix` is what a checkpoint after `from_iteration` iterations builds on; the rows after it are remembered and
        will not be asked for again.
        """
        self._end = f', "query": "{config.query}"}}\n'
        try:
            self.journal = Journal(path, prefix or Prefix())
        except ChangedRowsError as error:
            raise DamagedAnswersError(str(error)) from None
        bounds = (config.batch, TASKS.load(config.task)().actions, len(committee_of(config).members))
        self._known: dict[tuple[int, int], dict[int, dict[str, Any]]] = {}
        self._whole = self.journal.rest.rfind(b"\n") + 1
        for row in _rows(path, self.journal.rest[: self._whole]):
            if not _is_answer(row, from_iteration, *bounds):
                told = f"{path} has a row that is not an answer ({str(row)[:80]}): restore it or train anew."
                raise DamagedAnswersError(told)
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

    def lines(self, iteration: int, t: int, asked: Sequence[bool], columns: Sequence[Sequence[Any]]) -> str:
        """The rows of a step: `columns` are identity, action, distance and given, by episode."""
        start, middle = f'{{"iteration": {iteration}, "episode": ', f', "step": {t}, "identity": '
        return "".join(
            [
                f'{start}{episode}{middle}{identity}, "action": {action}, "distance": {distance}{self._end}'
                if given
                else f'{start}{episode}{middle}null, "action": null, "distance": null{self._end}'
                for episode, (ask, identity, action, distance, given) in enumerate(zip(asked, *columns, strict=True))
                if ask
            ]
        )

    def append(self, lines: Sequence[str]) -> None:
        """Hands rows to the operating system, and about once a second to the disk."""
        text = "".join(lines).replace('"distance": inf', '"distance": 1e999')  # JSON has no infinity
        self.journal.append(text.encode())
        self.journal.sync_if_due()


def _rows(path: Path, content: bytes) -> list[Any]:
    try:
        return [json.loads(line) for line in content.decode("utf-8").split("\n")[:-1]]
    except (ValueError, RecursionError) as error:
        raise DamagedAnswersError(
            f"{path} has a row that cannot be read ({type(error).__name__}): restore it or train anew."
        ) from error


def _is_answer(row: Any, from_iteration: int, episodes: int, actions: int, teachers: int) -> bool:
    """Whether a row read from disk can be used."""
    if not isinstance(row, dict) or not {"identity", "action", "distance"} <= set(row):
        return False
    whole = {name: row.get(name) for name in ("iteration", "episode", "step")}
    if not all(type(value) is int and value >= 0 for value in whole.values()):
        return False
    if row["episode"] >= episodes or row["iteration"] < from_iteration:
        return False
    identity, action, distance = row["identity"], row["action"], row["distance"]
    if identity is None and action is None and distance is None:
        return True
    counts = type(identity) is int and type(action) is int and 0 <= identity < teachers and 0 <= action < actions
    return counts and isinstance(distance, float) and distance >= 0


class AnswerBooks:
    """The books of a stack of runs: an `AnswerLog`.

    When an answer reaches the operating system, and so survives the end of this process: at once if the teachers took
    more than a thousandth of a second for it (people, services, programs that think); else with those after it, within
    20 thousandths of a second at the next question, and always before the agents learn from it.
    """

    def __init__(self, books: Sequence[AnswerBook]) -> None:
        self.books = books
        self._waiting: list[tuple[int, int, Tensor, Answer]] = []
        self._written = time.monotonic()

    def consult(self, iteration: int, t: int, asked: Tensor, ask: Callable[[Tensor], Answer]) -> Answer:
        """Asks only for what no book remembers, and notes those answers."""
        if any(book.remembers for book in self.books):
            known = [book.take(iteration, t) for book in self.books]
            if any(known):
                return self._remember(iteration, t, asked, ask, known)
        return self._ask(iteration, t, asked, ask)

    def _ask(self, iteration: int, t: int, asked: Tensor, ask: Callable[[Tensor], Answer]) -> Answer:
        started = time.monotonic()
        answer = ask(asked)
        self._waiting.append((iteration, t, asked, answer))
        now = time.monotonic()
        if now - started > _SLOW_SECONDS or now - self._written > _LATE_SECONDS:
            self.flush()
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
        new = self._ask(iteration, t, missing, ask)
        given = missing if new.given is None else missing & new.given
        answer = Answer(new.action.clone(), new.distance.clone(), new.identity.clone(), given.clone())
        _fill(answer, known)
        return answer

    def flush(self) -> None:
        """Hands all answers so far to the operating system."""
        waiting, self._waiting = self._waiting, []
        lines: list[list[str]] = [[] for _ in self.books]
        for iteration, t, asked, answer in waiting:
            flags = asked.tolist()
            if not any(True in own for own in flags):
                continue
            given = asked if answer.given is None else answer.given
            columns = [part.tolist() for part in (answer.identity, answer.action, answer.distance, given)]
            for run, own in enumerate(flags):
                if True in own:
                    lines[run].append(self.books[run].lines(iteration, t, own, [column[run] for column in columns]))
        for book, own_lines in zip(self.books, lines, strict=True):
            if own_lines:
                book.append(own_lines)
        self._written = time.monotonic()


def _fill(answer: Answer, known: Sequence[dict[int, dict[str, Any]]]) -> None:
    """Writes remembered answers into `answer`."""
    assert answer.given is not None
    for run, rows in enumerate(known):
        for episode, row in rows.items():
            if row["action"] is not None:
                answer.action[run, episode] = row["action"]
                answer.distance[run, episode] = row["distance"]
                answer.identity[run, episode] = row["identity"]
                answer.given[run, episode] = True
