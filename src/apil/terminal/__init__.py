"""What is printed: progress, tables, where things are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from apil.errors import plural

if TYPE_CHECKING:
    from apil.terminal.bars import Bars


def progress_bars(shown: bool = True) -> Bars:
    """Progress of several things: bars in a terminal or a notebook, plain lines now and then elsewhere."""
    from apil.terminal.bars import new_bars

    return new_bars(shown)


@runtime_checkable
class Hears(Protocol):
    """Progress that also takes the number of answers, as they come."""

    def heard(self, answers: int) -> None:
        """So many answers there are."""


class Bar:
    """Progress as a function of how much is done and, unless given before, of how much."""

    def __init__(self, bars: Bars, what: str, total: int | None, of_answers: bool) -> None:
        """`of_answers`: what is counted are answers."""
        self._bars, self._what, self._of_answers = bars, what, of_answers
        self._bar = bars.add(what, total)

    def __call__(self, done: float, total: int | None = None) -> None:
        self._bars.update(self._bar, done=done, total=total)

    def line(self, text: str) -> None:
        """Prints a line above the bar."""
        self._bars.line(text)

    def heard(self, answers: int) -> None:
        """Shows the number of answers, which says that there is life in an iteration that takes long."""
        done = answers if self._of_answers else None
        self._bars.update(self._bar, done=done, what=f"{self._what}, {plural(answers, 'answer')}")


@contextmanager
def counted(what: str, total: int | None = None, shown: bool = True, *, of_answers: bool = False) -> Iterator[Bar]:
    """Progress of one thing; `of_answers`: what is counted are answers."""
    with progress_bars(shown) as bars:
        yield Bar(bars, what, total, of_answers)


@contextmanager
def stages() -> Iterator[Callable[[str, int, int], None]]:
    """Progress of work in stages: the function takes the name of a stage, how much of it is done, and of how much."""
    with progress_bars() as bars:
        bar = bars.add("reading", 1)
        now = "reading"

        def tell(stage: str, done: int, total: int) -> None:
            nonlocal bar, now
            if stage != now:
                bars.remove(bar)
                bar, now = bars.add(stage, total), stage
            bars.update(bar, done=done, total=total)

        yield tell
        bars.remove(bar)


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
