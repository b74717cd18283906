"""Worker processes of a study."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from apil.errors import ApilError, in_one_line
from apil.processes import become_worker

T = TypeVar("T")
SPAWN = multiprocessing.get_context("spawn")


@contextmanager
def worker_pool(workers: int, setup: Callable[..., None] | None = None, *given: Any) -> Iterator[ProcessPoolExecutor]:
    """Processes that each call `setup(*given)` first and end with the one that started them.

    Where that one is interrupted or fails they end at once: another study may go on with the same folders.
    """
    with _Pool(workers, SPAWN, initializer=_start, initargs=(setup, given)) as pool:
        try:
            yield pool
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in multiprocessing.active_children():
                worker.terminate()
            if isinstance(error, BrokenProcessPool):
                raise ApilError(
                    "A worker process died, perhaps for lack of memory: try again with 1 worker. A script must start a "
                    'study under `if __name__ == "__main__":`, since workers import it.'
                ) from error
            raise


def _start(setup: Callable[..., None] | None, given: tuple[Any, ...]) -> None:
    """Sets a worker up; on Ctrl-C the process that started it ends its workers."""
    become_worker()
    if setup is not None:
        setup(*given)


class _Pool(ProcessPoolExecutor):
    """Errors of its workers reach the caller, also those that cannot be pickled, which would break the pool."""

    def submit(self, work: Callable[..., T], /, *given: Any, **named: Any) -> Future[T]:
        return super().submit(_sent, work, *given, **named)


def _sent(work: Callable[..., T], /, *given: Any, **named: Any) -> T:
    try:
        return work(*given, **named)
    except Exception as error:
        if _travels(error):
            raise
        raise RuntimeError(f"{in_one_line(error)} (an error that cannot be pickled)") from error


def _travels(error: Exception) -> bool:
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:  # whatever the pickling of an error of other people's raises
        return False
