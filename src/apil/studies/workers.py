"""Worker processes of a study. Imports nothing heavy."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from apil.errors import ApilError, in_one_line
from apil.processes import become_worker
from apil.registry import PLUGINS, import_plugins

T = TypeVar("T")
_PRELOADED = ("apil.cli", "apil.studies.engines", "apil.studies.figures", "apil.studies.preloaded")
"""What workers need that takes long to import, in this order."""
_method = "spawn"


def start_early() -> None:
    """Starts a process that imports what workers need while this one does the same; workers are forked from it.

    For the command line. They see the environment as it is now, but for APIL_PLUGINS, which goes to every worker; a
    program that may change more goes without, and each worker of it imports by itself.
    """
    global _method
    if sys.platform != "linux":  # other systems have libraries that do not stand a fork
        return
    from multiprocessing.forkserver import ensure_running, set_forkserver_preload

    _method = "forkserver"
    set_forkserver_preload([*_PRELOADED])
    # Ctrl-C is for this process alone, also while the other one imports.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def worker_context() -> multiprocessing.context.BaseContext:
    """How workers are started, and where what is shared with them comes from."""
    return multiprocessing.get_context(_method)


@contextmanager
def worker_pool(workers: int, setup: Callable[..., None] | None = None, *given: Any) -> Iterator[ProcessPoolExecutor]:
    """Processes that each call `setup(*given)` first and end with the one that started them.

    Where that one is interrupted or fails they end at once: another study may go on with the same folders.
    """
    plugins = os.environ.get(PLUGINS, "")
    with _Pool(workers, worker_context(), initializer=_start, initargs=(plugins, setup, given)) as pool:
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


def _start(plugins: str, setup: Callable[..., None] | None, given: tuple[Any, ...]) -> None:
    """Sets a worker up; on Ctrl-C the process that started it ends its workers.

    A study file may name plug-ins, after the process from which workers are forked has started.
    """
    become_worker()
    if plugins:
        os.environ[PLUGINS] = plugins
        import_plugins()
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
