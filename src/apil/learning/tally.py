"""Telling how many answers there are while an iteration goes on: with slow teachers it may take minutes."""

from __future__ import annotations

import time
from collections.abc import Callable

from torch import Tensor

from apil.learning.ask import AnswerLog, Keep
from apil.types import Answer

_SECONDS = 0.2


class Tally:
    """An `AnswerLog` that passes all on to another, if there is one, and tells the number of answers as they come."""

    def __init__(self, log: AnswerLog | None, tell: Callable[[int], None]) -> None:
        """`tell` is called a few times a second at most."""
        self._log, self._tell = log, tell
        self._new: list[Tensor] = []
        self._next = 0.0
        self._answers = 0

    def restart(self, answers: int) -> None:
        """So many there are when an iteration begins."""
        self._answers, self._new = answers, []

    def consult(self, iteration: int, t: int, put: Tensor, ask: Callable[[Tensor, Keep], Answer]) -> Answer:
        """The answers of the other log, counted."""

        def counted(missing: Tensor, keep: Keep | None = None) -> Answer:
            def both(settled: Tensor, answer: Answer, alone: bool) -> None:
                if keep is not None:
                    keep(settled, answer, alone)
                self._count(settled, answer)

            return ask(missing, both)

        return counted(put) if self._log is None else self._log.consult(iteration, t, put, counted)

    def note(self, iteration: int, t: int, put: Tensor, answer: Answer) -> None:
        """Notes an answer in the other log, and counts it."""
        if self._log is not None:
            self._log.note(iteration, t, put, answer)
        self._count(put, answer)

    def _count(self, settled: Tensor, answer: Answer) -> None:
        self._new.append(settled if answer.given is None else settled & answer.given)
        now = time.monotonic()
        if now >= self._next:
            new, self._new = self._new, []
            self._answers += sum(int(given.sum()) for given in new)
            self._next = now + _SECONDS
            self._tell(self._answers)
