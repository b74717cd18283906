"""The run folders of a stack in two places: what has changed in one of them, sent to the other as it is made."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from apil.errors import ApilError, in_one_line
from apil.files import LOCK, locked, make_folder, open_to_write, remove, write_all, write_bytes, writing
from apil.runs.owned import own_files, refuse_links
from apil.studies.events import Change
from apil.studies.stack import FINISHED

_ORDER = ("checkpoint-*.safetensors", "checkpoint-*.json", FINISHED)
"""Written after all others, in this order: each vouches for what comes before it."""


@dataclass(frozen=True)
class _Seen:
    """A file as it was last sent or received."""

    digest: str
    size: int
    stamp: tuple[int, int] | None
    """Its time and size on this disk; None where it has to be read."""


class Mirror:
    """Run folders under `root`, whose files another place has as well."""

    def __init__(self, root: Path, folders: Iterable[str], files: Iterable[Change] = ()) -> None:
        """`files` are those that the other place has."""
        self._root, self._folders = root, tuple(folders)
        self._seen: dict[tuple[str, str], _Seen] = {}
        for folder in self._folders:
            make_folder(root / folder)
        given = list(files)
        apply(root, given)
        for file in given:
            data = file.data or b""
            self._seen[file.folder, file.name] = _Seen(hashlib.sha256(data).hexdigest(), len(data), None)

    def changes(self) -> list[Change]:
        """What has changed here since the last call; the other place is the same once it is applied there."""
        found: list[Change] = []
        there: set[tuple[str, str]] = set()
        for folder in self._folders:
            for path in _files(self._root / folder):
                there.add((folder, path.name))
                found += self._change(folder, path)
        for key in [key for key in self._seen if key not in there]:
            del self._seen[key]
            found.append(Change(*key, None))
        return found

    def _change(self, folder: str, path: Path) -> list[Change]:
        status = path.stat()
        stamp = (status.st_mtime_ns, status.st_size)
        before = self._seen.get((folder, path.name))
        if before is not None and before.stamp == stamp:
            return []
        data = path.read_bytes()
        digest = hashlib.sha256(data)
        self._seen[folder, path.name] = _Seen(digest.hexdigest(), len(data), stamp)
        if before is None or hashlib.sha256(data[: before.size]).hexdigest() != before.digest:
            return [Change(folder, path.name, data)]
        return [Change(folder, path.name, data[before.size :], before.size)] if len(data) > before.size else []


def _files(folder: Path) -> list[Path]:
    """The files of a run, except its lock."""
    refuse_links(folder)
    return [path for path in own_files(folder) if path.name != LOCK]


def _in_order(changes: Iterable[Change]) -> list[Change]:
    def rank(change: Change) -> int:
        if change.data is None:
            return len(_ORDER) + 1
        return next((1 + place for place, form in enumerate(_ORDER) if Path(change.name).match(form)), 0)

    return sorted(changes, key=rank)


def read_files(root: Path, folders: Iterable[str]) -> list[Change]:
    """All files of these runs, as changes to nothing."""
    there = [folder for folder in folders if (root / folder).is_dir()]
    return [Change(folder, path.name, path.read_bytes()) for folder in there for path in _files(root / folder)]


def apply(root: Path, changes: Iterable[Change]) -> None:
    """Makes the changes under `root`. A kill in between leaves runs that resume from one checkpoint or the next."""
    for folder, own in groupby(sorted(changes, key=lambda change: change.folder), key=lambda change: change.folder):
        make_folder(root / folder)
        with locked(root / folder):
            for change in _in_order(own):
                _apply(root / folder / change.name, change)


def _apply(path: Path, change: Change) -> None:
    if change.data is None:
        remove(path)
    elif not change.offset:
        write_bytes(path, change.data, durable=False)
    else:
        with writing(path):
            file = open_to_write(path)
            try:
                os.ftruncate(file, change.offset)
                os.lseek(file, change.offset, os.SEEK_SET)
                write_all(file, change.data)
            finally:
                os.close(file)


class Storage:
    """Run folders in shared storage: any path of pyarrow (a folder, s3://, gs://, hdfs://) or of fsspec."""

    def __init__(self, path: str) -> None:
        self.path = path if "://" in path else str(Path(path).absolute())
        self._system, self._root = _file_system(self.path)

    def write(self, root: Path, changes: Sequence[Change]) -> None:
        """Writes what has changed under `root`; a file that has grown is written whole, as objects cannot grow."""
        for change in _in_order(changes):
            where = f"{self._root}/{change.folder}/{change.name}"
            if change.data is None:
                self._remove(where)
                continue
            self._system.create_dir(f"{self._root}/{change.folder}", recursive=True)
            # An object appears when it is whole; a file is moved into place.
            on_disk = self._system.type_name == "local"
            beside = f"{self._root}/{change.folder}/.{change.name}.{os.getpid()}.new" if on_disk else where
            with self._system.open_output_stream(beside) as file:
                file.write((root / change.folder / change.name).read_bytes())
            if on_disk:
                self._system.move(beside, where)

    def read(self, folders: Iterable[str]) -> list[Change]:
        """All files of these runs that are there."""
        from pyarrow.fs import FileSelector, FileType

        found = []
        for folder in folders:
            entries = self._system.get_file_info(FileSelector(f"{self._root}/{folder}", allow_not_found=True))
            for entry in entries:
                if entry.type == FileType.File and not entry.base_name.startswith("."):
                    with self._system.open_input_stream(entry.path) as file:
                        found.append(Change(folder, entry.base_name, file.read()))
        return found

    def drop(self, folders: Iterable[str]) -> None:
        """Removes these runs."""
        for folder in folders:
            self._system.delete_dir_contents(f"{self._root}/{folder}", missing_dir_ok=True)
            self._system.delete_dir(f"{self._root}/{folder}")

    def _remove(self, where: str) -> None:
        from pyarrow.fs import FileType

        if self._system.get_file_info(where).type == FileType.File:
            self._system.delete_file(where)


def _file_system(path: str) -> tuple[Any, str]:
    try:
        from pyarrow import fs
    except ImportError as error:
        raise ApilError("--storage needs pyarrow: pip install 'apil[ray]'.") from error
    try:
        try:
            found = fs.FileSystem.from_uri(path)
        except (ValueError, OSError):
            import fsspec

            system, inside = fsspec.core.url_to_fs(path)
            found = fs.PyFileSystem(fs.FSSpecHandler(system)), inside
        found[0].create_dir(found[1], recursive=True)
    except Exception as error:
        allowed = "give a folder, or a path that pyarrow or fsspec can write to"
        raise ApilError(f"storage is {path[:200]} ({in_one_line(error)}): {allowed}.") from error
    return found[0], found[1].rstrip("/")
