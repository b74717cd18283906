"""`end.json`: how the training of a run ended. Where there is none, it is under way or was killed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from apil.errors import ApilError, in_one_line, one_line, plural
from apil.files import in_use, read_json, remove, write_json
from apil.runs.checkpoint import load_checkpoint
from apil.settings import RunSettings

NAME = "end.json"
State = Literal["finished", "stopped", "failed", "killed", "in training"]
_LONGEST = 1000
"""Characters of a reason."""


@dataclass(frozen=True)
class Ending:
    """How a training ended."""

    state: State
    """Trained to its end; stopped by the user; ended by an error; ended without a word (SIGKILL, a power cut, or by an
    older version that noted nothing); or not ended yet."""
    iteration: int
    """Iterations that a resume builds on."""
    reason: str = ""
    """Of a failure, in one line."""

    def __str__(self) -> str:
        saved = f"{self.state} after {plural(self.iteration, 'saved iteration')}"
        return f"{saved}: {self.reason}" if self.reason else saved


class Folder(Protocol):
    """What is noted of a run in training."""

    folder: Path
    done: int
    """Iterations that are saved."""
    ended: bool
    """It is trained to its end."""


@contextmanager
def noted_end(runs: Sequence[Folder]) -> Iterator[None]:
    """Notes how the training of some runs ends, whatever ends it; `sys.exit` inside is an error like any other."""
    for run in runs:
        remove(run.folder / NAME)
    try:
        yield
    except KeyboardInterrupt:
        _note(runs, "stopped", "at once, in the middle of an iteration")
        raise
    except SystemExit as error:
        failure = ApilError(
            f"Something in the run called sys.exit({'' if error.code is None else repr(error.code)}) after "
            f"{runs[0].done} saved iterations: fix the task or the policy that does, then resume."
        )
        _note(runs, "failed", str(failure))
        raise failure from error
    except BaseException as error:
        _note(runs, "failed", str(error) if isinstance(error, ApilError) else in_one_line(error))
        raise
    _note(runs, "stopped", "")


def _note(runs: Sequence[Folder], state: State, reason: str) -> None:
    for run in runs:
        end = Ending("finished", run.done) if run.ended else Ending(state, run.done, one_line(reason)[:_LONGEST])
        # On a full disk the error itself matters more than its note.
        with suppress(ApilError):
            write_json(run.folder / NAME, asdict(end), durable=False)


def ending(folder: Path) -> Ending:
    """How the training in a run folder ended, or that it has not."""
    config = RunSettings.from_json(read_json(folder / "config.json"))
    found = load_checkpoint(folder, config)
    done = 0 if found is None else found.iteration
    if in_use(folder):
        return Ending("in training", done)
    with suppress(ApilError):
        noted = _read(read_json(folder / NAME))
        if noted is not None:
            return noted
    whole = found is not None and (found.ended or found.iteration >= config.iterations)
    return Ending("finished" if whole else "killed", done)


def _read(value: Any) -> Ending | None:
    """What was noted; None if it cannot be meant."""
    if not isinstance(value, dict) or set(value) != {"state", "iteration", "reason"}:
        return None
    state, iteration, reason = value["state"], value["iteration"], value["reason"]
    sound = state in get_args(State) and type(iteration) is int and isinstance(reason, str)
    return Ending(state, iteration, one_line(reason)) if sound else None
