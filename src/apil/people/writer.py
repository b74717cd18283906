"""One thread that writes. What is waiting is committed together: one sync of the disk for all of it."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from apil.people.storage import Storage

Result = TypeVar("Result")
_AT_ONCE = 64
"""Jobs of one transaction at most."""


class Writer:
    """Runs functions of a `Storage` in turn; each result is handed out after the commit."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._jobs: queue.SimpleQueue[tuple[Callable[[Storage], Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    async def __call__(self, job: Callable[[Storage], Result]) -> Result:
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._jobs.put((job, future))
        return await future

    def close(self) -> None:
        """Finishes what is waiting."""
        self._jobs.put(None)
        self._thread.join()
        self._storage.close()

    def _run(self) -> None:
        while (first := self._jobs.get()) is not None:
            batch = [first]
            last = False
            while len(batch) < _AT_ONCE and not self._jobs.empty():
                more = self._jobs.get()
                if more is None:
                    last = True
                    break
                batch.append(more)
            self._commit(batch)
            if last:
                return

    def _commit(self, batch: list[tuple[Callable[[Storage], Any], asyncio.Future[Any]]]) -> None:
        db = self._storage.db
        results: list[Any] = []
        try:
            db.execute("BEGIN IMMEDIATE")
            for job, _ in batch:
                db.execute("SAVEPOINT job")
                try:
                    results.append(job(self._storage))
                except Exception as error:
                    db.execute("ROLLBACK TO job")
                    self._storage.forget_cache()
                    results.append(error)
                db.execute("RELEASE job")
            db.execute("COMMIT")
        except Exception as error:  # nothing of it is on disk, and nobody has had an acknowledgement
            if db.in_transaction:
                db.execute("ROLLBACK")
            self._storage.forget_cache()
            results = [error] * len(batch)
        for (_, future), result in zip(batch, results, strict=True):
            future.get_loop().call_soon_threadsafe(_resolve, future, result)


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():  # whoever asked has gone
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
