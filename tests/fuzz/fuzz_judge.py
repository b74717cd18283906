"""Plays a case of odd input on the command line, and judges how it ends.

A case ends well in two ways: the command does what it should, or it is refused by exit code 2 and one line on stderr.
`apil.load` may also warn that it does not know the agent's query policy: the agent can still act, and Python code can
filter the warning or make an error of it.
"""

from __future__ import annotations

import io
import os
import re
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

import numpy as np

import apil
from apil.cli import main
from apil.errors import ApilError
from apil.r2r.houses_folder import write_houses

GOOD, REFUSED, MISHANDLED = "good", "refused", "mishandled"
TINY = {"iterations": "2", "hidden": "4", "persona": "3", "models": "2", "batch": "2"}
"""Settings that let a command end soon."""
SMALL = {"width": "8", "heads": "2", "words": "8"}
"""The same of R2R."""
_UNKNOWN_RULE = re.compile(r"The query policy '[^\n]{1,200}' is not known here, so decision\.ask is None: [^\n]{1,200}")
"""The one warning of `apil.load`, on a single line."""
_MEMORY = 3 * 2**30
"""Bytes that a case may add to the process."""


@dataclass(frozen=True)
class Made:
    """What cases start from: never changed, only copied."""

    grid: Path
    """A run folder."""
    r2r: Path
    """The same on R2R."""
    houses: Path
    """Generated houses, raw and compiled."""


def make(folder: Path) -> Made:
    """Makes the things that cases start from."""
    made = Made(folder / "grid", folder / "r2r", folder / "houses")
    write_houses(made.houses, 2, 0, lambda stage, done, total: None)
    for task, out, more in (("grid", made.grid, {}), ("r2r", made.r2r, {**SMALL, "data": str(made.houses)})):
        line = ["train", "--task", task, "--out", str(out), "--save-every", "1", *typed({**TINY, **more})]
        found = typed_line(line, 120)
        assert found.verdict == GOOD, found
    return made


def typed(options: dict[str, str]) -> list[str]:
    """Options as they are typed."""
    return [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]


class Change(Protocol):
    """Something that is prepared before a command is typed."""

    def apply(self, place: Path, made: Made) -> None:
        """Does it in the folder `place`."""


@dataclass(frozen=True)
class Case:
    """A command line, what is prepared for it, and a command that must work if it did."""

    words: tuple[str, ...]
    changes: tuple[Change, ...] = ()
    then: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """How a case ended."""

    verdict: str
    why: str = ""


class _TooLongError(BaseException):
    """Not an `Exception`: nothing on the way may take it for an error of its own."""


def play(case: Case, made: Made, place: Path, seconds: float = 120.0) -> Found:
    """Plays a case in a new folder `place`, which is removed afterwards."""
    place.mkdir(parents=True)
    before = Path.cwd()
    os.chdir(place)
    try:
        for change in case.changes:
            change.apply(place, made)
        found = typed_line(case.words, seconds)
        if found.verdict == GOOD and case.then:
            again = typed_line(case.then, seconds)
            if again.verdict != GOOD:
                return Found(MISHANDLED, f"what was written does not open again: {again.why}")
        return found
    finally:
        os.chdir(before)
        shutil.rmtree(place, ignore_errors=True)


def typed_line(words: Sequence[str], seconds: float) -> Found:
    """What comes of a command line."""
    # As Python opens them: what cannot be encoded is an error on stdout, and is escaped on stderr.
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace")
    code: object = 0
    try:
        with _limits(seconds), redirect_stdout(out), redirect_stderr(err):
            if words and words[0] == "apil.load":
                act(words[1])
            else:
                main(words)
    except SystemExit as stop:
        code = stop.code
    except _TooLongError:
        return Found(MISHANDLED, f"did not end within {seconds:g} s")
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return Found(MISHANDLED, f"{type(error).__name__}: {str(error)[:300]} ({place.filename}:{place.lineno})")
    err.flush()
    return judged(code, err.buffer.getvalue().decode())


def act(folder: str) -> None:
    """Loads an agent and lets it act."""
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", UserWarning)
            agent = apil.load(folder)
        for each in warned:
            if each.category is not UserWarning or not _UNKNOWN_RULE.fullmatch(str(each.message)):
                print(f"{each.category.__name__}: {each.message}", file=sys.stderr)
        seen = np.zeros(agent.spec.features, dtype=np.float32)
        with agent.episode() as episode:
            episode.act(seen)
    except ApilError as error:
        print(f"apil: {error}", file=sys.stderr)
        sys.exit(2)


def judged(code: object, told: str) -> Found:
    """The verdict on an exit code and what was told on stderr."""
    lines = [line for line in told.splitlines() if not line.startswith("apil: warning")]
    if not all(line.startswith("apil: ") for line in lines):
        return Found(MISHANDLED, f"exit code {code} and {told[:300]!r} on stderr")
    if code in (0, None):
        return Found(GOOD)
    if code == 2 and len(lines) == 1 and len(lines[0]) < 6000:
        return Found(REFUSED, lines[0])
    return Found(MISHANDLED, f"exit code {code} and {told[:300]!r} on stderr")


@contextmanager
def _limits(seconds: float) -> Iterator[None]:
    """A limit of time, and one of memory where the system knows it."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise _TooLongError

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = signal.signal(signal.SIGALRM, stop)
    memory = resource.getrlimit(resource.RLIMIT_AS)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    if sys.platform == "linux":
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + _MEMORY, memory[1]))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, memory)
        signal.signal(signal.SIGALRM, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


Play = Callable[[Case], Found]
