"""Worker processes of a study."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from threading import Thread
from typing import Any

from apil.errors import ApilError

SPAWN = multiprocessing.get_context("spawn")


@contextmanager
def worker_pool(workers: int, setup: Callable[..., None] | None = None, *given: Any) -> Iterator[ProcessPoolExecutor]:
    """Processes that each call `setup(*given)` first and end with the one that started them.

    Where that one is interrupted or fails they end at once: another study may go on with the same folders.
    """
    with ProcessPoolExecutor(workers, SPAWN, initializer=_start, initargs=(setup, given)) as pool:
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
    """Sets a worker up; Ctrl-C is for the process that started it, which then ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    if setup is not None:
        setup(*given)


def _end_with_parent() -> None:
    """A worker whose study was killed ends too."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
