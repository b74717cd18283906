"""A file of lines that only grows, and that a checkpoint can vouch for without reading it again."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apil.errors import AccessError, ApilError
from apil.files import open_to_write, write_all, writing

FULL = "Free space, then resume."
_SYNC_SECONDS = 1.0
_SYNC_SHARE = 0.01


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
            raise ChangedRowsError(f"{path} {why}; restore it or train anew.")
        self._file = -1
        self._torn = False
        self._sync_at = 0.0

    def open(self, keep: int = 0) -> None:
        """Cuts the file `keep` bytes after the prefix, and goes on from there."""
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
        """Makes durable what was appended."""
        started = time.monotonic()
        with writing(self._path, FULL):
            os.fsync(self._file)
        now = time.monotonic()
        self._sync_at = now + max(_SYNC_SECONDS, (now - started) / _SYNC_SHARE)

    def sync_if_due(self) -> None:
        """The same about once a second; less often where it takes long, so that it stays below 1 % of the time."""
        if time.monotonic() >= self._sync_at:
            self.sync()

    def close(self) -> None:
        """Closes the file."""
        if self._file >= 0:
            if self._torn:
                with suppress(OSError):
                    self._cut()
            os.close(self._file)
            self._file = -1


def rest_of(path: Path, prefix: Prefix) -> bytes:
    """What follows the prefix in a file; refuses a file that does not begin with it."""
    return Journal(path, prefix).rest
