"""Reading and writing files so that nothing is left half-written and every failure is one clear line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from apil.errors import ApilError


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Calls `write` on a new file beside `path`, makes it durable and moves it into place."""
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        write(new)
        with new.open("rb+") as file:
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise ApilError(f"Cannot write {path}: {error.strerror or error}. Check space and permissions.") from error
    finally:
        new.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text file, whole or not at all."""

    def write(new: Path) -> None:
        new.write_text(text, encoding="utf-8")

    write_atomically(path, write)


def write_json(path: Path, value: Any) -> None:
    """Writes JSON with two spaces of indent; NaN is refused (use None)."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The value in a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ApilError(f"{path} does not exist: check the folder's name.") from None
    except (OSError, ValueError) as error:
        raise ApilError(f"Cannot read {path}: {error}. Restore the file or make it anew.") from error


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Writes JSON lines."""
    write_text(path, "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON lines file."""
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise ApilError(f"Cannot read {path}: {error}. Restore the file or make it anew.") from error


def empty_folder(path: Path, what: str) -> None:
    """Makes `path` a folder that holds nothing else; refuses one that does."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ApilError(f"{path} exists and is not an empty folder: choose another --out for {what}, or remove it.")
    make_folder(path)


def make_folder(path: Path) -> None:
    """Creates a folder with its parents."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ApilError(f"Cannot create {path}: {error.strerror}. Choose another folder.") from error
