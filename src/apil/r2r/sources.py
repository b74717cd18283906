"""Where raw files come from: a folder, and packed archives in it that are read in memory."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apil.errors import ApilError

FOLDERS = ("connectivity", "annotations", "captions", "objects", "rooms", "derived", "embeddings")
"""The top folders of the raw layout that are looked at."""

_LARGEST = 2**31
"""Bytes that an archive may hold; the public ones hold less than a tenth of it."""
_MEMORY = 2**28
"""Bytes that decompressing may take; xz -9 needs 65 MiB."""


class Source:
    """Raw files by their path in the layout, such as `annotations/R2R_train.json`; keeps checksums of those read."""

    def __init__(self, folder: Path, files: Mapping[str, Path | bytes]) -> None:
        self.folder = folder
        self._files = files
        self.sha256: dict[str, str] = {}
        """Of each file read so far."""

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def under(self, folder: str) -> list[str]:
        """The files right in a folder of the layout, sorted; empty where there is no such folder."""
        return sorted(name for name in self._files if name.rpartition("/")[0] == folder)

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        found = self._files.get(name)
        if found is None:
            raise ApilError(f"{self.folder} lacks {name}: unpack or download it again (docs/guide/r2r.md).")
        try:
            data = found if isinstance(found, bytes) else found.read_bytes()
        except OSError as error:
            raise ApilError(f"Cannot read {found!s}: {error.strerror}. Check its permissions.") from error
        self.sha256[name] = hashlib.sha256(data).hexdigest()
        return data

    def text(self, name: str) -> str:
        """A text file, UTF-8."""
        try:
            return self.read(name).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.bad(name, f"byte {error.start} is not UTF-8 text") from error

    def json(self, name: str, kind: type) -> Any:
        """The value of a JSON file, which must be a `list` or a `dict`."""
        text = self.text(name)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
            raise self.bad(name, f"it is not whole JSON ({error})") from error
        if not isinstance(value, kind):
            raise self.bad(name, f"a {type(value).__name__} stands where a {kind.__name__} is expected")
        return value

    def bad(self, name: str, why: str) -> ApilError:
        """The error for a file that cannot be used."""
        return ApilError(f"{name} in {self.folder}: {why}. Copy or download the file again (docs/guide/r2r.md).")

    @contextmanager
    def reading(self, name: str, item: str) -> Iterator[None]:
        """Makes whatever goes wrong with a part of a file an error that names both."""
        try:
            yield
        except ApilError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, OSError, EOFError) as error:
            why = f"no {error}" if isinstance(error, KeyError) else str(error).partition("\n")[0]
            raise self.bad(name, f"{item} is not as expected ({why or type(error).__name__})") from error


def open_source(folder: Path) -> Source:
    """The raw files of a folder: as they are and from its `*.tar.xz` archives; one that is there twice as it is."""
    if not folder.is_dir():
        raise ApilError(f"{folder} is not a folder: give the folder that holds the R2R files, or their archives.")
    files: dict[str, Path | bytes] = {}
    for archive in sorted(folder.glob("*.tar.xz")):
        if archive.name.startswith(FOLDERS):
            files.update(_unpacked(archive))
    paths = (path for top in FOLDERS for path in (folder / top).rglob("*") if path.is_file())
    files.update({path.relative_to(folder).as_posix(): path for path in paths})
    if not files:
        raise ApilError(f"{folder} holds neither connectivity/ nor *.tar.xz archives: see docs/guide/r2r.md.")
    return Source(folder, files)


def _unpacked(archive: Path) -> dict[str, bytes]:
    """The files of an archive. It is decompressed whole first: only that notices every truncation."""
    remedy = "copy or download the archive again"
    try:
        content = _decompressed(archive)
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            members = [member for member in tar if member.isfile()]
            for member in members:
                if member.issparse():
                    raise ApilError(f"{archive} has {member.name!r:.80} with holes in it: {remedy}.")
            opened = {member.name.removeprefix("./"): tar.extractfile(member) for member in members}
            return {name: file.read() for name, file in opened.items() if file is not None}
    except ApilError:
        raise
    except (lzma.LZMAError, EOFError, tarfile.TarError, OverflowError, ValueError) as error:
        raise ApilError(f"{archive} is truncated or damaged ({error}): {remedy}.") from error
    except OSError as error:
        raise ApilError(f"Cannot read {archive}: {error.strerror or error}. Check its permissions.") from error


def _decompressed(archive: Path) -> bytes:
    """What an archive of one or more xz streams holds, up to a limit: a small file can hold more than a disk."""
    if not archive.is_file():
        raise ApilError(f"{archive} is not a file: remove it, or put the archive in its place.")
    rest, content = archive.read_bytes(), bytearray()
    while rest:
        decoder = lzma.LZMADecompressor(memlimit=_MEMORY)
        try:
            content += decoder.decompress(rest, _LARGEST + 1 - len(content))
        except lzma.LZMAError:
            if not content:
                raise
            break  # what follows a whole stream is no part of the archive
        if len(content) > _LARGEST:
            raise ApilError(f"{archive} holds more than {_LARGEST // 2**20} MiB: unpack it, and give its folder.")
        if not decoder.eof:
            raise EOFError("it ends before its end-of-stream marker")
        rest = decoder.unused_data.lstrip(b"\0")
    return bytes(content)
