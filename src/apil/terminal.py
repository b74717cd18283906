"""What is printed in a terminal: progress, tables, where things are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from rich.progress import Progress


def progress_bar(shown: bool = True) -> Progress:
    from rich.progress import Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    text, bar, share, _ = Progress.get_default_columns()
    left = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    return Progress(text, bar, share, *left, disable=not shown)


@runtime_checkable
class Hears(Protocol):
    """Progress that can be told the number of answers besides, as they come."""

    def heard(self, answers: int) -> None:
        """So many answers there are."""


class Bar:
    """A progress bar as a function of how much is done and, unless given before, of how much."""

    def __init__(self, progress: Progress, what: str, total: int | None, of_answers: bool) -> None:
        """`of_answers`: what is counted are answers."""
        self._progress, self._what, self._of_answers = progress, what, of_answers
        self._bar = progress.add_task(what, total=total)

    def __call__(self, done: float, total: int | None = None) -> None:
        self._progress.update(self._bar, completed=done, total=total)

    def line(self, text: str) -> None:
        """Says something above the bar."""
        self._progress.console.print(text, soft_wrap=True, highlight=False, markup=False)

    def heard(self, answers: int) -> None:
        """Shows the number of answers, which says that there is life in an iteration that takes long."""
        done = answers if self._of_answers else None
        self._progress.update(self._bar, completed=done, description=f"{self._what}, {answers} answers")


@contextmanager
def counted(what: str, total: int | None = None, shown: bool = True, *, of_answers: bool = False) -> Iterator[Bar]:
    """A progress bar; `of_answers`: what is counted are answers."""
    with progress_bar(shown) as progress:
        yield Bar(progress, what, total, of_answers)


@contextmanager
def stages() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar for work that tells what it is doing, and how much of how much is done."""
    with progress_bar() as progress:
        bar = progress.add_task("reading", total=1)
        yield lambda stage, done, total: progress.update(bar, description=stage, completed=done, total=total)
        progress.update(bar, description="compiled", completed=1, total=1)


def print_table(title: str, figures: dict[str, Any]) -> None:
    _print(title, (), ((name, value) for name, value in figures.items()), 4)


def print_columns(title: str, columns: Mapping[str, Mapping[str, Any]]) -> None:
    """Figures side by side; a column may lack some."""
    figures = dict.fromkeys(figure for column in columns.values() for figure in column)
    rows = ((figure, *(column.get(figure, "-") for column in columns.values())) for figure in figures)
    _print(title, ("", *columns), rows, 3)


def _print(title: str, header: Sequence[str], rows: Iterable[Sequence[Any]], decimals: int) -> None:
    from rich.console import Console
    from rich.table import Table

    headings = (name.replace("_", " ") for name in header)
    table = Table(*headings, title=title, title_justify="left", show_header=bool(header))
    for name, *values in rows:
        shown = (f"{value:.{decimals}f}" if isinstance(value, float) else str(value) for value in values)
        table.add_row(name.replace("_", " "), *shown)
    Console().print(table)


def wrote(path: Path, then: str = "") -> None:
    print(f"Wrote {path}" + (f" ({then})" if then else ""))
