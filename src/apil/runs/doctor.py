"""`apil doctor`: does the installation work, and what is missing?"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from apil.errors import ApilError

_NEEDED = ("torch", "numpy", "scipy", "gymnasium", "tyro", "rich", "safetensors", "matplotlib")

_EXTRAS = {
    "pytest": ("dev", "make test"),
    "ruff": ("dev", "make test"),
    "mypy": ("dev", "make test"),
    "minari": ("minari", "apil export"),
    "minigrid": ("minigrid", "the example in docs/guide/minigrid.md"),
    "h5py": ("images", "image features from HDF5 files"),
}
"""Packages that are not needed: the extra that installs each, and what it is for."""


@dataclass(frozen=True)
class Finding:
    what: str
    good: bool
    detail: str
    """The version or state, or what to do."""
    needed: bool = True


def examine(folder: Path) -> Iterator[Finding]:
    """Looks at everything, one finding at a time; `folder` is where runs would be written."""
    yield Finding("Python", True, platform.python_version())  # the installer refuses one that is too old
    for name in _NEEDED:
        yield _package(name, f"missing: pip install -c constraints.txt {name}")
    yield _try("a tiny training", _train)
    yield _try(f"writing into {folder}", lambda: _write(folder))
    for name, (extra, enables) in _EXTRAS.items():
        install = f"pip install -c constraints.txt -e '.[{extra}]'"
        yield _package(name, f"not installed; would enable: {enables} ({install})", needed=False)
    ffmpeg = shutil.which("ffmpeg")
    detail = "found" if ffmpeg else "not installed; would enable: apil replay --out FILE.mp4 (a .gif needs nothing)"
    yield Finding("ffmpeg", ffmpeg is not None, detail, needed=False)


def _package(name: str, otherwise: str, needed: bool = True) -> Finding:
    try:
        return Finding(name, True, importlib.metadata.version(name), needed)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, False, otherwise, needed)


def _try(what: str, work: Callable[[], str]) -> Finding:
    try:
        return Finding(what, True, work())
    except ApilError as error:
        return Finding(what, False, str(error))
    except Exception as error:  # whatever is wrong with an installation is a finding, not a crash
        return Finding(what, False, f"{type(error).__name__}: {error}; reinstall with pip install -c constraints.txt")


def _train() -> str:
    from apil.runs.api import train

    with tempfile.TemporaryDirectory() as folder:
        train("grid", "twodifdetm", "apil", folder=f"{folder}/run", progress=False, iterations=5, log_every=5)
    return "trained, saved and loaded"


def _write(folder: Path) -> str:
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(b"apil")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ApilError(f"{error.strerror}: choose a folder you may write to, or free space") from error
    return f"fine, {shutil.disk_usage(folder).free // 2**20} MB free"
