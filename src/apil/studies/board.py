"""How a study that is running stands, for those who watch its folder: a small file that is written now and then."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from apil.errors import ApilError
from apil.files import in_use, read_json, write_json
from apil.studies.engines import Tally
from apil.studies.folder import MARK
from apil.studies.stack import FAILED, FINISHED
from apil.terminal.bars import clock, is_live, pause

NAME = ".progress.json"
_LOOK_SECONDS = 1.0
"""Between two looks at a folder, in a terminal."""
_SHOWN = 5
"""Names of runs that are shown at most."""


class Board:
    """Writes how a study stands into its folder."""

    def __init__(self, folder: Path, runs: int, before: int) -> None:
        """`before`: how many of its `runs` were finished before."""
        self._path, self._runs, self._before = folder / NAME, runs, before

    def write(self, tally: Tally) -> None:
        note = {**asdict(tally), "done": tally.done + self._before, "runs": self._runs, "at": time.time()}
        write_json(self._path, note, durable=False)


@dataclass(frozen=True)
class StudyView:
    """A study, or one task of it, as its folder shows it now."""

    folder: Path
    command: str
    state: str
    """running, finished or stopped."""
    runs: int | None
    """That it has in all; None where that is not on file."""
    done: int
    running: Sequence[str]
    """Names of the runs that a process is at work in."""
    failed: Sequence[tuple[str, str]]
    """Names of the runs that failed, and the last line of the log of each."""
    left: float | None
    """Seconds, as estimated when the file was written; None where nothing is known."""


def views(folder: Path) -> Iterator[StudyView]:
    """The study in a folder, or each of its tasks that was begun."""
    inside = sorted(path.parent for path in folder.glob(f"*/{MARK}"))
    for own in inside or [folder]:
        yield _view(own, in_use(folder))


def _view(folder: Path, at_work: bool) -> StudyView:
    note: dict[str, Any] = {}
    with suppress(ApilError):
        found = read_json(folder / NAME)
        note = found if isinstance(found, dict) else {}
    runs = [path for path in sorted((folder / "runs").glob("*")) if path.is_dir()]
    finished = [run for run in runs if (run / FINISHED).is_file()]
    failed = [(run.name, _last_line(run / FAILED)) for run in runs if (run / FAILED).is_file()]
    running = [run.name for run in runs if at_work and in_use(run)]
    total = note.get("runs") if isinstance(note.get("runs"), int) else None
    whole = (folder / "report.html").is_file() and not failed and (total is None or len(finished) >= total)
    over = "finished" if whole else "stopped"
    left, at = note.get("left"), note.get("at")
    known = at_work and isinstance(left, int | float) and isinstance(at, int | float)
    return StudyView(
        folder=folder,
        command=str(read_json(folder / MARK).get("command", "")),
        state="running" if at_work else over,
        runs=total,
        done=max(len(finished), int(note.get("done", 0)) if at_work else 0),
        running=running,
        failed=failed,
        left=max(0.0, left - (time.time() - at)) if known else None,  # type: ignore[operator]
    )


def lines(view: StudyView) -> list[str]:
    """A study as plain lines."""
    total = "" if view.runs is None else f" of {view.runs:,}"
    state = f"{view.state}, {view.done:,}{total} runs done, {len(view.running)} running, {len(view.failed)} failed"
    state += f", about {clock(view.left)} left" if view.left else ""
    found = [f"{view.folder}: {view.command}", f"  {'state':10} {state}"]
    if view.running:
        more = f" and {len(view.running) - _SHOWN} more" if len(view.running) > _SHOWN else ""
        found.append(f"  {'running':10} {', '.join(view.running[:_SHOWN])}{more}")
    found += [f"  {'failed':10} {name}: {why}" for name, why in view.failed[:_SHOWN]]
    if view.state == "finished":
        found.append(f"  {'report':10} {view.folder / 'report.html'}")
    return found


def watch_study(folder: Path, *, once: bool) -> None:
    """Shows a study until it ends, or `once`. Only reads."""
    console, began = Console(), time.monotonic()
    live = is_live(console) and not once
    with Live(console=console, auto_refresh=False) if live else nullcontext() as drawn:
        while True:
            found = list(views(folder))
            text = "\n".join(line for view in found for line in lines(view))
            if drawn is None:
                print(text, flush=True)
            else:
                drawn.update(Text(text), refresh=True)
            if once or all(view.state != "running" for view in found):
                return
            time.sleep(_LOOK_SECONDS if live else pause(time.monotonic() - began))


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:200] if lines else ""
