"""`apil teach`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from apil.cli.options import command, from_record, given, run_settings, value_of
from apil.errors import ApilError, plural
from apil.settings.record import spelled
from apil.tasks.options import options_of


@dataclass(frozen=True)
class Common:
    task: str = "maze"
    """Where the agent lives; see `apil list`. Its own options are shown by `apil teach --task NAME --help`."""
    teachers: tuple[str, ...] = ()
    """Who teaches: a name for each person, for example ann bob. Each gets a link of their own."""
    also: tuple[str, ...] = ()
    """Simulated teachers beside the people, for example first or uniform."""
    query: str = "random"
    """When to ask; see `apil list`."""
    out: Path = Path("runs/live")
    """Folder for the run; must be new or empty."""
    resume: Path | None = None
    """A stopped run to resume; its settings are in the folder."""
    calibration: Path | None = None
    """A file made by `apil calibrate`; overrides the thresholds that come with apil."""
    answers_from: Path | None = None
    """An earlier run whose answers are learned from as well; they do not count as answers of this run."""
    walks: int = 8
    """Episodes in flight at once, each waiting for its own answer."""
    host: str = "127.0.0.1"
    """Where the server listens: this machine alone unless another address is given."""
    port: int = 0
    """Port of the server; 0 picks a free one."""
    address: str = ""
    """Address at which teachers reach the server, if it differs: https://teach.example.org behind a proxy."""
    lease: float = 60.0
    """Seconds a question waits for its teacher before another teacher may answer it."""
    overlap: int = 1
    """How many teachers are asked the same question, to see how they agree."""
    show_agent: bool = True
    """Show teachers what the agent would do by itself and how sure it is, which biases them."""
    distances: Literal["task", "said", "none"] = "task"
    """Where distances to the goal come from: the task, the teachers (said), or nowhere."""
    frames: int = 6
    """How many of the last states are shown as a short animation."""
    patience: float | None = None
    """Seconds after which the agent continues without an answer; no limit if not given."""


_DESK = ("host", "port", "address", "lease", "overlap", "show_agent", "distances", "frames", "patience")
_OWN = ("task", "teacher", "teachers", "also", "query", "out", "resume", "calibration", "answers_from", *_DESK)
_NOT = ("teacher", "weights", "teacher_deadline", "as_printed", "asking")
"""Settings of a run that do not go with people."""


def options(argv: Sequence[str]) -> type:
    task = value_of(argv, "--task", Common.task)
    own = from_record(options_of(task).arguments)
    words = "Let people teach an agent: start a server, print a link for each teacher, and learn while they answer."
    return command("Teach", words, Common, [*run_settings((*_OWN, *_NOT)), *own])


def run(typed: Any, argv: Sequence[str]) -> int:
    from apil.people.run import resume, start

    desk = {name: value for name, value in given(typed, argv).items() if name in _DESK}
    if typed.resume:
        for name in given(typed, argv, ("resume", "iterations", *_DESK)):
            raise ApilError(
                f"--{spelled(name)} cannot be changed on resume: the run keeps its settings; leave the option out."
            )
        folder = typed.resume
        outcome = resume(folder, desk, given(typed, argv).get("iterations"))
    else:
        if not typed.teachers:
            raise ApilError("No teachers are named: give their names with --teachers, for example --teachers ann bob.")
        folder = typed.out
        settings = {"walks": typed.walks} | given(typed, argv, _OWN)
        outcome = start(
            typed.task,
            typed.teachers,
            typed.query,
            settings,
            folder,
            desk,
            typed.also,
            typed.calibration,
            typed.answers_from,
        )
    if outcome.stopped:
        print(f"Stopped after {(outcome.last or {}).get('answers', 0)} answers or more; nothing is lost.")
        print(f"Resume with: apil teach --resume {quote(str(folder))}")
        return 130
    answers = (outcome.last or {}).get("answers", 0)
    print(f"Ended after {plural(answers, 'answer')}; next: apil evaluate {quote(str(folder))}")
    return 0
