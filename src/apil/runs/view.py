"""A run as it is on disk now, for those who watch: in training or ended. Only reads, and imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from apil.errors import ApilError
from apil.files import in_use, read_json
from apil.settings import RunSettings

Row = Mapping[str, Any]
_LAST_BYTES = 8192
"""At the end of a file of answers, which may be large: enough for the last questions."""


@dataclass(frozen=True)
class Look:
    """Success alone at a moment of a training: nobody was asked."""

    iteration: int
    answers: int | None
    """So far; None where it is not on file."""
    success: float


@dataclass(frozen=True)
class RunView:
    """What the folder of a run says."""

    folder: Path
    settings: RunSettings
    rows: Sequence[Row]
    """Of metrics, in the order of their iterations."""
    looks: Sequence[Look]
    """In the order of their iterations; empty where success alone was not measured."""
    questions: Sequence[str]
    """The last ones with their answers, oldest first."""
    state: str
    """As `apil.runs.ending.State` has them."""
    reason: str
    """Of a failure, in one line."""
    seconds: float
    """Of training up to the last checkpoint, over all resumes."""
    saved: int
    """Iterations up to the last checkpoint."""

    @property
    def last(self) -> Row:
        """The last row of metrics; empty if there is none yet."""
        return self.rows[-1] if self.rows else {}

    @property
    def name(self) -> str:
        """Task, teacher and query policy."""
        run = self.settings
        return f"{run.task.name}, {run.teachers.name}, {run.query.name}"

    @property
    def done(self) -> int:
        """How far it is, in iterations or, with a budget of answers, in answers."""
        return int(self.last.get("answers" if self.settings.query.answer_budget else "iteration", 0))

    @property
    def total(self) -> int:
        """How far it goes, in the same unit."""
        return self.settings.query.answer_budget or self.settings.iterations

    @property
    def left(self) -> float | None:
        """Seconds left by the speed so far; None where that is not known, or there is nothing left."""
        done = int(self.last.get("iteration", 0))
        if self.state != "in training" or not self.saved or not self.seconds or not done or not self.done:
            return None
        return max(0.0, self.seconds / self.saved * done * (self.total - self.done) / self.done)


class Watcher:
    """Looks at the folder of a run again and again, reading only what is new."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ApilError(f"There is no run folder {folder}: give one written by `apil train`.")
        self._folder, self._metrics = folder, RowFile(folder / "metrics.jsonl")

    def look(self) -> RunView:
        """The run as it is now. Half a line at the end of a file is left for the next look."""
        folder = self._folder
        settings = RunSettings.from_json(read_json(folder / "config.json"))
        rows = self._metrics.read()
        state, reason = _state(folder, settings)
        timings = _read_rows(folder / "timings.jsonl")
        return RunView(
            folder=folder,
            settings=settings,
            rows=rows,
            looks=_looks(folder, rows),
            questions=_questions(folder),
            state=state,
            reason=reason,
            seconds=sum(float(timing.get("seconds", 0.0)) for timing in timings),
            saved=max((int(timing.get("to", 0)) for timing in timings), default=0),
        )


class RowFile:
    """The rows of a file that grows; a resume may have cut some, which are then written again."""

    def __init__(self, path: Path) -> None:
        self._path, self._bytes, self._rows = path, 0, list[Row]()

    def read(self) -> list[Row]:
        """All rows so far; half a line at the end is left for the next call."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self._bytes:
                    self._bytes, self._rows = 0, []
                file.seek(self._bytes)
                new = file.read()
        except OSError:
            return self._rows
        whole = new[: new.rfind(b"\n") + 1]
        self._bytes += len(whole)
        for row in _parsed(whole):
            if not isinstance(row.get("iteration"), int):
                continue
            while self._rows and self._rows[-1]["iteration"] >= row["iteration"]:
                self._rows.pop()
            self._rows.append(row)
        return self._rows


def _parsed(content: bytes) -> list[dict[str, Any]]:
    """The records among some lines; what is none is passed over."""
    found = []
    for line in content.split(b"\n"):
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict):
                found.append(row)
    return found


def _read_rows(path: Path, last: int | None = None) -> list[dict[str, Any]]:
    """The whole lines of a file, or those in its `last` bytes; none if it cannot be read."""
    try:
        with path.open("rb") as file:
            start = 0 if last is None else max(0, file.seek(0, 2) - last)
            file.seek(start)
            content = file.read()
    except OSError:
        return []
    return _parsed(content[: content.rfind(b"\n") + 1])


def _state(folder: Path, settings: RunSettings) -> tuple[str, str]:
    """The state and its reason, as far as can be seen without opening a checkpoint."""
    if in_use(folder):
        return "in training", ""
    with suppress(ApilError):
        noted = read_json(folder / "end.json")
        if isinstance(noted, dict):
            return str(noted.get("state", "killed")), str(noted.get("reason", ""))
    # Older versions noted nothing; the last checkpoint of a whole run has its last iteration.
    whole = (folder / f"checkpoint-{settings.iterations:08d}.json").exists() or (folder / "finished.json").exists()
    return ("finished" if whole else "killed"), ""


def _looks(folder: Path, rows: Sequence[Row]) -> list[Look]:
    """Success alone by the looks of the training, those of a study, and evaluations."""
    answers = {row["iteration"]: row.get("answers") for row in rows}
    found: dict[int, float] = {}
    for row in rows:
        seen = row.get("looks")
        if isinstance(seen, list) and seen and isinstance(seen[-1], dict) and _is_share(seen[-1].get("success")):
            found[row["iteration"]] = seen[-1]["success"]
    for path in sorted(folder.glob("look-*.json")) + sorted(folder.glob("evaluation*.json")):
        with suppress(ApilError):
            value = read_json(path)
            if isinstance(value, dict) and isinstance(value.get("iteration"), int):
                answers.setdefault(value["iteration"], value.get("answers"))
                if _is_share(value.get("success_alone")):
                    found[value["iteration"]] = value["success_alone"]
    return [Look(iteration, answers.get(iteration), found[iteration]) for iteration in sorted(found)]


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1


def _questions(folder: Path) -> list[str]:
    """The last questions, one line each."""
    rows = _read_rows(folder / "answers.jsonl", _LAST_BYTES)
    names: dict[str, Any] = {}
    if rows:
        with suppress(ApilError):
            names = read_json(folder / "agent.json")
    return [_question(row, names if isinstance(names, dict) else {}) for row in rows[-5:]]


def _question(row: Row, names: Mapping[str, Any]) -> str:
    where = f"iteration {row.get('iteration')}, episode {row.get('episode')}, step {row.get('step')}"
    if row.get("action") is None:
        return f"{where}: no answer"
    said = _named(names.get("action_names"), row["action"])
    who = _named(names.get("teachers"), row.get("identity"))
    return f"{where}: {who} said {said}"


def _named(names: Any, number: Any) -> str:
    """The name of an action or a teacher; its number where it has none."""
    if isinstance(names, list) and isinstance(number, int) and 0 <= number < len(names):
        return str(names[number])
    return str([round(float(x), 3) for x in number] if isinstance(number, list) else number)


@dataclass(frozen=True)
class Fact:
    """One line of what is shown of a run."""

    name: str
    value: str
    series: Sequence[float] = ()
    """How it came about, for a small curve."""


def facts(view: RunView, answers: int | None = None) -> list[Fact]:
    """What is shown of a run; `answers` so far, where more is known than the folder says."""
    rows, last = view.rows, view.last
    found = [_alone(view)]
    titles = {
        "success": "success with help",
        "query_rate": "query rate",
        "validation_loss": "loss on held-out answers",
    }
    for name, title in titles.items():
        series = [float(row[name]) for row in rows if isinstance(row.get(name), int | float)]
        if series:
            found.append(Fact(title, f"{series[-1]:.3f}", series))
    count = max(int(last.get("answers", 0)), answers or 0)
    budget = view.settings.query.answer_budget
    parts = [f"{count:,}" + (f" of {budget:,}" if budget else "")]
    parts += [f"{last['unanswered']:,} questions unanswered"] if last.get("unanswered") else []
    parts += [f"cost {last['cost']:,.6g}"] if "cost" in last else []
    gained = [float(after.get("answers", 0)) - float(before.get("answers", 0)) for before, after in pairwise(rows)]
    found.insert(1, Fact("answers", ", ".join(parts), gained))
    return found


def _alone(view: RunView) -> Fact:
    name = "success alone"
    if not view.looks:
        return Fact(name, f"not measured: train with --looks 50, or apil evaluate {view.folder}")
    last = view.looks[-1]
    return Fact(name, f"{last.success:.3f} at iteration {last.iteration:,}", [look.success for look in view.looks])
