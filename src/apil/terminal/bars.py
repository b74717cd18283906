"""Progress where it is seen: bars in a terminal, a bar in the cell of a notebook, plain lines in a file or a pipe."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable
from threading import RLock
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import Progress, Task, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

_FIRST, _LEAST, _MOST, _SHARE = 2.0, 5.0, 600.0, 0.25
"""Seconds before the first plain line; between two lines at least and at most; in between, this share of the time so
far. A minute has some ten lines, an hour some thirty, a day two hundred."""
_CELL_SECONDS = 0.25
"""Between two changes of a cell of a notebook."""


class View(Protocol):
    """Where progress is shown that rich does not draw itself."""

    def show(self, tasks: list[Task], *, last: bool) -> None:
        """Shows how things stand; `last`: nothing follows."""

    def line(self, text: str) -> None:
        """Prints a line beside the progress."""


class Bars:
    """Progress of some things at once. Calls may come from any thread."""

    def __init__(self, progress: Progress, view: View | None) -> None:
        """`progress` keeps the counts and the speed; it draws them too where there is no `view`."""
        self._progress, self._view, self._lock = progress, view, RLock()

    def __enter__(self) -> Self:
        if self._view is None:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._view is None:
            self._progress.stop()
            return
        with self._lock:
            self._view.show(self._progress.tasks, last=True)

    def add(self, what: str, total: float | None) -> TaskID:
        """Adds something to be done."""
        made = self._progress.add_task(what, total=total)
        self._changed()
        return made

    def remove(self, task: TaskID) -> None:
        """Takes it away again."""
        self._progress.remove_task(task)

    def update(
        self, task: TaskID, *, done: float | None = None, total: float | None = None, what: str | None = None
    ) -> None:
        """How much of it is done, of how much, and what it is; None leaves it as it is."""
        self._progress.update(task, completed=done, total=total, description=what)
        self._changed()

    def expect(self, task: TaskID, left: float | None) -> None:
        """Seconds that it still takes, where the caller knows better than its speed so far; None where it does not."""
        end = None if left is None else self._progress.get_time() + left
        self._progress.update(task, expected_end=end)
        self._changed()

    def advance(self, task: TaskID, units: float) -> None:
        """So much more of it is done."""
        self._progress.advance(task, units)
        self._changed()

    def line(self, text: str) -> None:
        """Prints a line above the bars."""
        if self._view is not None:
            with self._lock:
                self._view.line(text)
        elif not self._progress.disable:
            self._progress.console.print(text, soft_wrap=True, highlight=False, markup=False)

    def _changed(self) -> None:
        if self._view is not None:
            with self._lock:
                self._view.show(self._progress.tasks, last=False)


class _Left(TimeRemainingColumn):
    """The time left as the caller expects it, else by the speed so far."""

    def render(self, task: Task) -> Text:
        left = None if task.finished else left_of(task)
        return super().render(task) if left is None else Text(clock(left), style="progress.remaining")


def left_of(task: Task) -> float | None:
    """Seconds left: as expected by the caller, else by the speed so far; None where nothing is known."""
    end = task.fields.get("expected_end")
    return task.time_remaining if end is None else max(0.0, float(end) - task.get_time())


def is_live(console: Console) -> bool:
    """Whether what was drawn can be drawn over: in a terminal that is not a dumb one."""
    return console.is_terminal and not console.is_dumb_terminal and not console.is_jupyter


def new_bars(shown: bool) -> Bars:
    """Bars for where the output goes."""
    console = Console()
    if not shown:
        return Bars(Progress(disable=True), None)
    if console.is_jupyter:
        return Bars(Progress(disable=True), NotebookBars())
    if is_live(console):
        text, bar, share, _ = Progress.get_default_columns()
        left = (TimeElapsedColumn(), TextColumn("left"), _Left())
        return Bars(Progress(text, bar, share, *left, console=console), None)
    return Bars(Progress(disable=True), Lines())


def pause(seconds: float) -> float:
    """Seconds between two plain lines, so many seconds after the start."""
    return min(max(_LEAST, _SHARE * seconds), _MOST)


class Lines:
    """A line for each thing now and then, and when it is done. The time between lines grows with the time so far."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._began = clock, clock()
        self._due = self._began + _FIRST
        self._said: dict[TaskID, str] = {}

    def show(self, tasks: list[Task], *, last: bool) -> None:
        """Prints what is due."""
        now = self._clock()
        due = now >= self._due
        for task in tasks:
            # What comes after something else says at once that it has begun.
            begun = task.id not in self._said and len(self._said) > 0
            self._said.setdefault(task.id, "")
            if due or begun or task.finished or (last and task.completed):
                self._say(task)
        if due:
            self._due = now + pause(now - self._began)

    def _say(self, task: Task) -> None:
        stands = f"{task.completed} {task.total}" if task.finished else standing(task)
        if self._said[task.id] != stands:
            self._said[task.id] = stands
            self.line(standing(task))

    def line(self, text: str) -> None:
        """Prints a line."""
        print(text, flush=True)


class NotebookBars:
    """A bar in the output of a notebook's cell. It needs IPython alone, and stays in the notebook when it is saved."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = 0.0

    def show(self, tasks: list[Task], *, last: bool) -> None:
        """Draws the bars again, unless that was a moment ago."""
        if not tasks or (not last and time.monotonic() - self._shown < _CELL_SECONDS):
            return
        from IPython.display import display

        self._shown = time.monotonic()
        lines = [standing(task) for task in tasks]
        bars = "".join(
            f'<div><progress value="{task.completed}" max="{task.total or 1}"></progress> {html.escape(line)}</div>'
            for task, line in zip(tasks, lines, strict=True)
        )
        content = {"text/plain": "\n".join(lines), "text/html": bars}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def line(self, text: str) -> None:
        """Prints a line below the bars."""
        print(text, file=sys.stdout)


def standing(task: Task) -> str:
    """How something stands, as a line."""
    line = task.description
    if task.total is not None and task.total > 1 and task.completed:
        line += f": {task.completed:,.0f} of {task.total:,.0f} ({task.percentage:.0f} %)"
    elapsed = task.finished_time if task.finished else task.elapsed
    if elapsed is None or elapsed < 1:
        return line
    left = None if task.finished else left_of(task)
    return f"{line}, {clock(elapsed)}" + (f", about {clock(left)} left" if left else "")


def clock(seconds: float) -> str:
    """Seconds as a clock shows them."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
