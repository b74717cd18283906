"""`answers.store`: every answer of a run with what is needed to learn from it again; a header, then rows of one size.

The rows are mapped into memory, so that a store larger than memory opens at once and a killed process loses none. A
checkpoint vouches for those it builds on; each row has a checksum of its own besides.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apil.errors import AccessError, ApilError
from apil.files import NO_LINK, refuse_link, write_bytes, writing
from apil.learning.rows import RowFormat, Rows
from apil.runs.journal import FULL, ChangedRowsError, Prefix

NAME = "answers.store"
SCHEMA = 1
_MAGIC = b"apil answers\n"
_BLOCK = 4096
"""The header takes a multiple of this."""
_FIRST = 256
"""Rows that a new file has room for."""
_CHUNK = 2**24
"""Bytes that are hashed at a time."""
_ROOM = 2**28
"""Bytes by which a file grows at most."""
_MAPPED = 2**28
"""Larger files are mapped to be looked at; smaller ones are read, as a run that resumes may cut its file short."""
_NOT_HERE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
"""A file system that cannot take blocks before they are written."""


@dataclass(frozen=True)
class Header:
    """What a store says of itself."""

    task: str
    layout: RowFormat
    teachers: tuple[str, ...]
    """K names, in the order of the identities."""
    whole: bool
    """All steps of an episode are kept, for models that remember; else those with an answer alone."""
    before: int = 0
    """Rows at its start that come from an earlier run."""

    def to_bytes(self) -> bytes:
        """A multiple of 4,096 bytes."""
        said = {
            "schema": SCHEMA,
            "task": self.task,
            "rows": self.layout.to_json(),
            "teachers": list(self.teachers),
            "whole": self.whole,
            "before": self.before,
        }
        text = _MAGIC + json.dumps(said).encode() + b"\n"
        return text.ljust(-(-len(text) // _BLOCK) * _BLOCK, b"\0")

    @staticmethod
    def read(path: Path) -> tuple[Header, int]:
        """The header of a file, and its length in bytes; an error for anything else than a store."""
        try:
            with path.open("rb") as file:
                start = file.read(_BLOCK)
                while start.startswith(_MAGIC) and start.count(b"\n") < 2 and (more := file.read(_BLOCK)):
                    start += more
        except FileNotFoundError:
            raise ApilError(
                f"There is no {path}: give a run that keeps a store of answers, as all do unless they were trained "
                "with --as-printed."
            ) from None
        except OSError as error:
            raise AccessError(f"Cannot read {path}: {error.strerror}. Check its permissions.") from error
        lines = start.split(b"\n", 2)
        if not start.startswith(_MAGIC) or len(lines) < 3:
            raise ApilError(f"{path} is no store of answers, or is cut short: restore it.")
        try:
            return _parsed(json.loads(lines[1])), -(-(len(lines[0]) + len(lines[1]) + 2) // _BLOCK) * _BLOCK
        except (ValueError, RecursionError, TypeError, AttributeError, OverflowError, MemoryError) as error:
            raise ApilError(f"{path} does not describe a store of answers ({error}): restore it.") from None


def _parsed(said: Mapping[str, Any]) -> Header:
    schema, task, teachers = said.get("schema"), said.get("task"), said.get("teachers")
    if type(schema) is int and schema > SCHEMA:
        raise ValueError(f"it was written by a newer apil, schema {schema}")
    whole, before = said.get("whole"), said.get("before")
    named = isinstance(teachers, list) and bool(teachers) and all(isinstance(name, str) for name in teachers)
    if schema != SCHEMA or not isinstance(task, str) or not named or not isinstance(whole, bool):
        raise ValueError("it lacks a task, teachers or the kind of its rows")
    if type(before) is not int or before < 0:
        raise ValueError("it does not say how many rows come from an earlier run")
    layout = RowFormat.from_json(said.get("rows") or {})
    return Header(task, layout, tuple(teachers or ()), whole, before)


class StoreFile:
    """The rows of one run, in a file."""

    def __init__(self, path: Path, header: Header, prefix: Prefix | None) -> None:
        """Reads and checks the file; changes nothing before `open`. `prefix` is what a checkpoint builds on."""
        self._path = path
        self._header = header.to_bytes()
        self._layout = header.layout
        self._digest = hashlib.sha256(self._header)
        self.before = header.before
        """Rows at its start that come from an earlier run."""
        self.rows = 0
        """Rows that are vouched for, and after `sync` all of them."""
        if path.exists():
            found, start = Header.read(path)
            self._check(found, header)
            self._header, self.before = found.to_bytes(), found.before
            if len(self._header) != start:
                raise ApilError(f"{path} does not describe a store of answers (its header was edited): restore it.")
            self._digest = hashlib.sha256(self._header)
            wanted = found.before if prefix is None else self._rows_in(prefix, start)
            self._take_in(wanted, prefix)
        elif prefix is not None:
            raise ChangedRowsError(f"{path} is gone, and the run builds on it: restore it or train again.")
        self.array: Rows = np.zeros(0, self._layout.dtype)
        self._file = -1

    def _check(self, found: Header, expected: Header) -> None:
        for what, own, other in (
            ("the task", found.task, expected.task),
            ("teachers", ", ".join(found.teachers), ", ".join(expected.teachers)),
            ("rows", found.layout.to_json(), expected.layout.to_json()),
            ("whole episodes:", found.whole, expected.whole),
        ):
            if own != other:
                raise ApilError(f"{self._path} has {what} {own}, and the run {other}: restore it or train again.")

    def _rows_in(self, prefix: Prefix, start: int) -> int:
        rows, rest = divmod(prefix.bytes - start, self._layout.dtype.itemsize)
        if rows < 0 or rest:
            raise ChangedRowsError(f"{self._path} is not the store that the checkpoint builds on: restore it.")
        return rows

    def _take_in(self, rows: int, prefix: Prefix | None) -> None:
        """Hashes the rows that are to stay, and compares them with what was noted of them."""
        left = rows * self._layout.dtype.itemsize
        buffer = memoryview(bytearray(min(left, _CHUNK)))
        with self._path.open("rb", buffering=0) as file:
            file.seek(len(self._header))
            while left:
                part = buffer[: file.readinto(buffer[: min(left, _CHUNK)]) or 0]
                if not part:
                    raise ChangedRowsError(
                        f"{self._path} lacks rows that the run builds on; restore it or train again."
                    )
                self._digest.update(part)
                left -= len(part)
        if prefix is not None and self._digest.hexdigest() != prefix.sha256:
            raise ChangedRowsError(
                f"{self._path} was changed: its first {rows} rows are not those that the run builds on; restore it or "
                "train again."
            )
        self.rows = rows

    def open(self, *, keep: bool = False) -> int:
        """Makes the file ready for writing; returns the number of its rows.

        Rows that nothing vouches for are dropped, as they will be made again; or they are kept as far as they are
        sound, where their questions will not come again.
        """
        if not self._path.exists():
            write_bytes(self._path, self._header)
        refuse_link(self._path)
        with writing(self._path):
            self._file = os.open(self._path, os.O_RDWR | NO_LINK)
            rows = max(self.rows, len(read_store(self._path.parent)[1])) if keep else self.rows
            os.ftruncate(self._file, len(self._header) + rows * self._layout.dtype.itemsize)
        self.grow(max(_FIRST, rows))
        return rows

    def grow(self, rows: int) -> None:
        more = max(1, min(len(self.array), _ROOM // self._layout.dtype.itemsize))
        capacity = max(rows, len(self.array) + more if len(self.array) else 0)
        with writing(self._path, FULL):
            self._allocate(capacity * self._layout.dtype.itemsize)
            with os.fdopen(os.dup(self._file), "r+b") as file:
                self.array = np.memmap(file, self._layout.dtype, "r+", len(self._header), (capacity,))

    def _allocate(self, size: int) -> None:
        """Room for `size` bytes of rows."""
        if sys.platform == "linux":
            try:
                # Blocks are taken from the disk now: a full disk is an error here, not a fault at some later write.
                os.posix_fallocate(self._file, len(self._header), size)
                return
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
        os.ftruncate(self._file, len(self._header) + size)

    def sync(self, rows: int) -> Prefix:
        """Makes all `rows` durable; what a checkpoint notes of them."""
        self._digest.update(self.array[self.rows : rows].tobytes())
        self.rows = rows
        with writing(self._path, FULL):
            self.array.flush()  # type: ignore[attr-defined]
            os.fsync(self._file)
        return Prefix(len(self._header) + rows * self._layout.dtype.itemsize, self._digest.hexdigest())

    def close(self) -> None:
        """Closes the file and gives back the room that no row has taken."""
        if self._file < 0:
            return
        rows = self.rows + _sound(self._layout, self.array[self.rows :])
        self.array = np.zeros(0, self._layout.dtype)
        with suppress(OSError):
            os.ftruncate(self._file, len(self._header) + rows * self._layout.dtype.itemsize)
        os.close(self._file)
        self._file = -1


def check_prefix(path: Path, prefix: Prefix) -> None:
    """Refuses a store that does not begin with what a checkpoint builds on."""
    header, _ = Header.read(path)
    StoreFile(path, header, prefix)


def read_store(folder: Path) -> tuple[Header, Rows]:
    """All sound rows of a run's store; a row that is torn ends them. Large stores are mapped into memory."""
    path = folder / NAME
    header, start = Header.read(path)
    size = header.layout.dtype.itemsize
    try:
        count = max(0, path.stat().st_size - start) // size
        if count * size > _MAPPED:
            rows: Rows = np.memmap(path, header.layout.dtype, "r", start, (count,))
        else:
            rows = np.fromfile(path, header.layout.dtype, count, offset=start)
    except OSError as error:
        raise AccessError(f"Cannot read {path}: {error.strerror}. Check its permissions.") from error
    rows = rows[: _sound(header.layout, rows)]
    odd = rows["identity"] >= len(header.teachers)
    if not header.layout.continuous:
        odd |= rows["action"].astype(np.int64) % (1 << 32) >= header.layout.actions
    if odd.any():
        raise ApilError(f"Row {int(odd.argmax())} of {path} is by no teacher, or no action, that it names: restore it.")
    return header, rows


def _sound(layout: RowFormat, rows: Rows) -> int:
    """How many rows from the start have a checksum that fits; zeros after the last are room that was not taken."""
    start, step = 0, 64
    while start < len(rows):
        wrong = np.flatnonzero(~layout.sound(rows[start : start + step]))
        if len(wrong):
            return start + int(wrong[0])
        start, step = start + step, min(2 * step, max(1, _CHUNK // layout.dtype.itemsize))
    return len(rows)
