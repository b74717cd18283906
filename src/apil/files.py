"""Reading and writing files so that nothing is left half-written and every failure is one clear line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from apil.errors import ApilError


def write_bytes(path: Path, data: bytes, *, sync_folder: bool = True, durable: bool = True) -> None:
    """Writes a file, whole or not at all: a new file beside `path`, made durable, then moved into place.

    Without `sync_folder` the move itself may be lost to a power cut until the next file is written into the folder; if
    not `durable`, so may the file.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        new.replace(path)
        if durable and sync_folder:
            handle = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    except OSError as error:
        raise ApilError(f"Cannot write {path}: {error.strerror or error}. Check space and permissions.") from error
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Writes JSON with two spaces of indent; NaN is refused (use None)."""
    write_bytes(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode(), durable=durable)


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ApilError(f"{path} does not exist: check the name.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, error) from error


def read_rows(path: Path) -> list[dict[str, Any]]:
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if not all(isinstance(row, dict) for row in rows):
            raise ValueError("a line is not a record")
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, error) from error
    return rows


def _unreadable(path: Path, error: Exception) -> ApilError:
    why = (str(error).splitlines() or [type(error).__name__])[0]
    return ApilError(f"Cannot read {path}: {why}. Restore the file or make it anew.")


def empty_folder(path: Path, what: str) -> None:
    """Makes `path` a folder that holds nothing else; refuses one that does."""
    if taken(path):
        raise ApilError(f"{path} exists and is not an empty folder: choose another --out for {what}, or remove it.")
    make_folder(path)


def taken(path: Path) -> bool:
    """Whether there is a file, or a folder with something in it."""
    try:
        if not path.is_dir():
            return path.exists()
        # What a killed writer could not move into place does not count, nor does the lock of a run.
        return any(entry.name != ".lock" and not entry.match(".*.new") for entry in path.iterdir())
    except OSError as error:
        raise ApilError(f"Cannot use {str(path)[:80]}: {error.strerror}. Choose another folder.") from error


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ApilError(f"Cannot create {path}: {error.strerror}. Choose another folder.") from error


def remove_leftovers(folder: Path) -> None:
    """Removes new files that a killed writer could not move into place."""
    for path in folder.glob(".*.new"):
        path.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process works in a folder at a time; the lock goes with the process, however it ends."""
    lock = FileLock(folder / ".lock", blocking=False)
    try:
        lock.acquire()
    except Timeout:
        raise ApilError(f"Another process is at work in {folder}: wait for it, or stop it first.") from None
    except OSError as error:
        raise ApilError(f"Cannot write into {folder}: {error.strerror}. Check its permissions.") from error
    try:
        yield
    finally:
        lock.release()
