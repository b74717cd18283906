"""Calls to teachers that may hang: each has a deadline, and no teacher has more calls open than it can take."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import BoundedSemaphore, Thread
from typing import TypeVar

Result = TypeVar("Result")

PATIENCE = 10
"""Questions in a row for which a teacher may be found busy with earlier ones, for each call that it can take."""


class LateError(Exception):
    """A call took longer than its deadline; the message follows the teacher's name."""


class HangingError(Exception):
    """A teacher does not return from calls that were given up; the message follows its name."""


class Line:
    """The calls to one teacher.

    A call that was given up keeps running in its thread, and occupies its place, until it returns: a teacher that is
    busy is not called again, and no more than `at_once` calls can be left behind.
    """

    def __init__(self, at_once: int) -> None:
        self._free = BoundedSemaphore(at_once)
        self._missed, self._patience = 0, PATIENCE * at_once

    def call(self, answer: Callable[[], Result], deadline: float) -> Result:
        """What `answer` returns or raises; `deadline` seconds are for the teacher to be free, and as many to answer."""
        if not self._free.acquire(timeout=deadline):
            self._missed += 1
            if self._missed >= self._patience:
                raise HangingError(
                    f"has not returned from an earlier question, while {self._missed} more waited {deadline:g} s each,"
                )
            raise LateError(f"did not answer within {deadline:g} s")
        self._missed = 0
        outcome: Future[Result] = Future()

        def work() -> None:
            try:
                found = answer()
            except BaseException as error:
                self._free.release()
                outcome.set_exception(error)
            else:
                self._free.release()
                outcome.set_result(found)

        Thread(target=work, daemon=True).start()
        try:
            return outcome.result(deadline)
        except TimeoutError:
            if outcome.done():  # in the last moment, or it is the teacher's own
                return outcome.result()
            raise LateError(f"did not answer within {deadline:g} s") from None
