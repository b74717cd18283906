"""Environments in processes of their own, and what becomes of those that fail."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, TypeVar

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from apil.errors import ApilError, in_one_line
from apil.processes import become_worker
from apil.tasks.gymnasium.episode import Episode, Frame

T = TypeVar("T")
_SILENT = gymnasium.logger.ERROR + 1


@dataclass(frozen=True)
class _InWorker:
    """Makes an environment; in a process other than its owner's it makes that process a worker first."""

    make: Callable[[], Episode]
    owner: int

    def __call__(self) -> Episode:
        if os.getpid() == self.owner:
            return self.make()
        become_worker()
        try:
            return self.make()
        except Exception as error:
            print(f"apil: {error if isinstance(error, ApilError) else in_one_line(error)}", file=sys.stderr, flush=True)
            os._exit(1)


class InProcesses:
    """Does what `InTurn` does, with each environment in a process of its own, by `gymnasium.vector.AsyncVectorEnv`.

    Once a process has failed or died, or a call was interrupted, all are ended: they are no longer in step.
    """

    clock = 0

    def __init__(self, make: Callable[[], Episode], count: int) -> None:
        made = [_InWorker(make, os.getpid())] * count
        try:
            # The episodes never report an end, so none would be reset; DISABLED says so.
            vector = AsyncVectorEnv(made, copy=False, autoreset_mode=AutoresetMode.DISABLED)
        except (EOFError, OSError, RuntimeError) as error:
            raise ApilError(
                f"The processes of {count} environments cannot be started ({in_one_line(error)}): look at what they "
                "printed, or use vectorise='sync'."
            ) from error
        self._vector: AsyncVectorEnv[Any, Any] | None = vector

    def reset(self, seeds: list[int]) -> None:
        self.clock += 1
        self.seen, self.records = self._call(lambda: self._open().reset(seed=list(seeds)))[0]

    def step(self, actions: Any) -> None:
        self.clock += 1
        self.seen, self.records = self._call(lambda: self._open().step(actions))[0]

    def environment(self, place: int) -> Episode:
        raise ApilError(
            "An environment of an asynchronous task lives in another process and cannot be looked at: use "
            "vectorise='sync', or a teacher that needs the observation alone."
        )

    def frame(self, place: int) -> Frame:
        frames: tuple[Frame, ...] = self._call(lambda: self._open().call("frame"))
        return frames[place]

    def close(self) -> None:
        self.clock += 1
        vector = self._vector
        if vector is not None:
            self._call(vector.close)
            self._vector = None

    def _open(self) -> AsyncVectorEnv[Any, Any]:
        if self._vector is None:
            raise ApilError("The processes of the environments have ended: reset the task to start new ones.")
        return self._vector

    def _call(self, what: Callable[[], T]) -> T:
        """What all workers do together; a failure ends them and becomes one error."""
        level = gymnasium.logger.min_level
        gymnasium.logger.min_level = _SILENT  # it would print the traceback beside the error
        try:
            return what()
        except (EOFError, OSError) as error:
            raise ApilError(
                f"A process of an environment {self._end()}: look at what it printed, use fewer episodes (--batch) if "
                "memory is short, and resume the run."
            ) from error
        except BaseException:
            self._end()
            raise
        finally:
            gymnasium.logger.min_level = level

    def _end(self) -> str:
        """Kills the workers; says how the first of those that had already ended did."""
        vector, self._vector = self._open(), None
        ended = wait([process.sentinel for process in vector.processes], timeout=1.0)
        first = next((process for process in vector.processes if process.sentinel in ended), None)
        if first is not None:
            first.join()
        for process in vector.processes:
            process.kill()
            process.join()
        for pipe in vector.parent_pipes:
            if pipe is not None:
                pipe.close()
        vector.closed = True
        code = 0 if first is None or first.exitcode is None else first.exitcode
        return f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with exit code {code}"
