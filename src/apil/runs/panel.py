"""A run as it is shown: a live panel in a terminal, plain lines elsewhere. The panel shows what is in the folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from apil.errors import ApilError, plural
from apil.runs.view import RunView, Watcher, facts
from apil.terminal import progress_bars
from apil.terminal.bars import Bars, clock, is_live, pause

_BLOCKS = "▁▂▃▄▅▆▇█"
_CURVE = 24
"""Points of a small curve."""
_LOOK_SECONDS = 1.0
"""Between two looks at a folder."""


def curve(series: Sequence[float], points: int = _CURVE) -> str:
    """Numbers as a row of blocks, each the mean of some; between the least and the greatest, or 0 and 1 for shares."""
    if len(series) < 2:
        return ""
    count = min(points, len(series))
    bounds = [place * len(series) // count for place in range(count + 1)]
    means = [sum(series[a:b]) / (b - a) for a, b in pairwise(bounds)]
    low, high = min(0.0, *means), max(*means, 1e-9)
    return "".join(_BLOCKS[round((mean - low) / (high - low) * (len(_BLOCKS) - 1))] for mean in means)


def panel(view: RunView, bar: RenderableType, console: Console, answers: int | None = None) -> Panel:
    """A run as a panel; `answers` so far, where more is known than the folder says."""
    drawn = console.encoding.startswith("utf")
    table = Table.grid(padding=(0, 2))
    for fact in facts(view, answers):
        table.add_row(Text(fact.name, "bold"), Text(fact.value), Text(curve(fact.series) if drawn else "", "cyan"))
    parts: list[RenderableType] = [bar, "", table]
    if view.questions:
        parts += ["", Text("last questions", style="bold"), *(Text(f"  {line}") for line in view.questions)]
    state = view.state + (f": {view.reason}" if view.reason else "")
    return Panel(Group(*parts), title=Text(f"{view.folder}: {view.name}"), subtitle=Text(state), title_align="left")


def lines(view: RunView) -> list[str]:
    """A run as plain lines."""
    unit = "answers" if view.settings.query.answer_budget else "iterations"
    left = view.left
    state = f"{view.state}, {view.done:,} of {view.total:,} {unit}"
    state += f", about {clock(left)} left" if left else ""
    state += f", {view.reason}" if view.reason else ""
    found = [f"{view.folder}: {view.name}", f"  {'state':25} {state}"]
    found += [f"  {fact.name:25} {fact.value}" for fact in facts(view)]
    return found + [f"  {'asked' if not number else '':25} {line}" for number, line in enumerate(view.questions)]


class _Bar:
    """The bar inside a panel; it draws nothing by itself."""

    def __init__(self, total: int, of_answers: bool) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, TextColumn("left"), TimeRemainingColumn(), disable=True)
        self._task = self._progress.add_task("answers" if of_answers else "iterations", total=total)

    def move(self, done: int) -> None:
        self._progress.update(self._task, completed=done)

    @property
    def drawn(self) -> RenderableType:
        return self._progress.get_renderable()


class _Glimpse:
    """The last look at a folder, not older than a moment; None before there is a run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._watcher: Watcher | None = None
        self._view: RunView | None = None
        self._looked = 0.0

    def forget(self) -> None:
        """Makes the next call look, however soon it comes."""
        self._looked = 0.0

    def __call__(self) -> RunView | None:
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            with suppress(ApilError):  # the run is not there yet, or about to write it
                self._watcher = self._watcher or Watcher(self._folder)
                self._view = self._watcher.look()
        return self._view


class TrainingPanel:
    """Progress of a training as a live panel."""

    def __init__(self, folder: Path, what: str, total: int, of_answers: bool, console: Console) -> None:
        self._glimpse, self._what, self._of_answers, self._answers = _Glimpse(folder), what, of_answers, 0
        self._bar = _Bar(total, of_answers)
        self.live = Live(console=console, get_renderable=self._drawn, refresh_per_second=2)

    def __call__(self, done: int) -> None:
        self._bar.move(done)

    def heard(self, answers: int) -> None:
        """Shows the number of answers as they come."""
        self._answers = answers
        if self._of_answers:
            self._bar.move(answers)

    def line(self, text: str) -> None:
        """Prints a line above the panel."""
        self.live.console.print(text, soft_wrap=True, highlight=False, markup=False)

    def see_the_end(self) -> None:
        """Looks once more, for what is left on the screen."""
        self._glimpse.forget()

    def _drawn(self) -> RenderableType:
        view = self._glimpse()
        if view is None:
            return Group(Text(self._what), self._bar.drawn)
        return panel(view, self._bar.drawn, self.live.console, self._answers)


class TrainingLines:
    """Progress of a training as plain lines with its figures."""

    def __init__(self, folder: Path, what: str, total: int, of_answers: bool, bars: Bars) -> None:
        self._glimpse, self._what, self._of_answers, self._answers = _Glimpse(folder), what, of_answers, 0
        self._bars, self._task, self.line = bars, bars.add(what, total), bars.line
        self._seen: RunView | None = None
        self._total = total
        self._learning = False

    def __call__(self, done: int) -> None:
        if self._of_answers and done >= self._total:
            self._learn_on()
        else:
            self._bars.update(self._task, done=done, what=self._figures())

    def heard(self, answers: int) -> None:
        """Shows the number of answers as they come."""
        self._answers = answers
        self._bars.update(self._task, done=answers if self._of_answers else None, what=self._figures())

    def _learn_on(self) -> None:
        """All answers are there: shows that learning continues, nobody knows for how long."""
        what = f"learning from {plural(self._total, 'answer')} until the loss on held-out ones stops falling"
        if not self._learning:
            self._bars.update(self._task, done=self._total)
            self._learning, self._task = True, self._bars.add(what, None)
        view = self._glimpse()
        if view is not None and view.last:
            loss = next((fact.value for fact in facts(view) if fact.name == "loss on held-out answers"), "not known")
            self._bars.update(self._task, what=f"{what}: iteration {view.last['iteration']:,}, loss {loss}")

    def _figures(self) -> str | None:
        """What is new since the last look; None where nothing is."""
        view = self._glimpse()
        if view is None or view is self._seen:
            return None
        self._seen = view
        shown = [fact for fact in facts(view, self._answers)[1:] if fact.name != "answers" or not self._of_answers]
        return ", ".join([self._what, *(f"{fact.name} {fact.value}" for fact in shown)])


@contextmanager
def training(
    folder: Path, what: str, total: int, *, of_answers: bool, shown: bool = True
) -> Iterator[TrainingPanel | TrainingLines]:
    """Progress of a training into a folder: a panel in a terminal, else lines; `of_answers`: these are counted."""
    console = Console()
    if shown and is_live(console):
        made = TrainingPanel(folder, what, total, of_answers, console)
        with made.live:
            yield made
            made.see_the_end()
        return
    with progress_bars(shown) as bars:
        yield TrainingLines(folder, what, total, of_answers, bars)


def watch(folder: Path, *, once: bool) -> None:
    """Shows a run until its training ends, or `once`. Only reads."""
    watcher = Watcher(folder)
    view, console = watcher.look(), Console()
    if once or not is_live(console):
        _print_lines(watcher, view, once)
        return
    bar = _Bar(view.total, bool(view.settings.query.answer_budget))
    with Live(console=console, auto_refresh=False) as live:
        while True:
            bar.move(view.done)
            live.update(panel(view, bar.drawn, console), refresh=True)
            if view.state != "in training":
                return
            time.sleep(_LOOK_SECONDS)
            view = watcher.look()


def _print_lines(watcher: Watcher, view: RunView, once: bool) -> None:
    began = time.monotonic()
    while True:
        print("\n".join(lines(view)), flush=True)
        if once or view.state != "in training":
            return
        due = time.monotonic() + pause(time.monotonic() - began)
        while time.monotonic() < due and view.state == "in training":
            time.sleep(_LOOK_SECONDS)
            view = watcher.look()
