"""What the parts of the server share: the writer, who is there, and who has to hear of a change."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from apil.people.storage import OWNER, Storage
from apil.people.writer import Writer

_PULSE = 0.05
"""Seconds for which changes are gathered before they are announced."""
_BEAT = 15.0
"""Seconds after which a silent stream says that it is still there."""
AWAY = 20.0
"""Seconds without a word after which a trainer counts as gone."""


class Hub:
    """The state of a server that is not on disk. Everything happens in one event loop."""

    def __init__(self, storage: Storage) -> None:
        self.write = Writer(storage)
        self._listeners: dict[asyncio.Queue[str], str] = {}
        self._changed = asyncio.Event()
        self._outcome = asyncio.Event()
        self.heard = time.monotonic()
        """When the trainer last said something."""
        self.here: dict[str, float] = {}
        """When each teacher was last there."""
        self.sessions: dict[bytes, str] = {}
        """Who has which session, by its digest; empty again when a link is ended."""
        self.status: dict[str, Any] = {}
        """What the trainer said last of its progress."""
        self.stopping = asyncio.Event()
        """Set when the server is to end."""
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._tasks = {asyncio.create_task(self._announce()), asyncio.create_task(self._watch_leases())}

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.to_thread(self.write.close)

    @property
    def trainer_is_here(self) -> bool:
        return time.monotonic() - self.heard < AWAY

    def change(self) -> None:
        """Something changed that teachers, the owner or the trainer may want to know."""
        self._changed.set()
        self._outcome.set()

    async def outcome(self, seconds: float) -> None:
        """Waits for a change, for so long at most."""
        self._outcome.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._outcome.wait()
        except TimeoutError:
            return

    async def stream(self, who: str) -> AsyncIterator[str]:
        """Server-sent events for a teacher or the owner: what waits, whenever it changes."""
        queue: asyncio.Queue[str] = asyncio.Queue(maxsize=4)
        self._listeners[queue] = who
        self._changed.set()
        try:
            yield "retry: 1000\n\n"
            while not self.stopping.is_set():
                if who != OWNER:
                    self.here[who] = time.monotonic()
                try:
                    async with asyncio.timeout(_BEAT):
                        yield f"data: {await queue.get()}\n\n"
                except TimeoutError:
                    yield ": still here\n\n"
        finally:
            del self._listeners[queue]

    async def _announce(self) -> None:
        """Tells listeners of changes, all that came together at once."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(_PULSE)
            self._changed.clear()
            names = sorted({who for who in self._listeners.values() if who != OWNER})
            found = await self.write(lambda storage, names=names: self._news(storage, names))  # type: ignore[misc]
            for queue, who in list(self._listeners.items()):
                if queue.full():
                    queue.get_nowait()
                queue.put_nowait(json.dumps(found.get(who, {"changed": True})))

    def _news(self, storage: Storage, names: list[str]) -> dict[str, dict[str, Any]]:
        common = {"paused": storage.meta("paused", False), "trainer": self.trainer_is_here}
        return {name: {"waiting": storage.waiting(name), **common} for name in names}

    async def _watch_leases(self) -> None:
        """A lease that runs out is a change."""
        while True:
            due = await self.write(lambda storage: storage.next_change())
            wait = 1.0 if due is None else min(max(due - time.time(), 0.05), 1.0)
            await asyncio.sleep(wait)
            if due is not None and due <= time.time():
                self.change()
