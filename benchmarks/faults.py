"""Fails one write, sync or rename of a short run after another, resumes it, and compares with a run that never failed.

    python benchmarks/faults.py                 # every point of four short runs, some minutes
    python benchmarks/faults.py --run store --every 5

The system's calls are wrapped in this process: the n-th that opens a file to write, writes, syncs, renames, cuts,
allocates or removes raises an OSError. A write that fails has handed over half of its bytes before. An error comes once
(EIO), or from there on for all that needs space (ENOSPC), as on a disk that is full. Each must end in one line, an
ApilError, or change nothing; a resume then ends with the bytes of the run that never failed.
"""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from apil.errors import ApilError
from apil.runs.ending import ending
from apil.runs.train import resume_run, start_run
from apil.settings import RunSettings

_STORE: dict[str, Any] = {"replay": 8, "updates": 2, "validation": 0.2}
RUNS = {
    "printed": RunSettings.of("grid", "twodifdetm", "apil", iterations=5, log_every=2, save_every=2, hidden=8),
    "store": RunSettings.of("grid", "tworand", "dagger", iterations=5, log_every=2, save_every=2, hidden=8, **_STORE),
    "walks": RunSettings.of(
        "grid", "twodifdetm", "dagger", iterations=3, log_every=2, save_every=1, hidden=8, batch=2, walks=2, **_STORE
    ),
    "earlier": RunSettings.of("grid", "tworand", "dagger", iterations=3, save_every=2, hidden=8, seed=1, **_STORE),
}
"""Short runs; `earlier` begins with the answers of `store`."""
_NEEDS_SPACE = ("open", "write", "fsync", "replace", "ftruncate", "posix_fallocate", "mkdir")
_CALLS = (*_NEEDS_SPACE, "unlink")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Faults:
    """Counts the calls that change files, and fails the one numbered `at`; `lasting`: and those after it that need
    space."""

    def __init__(self, at: int | None, *, lasting: bool = False) -> None:
        self._at, self._lasting = at, lasting
        self.calls: list[str] = []
        """What was called, in order."""
        self._failing = False

    def _fails(self, name: str) -> bool:
        self.calls.append(name)
        self._failing = self._failing or (len(self.calls) - 1 == self._at and (not self._lasting or name != "unlink"))
        hit = len(self.calls) - 1 == self._at
        return self._failing and name in _NEEDS_SPACE if self._lasting else hit

    def _raise(self) -> None:
        code = errno.ENOSPC if self._lasting else errno.EIO
        raise OSError(code, os.strerror(code))

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any, **named: Any) -> Any:
            if name == "open" and not (given[1] if len(given) > 1 else named["flags"]) & _WRITES:
                return call(*given, **named)
            if self._fails(name):
                if name == "write":
                    call(given[0], memoryview(given[1])[: len(given[1]) // 2])
                self._raise()
            return call(*given, **named)

        return wrapped

    @contextmanager
    def injected(self) -> Iterator[None]:
        """While it is open the calls of this process may fail."""
        with ExitStack() as patches:
            for name in _CALLS:
                patches.enter_context(patch.object(os, name, self._wrapped(name, getattr(os, name))))
            flush = self._wrapped("fsync", np.memmap.flush)
            patches.enter_context(patch.object(np.memmap, "flush", lambda array: flush(array)))
            yield


def begin(name: str, folder: Path, source: Path) -> None:
    """Starts the run, or resumes it where there is one."""
    if (folder / "config.json").exists():
        resume_run(folder, iterations=None, progress=lambda done: None)
    else:
        start_run(RUNS[name], folder, progress=lambda done: None, answers_from=source if name == "earlier" else None)


def files(folder: Path, name: str) -> dict[str, bytes]:
    """What two equal runs share; of episodes in flight the answers, whose order is that of their arrival.

    How a run ended is compared as it is shown: its note is left out where it cannot be written, and then inferred.
    """
    skip = ("timings.jsonl", "environment.json", "earlier.json", "end.json")
    if RUNS[name].walks:
        return {"config.json": (folder / "config.json").read_bytes()}
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name not in skip}
    return {**found, "the end": str(ending(folder)).encode()}


def calls_of(name: str, folder: Path, source: Path) -> list[str]:
    """The calls that a run makes; the run is left in `folder`."""
    counted = Faults(None)
    with counted.injected():
        begin(name, folder, source)
    return counted.calls


def trial(name: str, at: int, folder: Path, source: Path, whole: dict[str, bytes], *, lasting: bool) -> str:
    """Fails a run once and resumes it; what went wrong, empty if nothing."""
    faults = Faults(at, lasting=lasting)

    def wrong(what: str) -> str:
        call = faults.calls[at] if at < len(faults.calls) else "-"
        return f"{name}, call {at} ({call}){' and on' if lasting else ''}: {what}"

    with faults.injected():
        try:
            begin(name, folder, source)
        except ApilError as error:
            if "\n" in str(error):
                return wrong(f"more than one line: {error}")
        except Exception as error:
            return wrong(f"{type(error).__name__}: {error}")
    try:
        begin(name, folder, source)
    except Exception as error:
        return wrong(f"the resume failed: {type(error).__name__}: {error}")
    found = files(folder, name)
    differ = [file for file in {**whole, **found} if whole.get(file) != found.get(file)]
    return wrong(f"other bytes in {', '.join(differ)}") if differ else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", choices=list(RUNS), help="one run alone")
    parser.add_argument("--every", type=int, default=1, help="try every n-th point")
    given = parser.parse_args()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="apil-faults-") as place:
        source = Path(place) / "source"
        begin("store", source, source)
        for name in [given.run] if given.run else RUNS:
            whole = Path(place) / f"whole-{name}"
            calls = calls_of(name, whole, source)
            points = [(at, lasting) for at in range(0, len(calls), given.every) for lasting in (False, True)]
            for at, lasting in points:
                folder = Path(place) / "run"
                fault = trial(name, at, folder, source, files(whole, name), lasting=lasting)
                shutil.rmtree(folder, ignore_errors=True)
                wrong += [fault] if fault else []
            print(f"{name}: {len(points)} faults at {len(calls)} calls", flush=True)
    print("\n".join(wrong) or "All ended in one line, and with the same bytes after a resume.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
