"""What is printed in a terminal: progress, tables, where things are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress


def progress_bar(shown: bool = True) -> Progress:
    from rich.progress import Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    text, bar, share, _ = Progress.get_default_columns()
    left = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    return Progress(text, bar, share, *left, disable=not shown)


@contextmanager
def counted(what: str, total: int | None = None, shown: bool = True) -> Iterator[Callable[..., None]]:
    """A progress bar as a function of how much is done and, unless given before, of how much."""
    with progress_bar(shown) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda done, total=None: progress.update(bar, completed=done, total=total)


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
