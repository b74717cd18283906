"""A file of lines that only grows, and that a checkpoint can vouch for without reading it again."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from apil.errors import AccessError, ApilError
from apil.files import open_to_write, write_all, writing

FULL = "Free space, then resume."
_SYNC_SECONDS = 1.0
"""From an answer to the disk."""
_SYNC_SHARE = 0.01
"""Of the time, at most, where syncing takes long."""


@dataclass(frozen=True)
class Prefix:
    """The beginning of a file."""

    bytes: int = 0
    """Its length."""
    sha256: str = hashlib.sha256().hexdigest()
    """Of these bytes, in hex."""

    @staticmethod
    def from_json(value: Any) -> Prefix | None:
        """The prefix noted in a file; None if it is none."""
        if not isinstance(value, dict) or set(value) != {"bytes", "sha256"}:
            return None
        length, digest = value["bytes"], value["sha256"]
        return Prefix(length, digest) if type(length) is int and length >= 0 and isinstance(digest, str) else None


class ChangedRowsError(ApilError):
    """Rows are not those that a checkpoint builds on."""


class Journal:
    """Appends to a file. Lines reach the operating system when they are appended, so that a killed process loses
    none; they reach the disk by `sync`."""

    def __init__(self, path: Path, prefix: Prefix) -> None:
        """Reads and checks the file; changes nothing before `open`."""
        try:
            content = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise AccessError(f"Cannot read {path}: {error.strerror}. Check its permissions.") from error
        self._path, self._bytes = path, prefix.bytes
        self._digest, self.rest = hashlib.sha256(memoryview(content)[: prefix.bytes]), content[prefix.bytes :]
        if self._digest.hexdigest() != prefix.sha256:
            lacks = f"lacks rows that the checkpoint builds on ({len(content)} of {prefix.bytes} bytes)"
            changed = f"was changed: its first {prefix.bytes} bytes are not those that the checkpoint builds on"
            why = lacks if len(content) < prefix.bytes else changed
            raise ChangedRowsError(f"{path} {why}; restore it or start the run over.")
        self._file = -1
        self._torn = False
        self._synced = -1
        self._failed: ApilError | None = None

    def open(self, keep: int = 0) -> None:
        """Cuts the file `keep` bytes after the prefix and appends from there."""
        kept, self.rest = self.rest[:keep], b""
        self._count(kept)
        with writing(self._path):
            self._file = open_to_write(self._path)
            self._cut()

    def _count(self, data: bytes) -> None:
        self._digest.update(data)
        self._bytes += len(data)

    @property
    def prefix(self) -> Prefix:
        """All that was appended so far."""
        return Prefix(self._bytes, self._digest.hexdigest())

    def append(self, data: bytes) -> None:
        """Hands lines to the operating system."""
        if self._failed is not None:
            raise self._failed
        with writing(self._path, FULL):
            if self._torn:
                self._cut()
            self._torn = True
            write_all(self._file, data)
            self._torn = False
        self._count(data)

    def _cut(self) -> None:
        """Takes back what a write that failed has left: half a row must not stand before the next one."""
        os.ftruncate(self._file, self._bytes)
        os.lseek(self._file, 0, os.SEEK_END)
        self._torn = False

    def sync(self) -> None:
        """Makes durable what was appended. May be called from another thread.

        A disk that has failed once is not trusted again: the next try may succeed without the lines that were lost.
        """
        if self._failed is not None:
            raise self._failed
        appended = self._bytes
        if self._synced == appended:
            return
        try:
            with writing(self._path, FULL):
                os.fsync(self._file)
        except ApilError as error:
            self._failed = error
            raise
        self._synced = appended

    def close(self) -> None:
        """Closes the file."""
        if self._file >= 0:
            if self._torn:
                with suppress(OSError):
                    self._cut()
            os.close(self._file)
            self._file = -1


class Syncer:
    """Syncs journals about a second after something was appended to them, whatever the appending thread does then.

    Less often where it takes long, so that it stays below 1 % of the time. The thread for it ends when there is nothing
    more to sync.
    """

    def __init__(self, journals: Sequence[Journal]) -> None:
        self._journals = journals
        self._lock = Lock()
        self._thread: Thread | None = None
        self._more = False
        self._closing = Event()
        self._pause = _SYNC_SECONDS

    def appended(self) -> None:
        """To be called after something was appended."""
        with self._lock:
            self._more = True
            if self._thread is None:
                self._thread = Thread(target=self._work, name="apil sync", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while not self._closing.wait(self._pause):
            with self._lock:
                self._more = False
            started = time.monotonic()
            for journal in self._journals:
                with suppress(ApilError):  # the journal raises it again where it is used next
                    journal.sync()
            self._pause = max(_SYNC_SECONDS, (time.monotonic() - started) / _SYNC_SHARE)
            with self._lock:
                if not self._more:
                    self._thread = None
                    return

    def close(self) -> None:
        """Syncs for the last time, before the journals are closed."""
        self._closing.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()
        for journal in self._journals:
            with suppress(ApilError):
                journal.sync()


def rest_of(path: Path, prefix: Prefix) -> bytes:
    """What follows the prefix in a file; refuses a file that does not begin with it."""
    return Journal(path, prefix).rest
