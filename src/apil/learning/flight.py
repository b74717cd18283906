"""Drives many walks at once, for teachers that take their time: each continues when its answer arrives."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.learning.collect import OpenTeachers
from apil.learning.sound import no_answer
from apil.learning.walk import Agents, Question, Walk, advance, walk
from apil.tasks.protocol import KeepsEnvironments, Task
from apil.types import Answer, Episodes


@dataclass(frozen=True)
class Answered:
    """A question came back. The walk continues when the next event is requested.

    Its tensors were made in inference mode: clone what is learned from.
    """

    walk: int
    """The number of the walk; `question.iteration` is the same."""
    question: Question
    answer: Answer
    """Its `given` [1, 1] is false where the question stayed unanswered."""


@dataclass(frozen=True)
class Finished:
    """A walk has come to its end."""

    walk: int
    episodes: Episodes
    """One episode of one run."""


Event = Answered | Finished


@dataclass(frozen=True)
class _Trip:
    """A walk in flight."""

    steps: Walk
    teachers: OpenTeachers
    task: Task[Any]


class Flight:
    """Walks of one training episode each, of one run, several at a time.

        flight = Flight(agents, at_once=8, episodes=100)
        try:
            for event in flight:
                ...  # store, learn
        finally:
            for event in flight.close():
                ...  # store

    Walks are numbered; the number takes the place of the iteration in all random draws of a walk. Teachers are called
    from threads: several at once, but for each walk one call at a time. All else happens in the caller's thread, while
    it asks for the next event. As long as the weights stay the same and answers are left, a walk is the same as one
    episode by `collect` at the iteration of its number, whoever answers first.

    Weights may change between events: a walk that continues reads the current ones. What a model computes once when an
    episode begins (its `begin`), such as the share of the personae in a hidden layer or an encoded instruction, is that
    of the weights at the beginning of the walk.
    """

    def __init__(
        self,
        agents: Agents,
        at_once: int,
        *,
        first: int = 0,
        episodes: int | None = None,
        left: int | None = None,
        keep: Callable[[Question, Answer], None] = lambda question, answer: None,
    ) -> None:
        """`first` is the number of the first walk, `episodes` how many walks there are (no end if not given).

        `keep` is called with every answer as soon as it is there, in the thread that asked for it, one at a time.

        `left` is the number of answers that may still be given to all walks together. A question that is open counts as
        answered until it comes back without an answer; questions beyond are not put.
        """
        if len(agents.streams.seeds) != 1:
            raise ApilError(f"A flight is of one run, not of a stack of {len(agents.streams.seeds)}.")
        if at_once < 1:
            raise ApilError(f"{at_once} walks at once: give a number from 1 up.")
        self._agents = replace(agents, guard=agents.guard.taking(at_once))
        self._at_once = at_once
        self._keep, self._keeping = keep, threading.Lock()
        self._counting = threading.Lock()
        self.left = left
        """Answers that may still be given, those to open questions among them; None for no limit."""
        self._next, self._end = first, None if episodes is None else first + episodes
        self._trips: dict[int, _Trip] = {}
        self._going: deque[tuple[int, Answer | None]] = deque()
        """Walks that can go on, with the answer to their last question."""
        self._open: dict[int, Question] = {}
        self._arrived: queue.SimpleQueue[tuple[int, Answer | BaseException]] = queue.SimpleQueue()
        self._idle: list[Task[Any]] = []
        """Tasks that no walk is in."""

    @property
    def next(self) -> int:
        """The number of the walk that starts next."""
        return self._next

    @property
    def over(self) -> bool:
        """All walks are finished or abandoned."""
        return not self._trips and not self._more

    @property
    def _more(self) -> bool:
        return self._end is None or self._next < self._end

    def __iter__(self) -> Iterator[Event]:
        """The events until all walks are finished, each as soon as it happens."""
        while (event := self.event()) is not None:
            yield event

    def event(self, timeout: float | None = None) -> Event | None:
        """The next event; None once all walks are finished, or if only teachers can bring the next one and they take
        more than `timeout` seconds.

        Raises what `collect` would raise; the walk of an error is abandoned, the others stay in flight.
        """
        while True:
            # What has arrived goes first: walks that ask nobody would otherwise keep those that were answered waiting.
            if self._open and not self._arrived.empty():
                return self._receive(*self._arrived.get())
            if self._going:
                finished = self._go_on(*self._going.popleft())
                if finished is not None:
                    return finished
            elif self._more and len(self._trips) < self._at_once:
                self._start()
            elif self._open:
                try:
                    return self._receive(*self._arrived.get(timeout=timeout))
                except queue.Empty:
                    return None
            else:
                return None

    def reserve(self, answers: int) -> int:
        """Takes up to so many of the answers that are left for questions that no walk waits for; returns how many."""
        with self._counting:
            if self.left is None:
                return answers
            granted = max(0, min(answers, self.left - len(self._open)))
            self.left -= granted
            return granted

    def hush(self) -> None:
        """Puts no more questions; those that are open may still be answered."""
        with self._counting:
            self.left = len(self._open) if self.left is None else min(self.left, len(self._open))

    def release(self) -> None:
        """Gives back an answer that was reserved and will not be given."""
        with self._counting:
            self.left = None if self.left is None else self.left + 1

    def close(self) -> list[Answered]:
        """Abandons the walks in flight. Returns the answers that were given but not delivered as events yet.

        Teachers that still think are left behind in threads that do not keep the process alive.
        """
        self._end = self._next
        rest = []
        while self._open:
            try:
                number, outcome = self._arrived.get_nowait()
            except queue.Empty:
                break
            if isinstance(outcome, Answer):
                rest.append(self._receive(number, outcome))
        self._open.clear()
        self._going.clear()
        for number in list(self._trips):
            self._leave(number).steps.close()
        for task in self._idle:
            if isinstance(task, KeepsEnvironments):
                task.close()
        self._idle.clear()
        return rest

    def _start(self) -> None:
        number, self._next = self._next, self._next + 1
        task = self._idle.pop() if self._idle else self._agents.task
        if task is self._agents.task and isinstance(task, KeepsEnvironments):
            task = task.twin()
        agents = replace(self._agents, task=task)
        self._trips[number] = _Trip(walk(agents, number, 1), OpenTeachers.of(agents, number, 1), task)
        self._going.append((number, None))

    def _go_on(self, number: int, answer: Answer | None) -> Finished | None:
        """To the next question, which is put if there are answers left, or to the end."""
        try:
            found = advance(self._trips[number].steps, answer)
        except BaseException:
            self._leave(number)
            raise
        if isinstance(found, Episodes):
            return Finished(number, self._leave(number).teachers.final(found))
        with self._counting:
            put = self.left is None or self.left > len(self._open)
            if put:
                self._open[number] = found
        if not put:
            self._going.append((number, no_answer(found.put, self._agents.guard.box)))
        else:
            work = (number, self._trips[number].teachers, found)
            threading.Thread(target=self._ask, args=work, name=f"walk {number}", daemon=True).start()
        return None

    def _ask(self, number: int, teachers: OpenTeachers, question: Question) -> None:
        """In a thread of its own."""
        try:
            with torch.inference_mode():
                answer = teachers.answer(question)
            with self._keeping:
                self._keep(question, answer)
            outcome: Answer | BaseException = answer
        except BaseException as error:
            outcome = error
        self._arrived.put((number, outcome))

    def _receive(self, number: int, outcome: Answer | BaseException) -> Answered:
        with self._counting:
            question = self._open.pop(number)
            if isinstance(outcome, Answer) and self.left is not None:
                given = question.put if outcome.given is None else question.put & outcome.given
                self.left -= int(given.sum())
        if isinstance(outcome, BaseException):
            self._leave(number)
            raise outcome
        self._going.append((number, outcome))
        return Answered(number, question, outcome)

    def _leave(self, number: int) -> _Trip:
        trip = self._trips.pop(number)
        self._idle.append(trip.task)
        return trip


def merge(finished: Sequence[Episodes]) -> Episodes:
    """One batch [runs, n, T] of episodes that were finished one by one."""
    merged: Episodes = _merged(finished)
    return merged


def _merged(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], Tensor):
        return torch.cat(list(parts), dim=1)
    return type(parts[0])(**{f.name: _merged([getattr(p, f.name) for p in parts]) for f in fields(parts[0])})
