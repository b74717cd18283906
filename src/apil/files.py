"""Reading and writing files so that nothing is left half-written and every failure is one clear line."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from apil.errors import AccessError, ApilError

T = TypeVar("T")
U = TypeVar("U")

LOCK = ".lock"
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""Of `os.open`: a symbolic link is an error."""
_NEW = re.compile(r"\..+\.\d+\.new(\.\w+)?")
"""The names that `new_name` gives."""


_TOGETHER = 16
"""Folders that are written at a time."""


def together(work: Callable[[T], U], items: Sequence[T]) -> list[U]:
    """What `work` makes of each item, several at a time; one item is worked on in this thread.

    For work that waits for the disk, which makes many files durable at once in the time that one takes. All work is
    done when it returns or raises the first error.
    """
    if len(items) <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(_TOGETHER) as pool:
        return list(pool.map(work, items))


def new_name(path: Path, ending: str = "") -> Path:
    """Where a file is made before it is moved to `path`; `ending` is for writers that go by it."""
    return path.with_name(f".{path.name}.{os.getpid()}.new{ending}")


@contextmanager
def writing(path: Path, remedy: str = "Check space and permissions.") -> Iterator[None]:
    """Makes whatever the system refuses on the way to `path` one clear line."""
    try:
        yield
    except OSError as error:
        raise AccessError(f"Cannot write {path}: {error.strerror or error}. {remedy}") from error


def open_to_write(path: Path, flags: int = 0) -> int:
    """A descriptor of a file to write; made if there is none. A symbolic link is never followed."""
    refuse_link(path)
    return os.open(path, os.O_WRONLY | os.O_CREAT | NO_LINK | flags, 0o666)


def write_all(file: int, data: bytes) -> None:
    """Hands all of it to the operating system, which may take it in parts."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def write_bytes(path: Path, data: bytes, *, sync_folder: bool = True, durable: bool = True) -> None:
    """Writes a file, whole or not at all: a new file beside `path`, made durable, then moved into place.

    Without `sync_folder` the move itself may be lost to a power cut until the next file is written into the folder; if
    not `durable`, so may the file.
    """
    new = new_name(path)
    try:
        with writing(path):
            new.unlink(missing_ok=True)
            file = open_to_write(new, os.O_EXCL)
            try:
                write_all(file, data)
                if durable:
                    os.fsync(file)
            finally:
                os.close(file)
            os.replace(new, path)
            if durable and sync_folder:
                _sync_folder(path.parent)
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def beside(path: Path, ending: str = "") -> Iterator[Path]:
    """A place beside `path` for a file or a folder; moved there when all went well, and gone otherwise."""
    make_folder(path.parent)
    new = new_name(path, ending)
    try:
        with writing(path):
            _discard(new)
            yield new
            os.replace(new, path)
    finally:
        with suppress(OSError):
            _discard(new)


def _discard(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def append_text(path: Path, text: str) -> None:
    """Adds to the end of a file."""
    with writing(path):
        file = open_to_write(path, os.O_APPEND)
        try:
            write_all(file, text.encode())
        finally:
            os.close(file)


def move(path: Path, to: Path) -> None:
    """Gives a file another name in its folder."""
    with writing(to):
        os.replace(path, to)


def remove(path: Path) -> None:
    """Removes a file, or a link and not what it leads to."""
    with writing(path, "Check the permissions of its folder."):
        path.unlink(missing_ok=True)


def refuse_link(path: Path) -> None:
    """Refuses a symbolic link: what is written through it would land outside of the folder that was named."""
    if path.is_symlink():
        raise AccessError(
            f"{path} is a symbolic link, and apil writes through none: put what it leads to in its place."
        )


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
    if isinstance(error, OSError):
        return AccessError(f"Cannot read {path}: {error.strerror or error}. Check its permissions.")
    why = (str(error).splitlines() or [type(error).__name__])[0]
    return ApilError(f"Cannot read {path}: {why}. Restore the file or make it again.")


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
        return any(not entry.name.endswith(LOCK) and not _NEW.fullmatch(entry.name) for entry in path.iterdir())
    except OSError as error:
        raise ApilError(f"Cannot use {str(path)[:80]}: {error.strerror}. Choose another folder.") from error


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ApilError(f"Cannot create {path}: {error.strerror}. Choose another folder.") from error


def remove_leftovers(folder: Path) -> None:
    """Removes new files that a killed writer could not move into place."""
    for path in folder.glob(".*.new*"):
        if _NEW.fullmatch(path.name) and not path.is_dir():
            remove(path)


def in_use(folder: Path) -> bool:
    """Whether a process is at work in a folder, as far as can be seen. Writes nothing."""
    try:
        file = os.open(folder / LOCK, os.O_RDONLY | os.O_NONBLOCK | NO_LINK)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(file)
    return False


@contextmanager
def locked(folder: Path, name: str = LOCK, *, wait: bool = False) -> Iterator[None]:
    """One process works in a folder at a time; the lock goes with the process, however it ends.

    Who comes second is refused, or waits. A lock of another `name` is another one.
    """
    refuse_link(folder / name)
    lock = FileLock(folder / name, blocking=wait)
    try:
        lock.acquire()
    except Timeout:
        raise AccessError(f"Another process is using {folder}: wait for it, or stop it first.") from None
    except OSError as error:
        raise AccessError(f"Cannot write into {folder}: {error.strerror}. Check its permissions.") from error
    try:
        yield
    finally:
        lock.release()
