"""What is printed in a terminal: progress, tables, where things are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A progress bar with the time left."""
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as progress:
        yield progress


@contextmanager
def stages() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar for work that tells what it is doing, and how much of how much is done."""
    with progress_bar() as progress:
        bar = progress.add_task("reading", total=1)

        def tell(stage: str, done: int, total: int) -> None:
            progress.update(bar, description=stage, completed=done, total=total)

        yield tell
        progress.update(bar, description="compiled", completed=1, total=1)


def print_table(title: str, figures: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in figures.items():
        table.add_row(name.replace("_", " "), f"{value:.4f}" if isinstance(value, float) else str(value))
    Console().print(table)


def print_columns(title: str, columns: dict[str, dict[str, float]]) -> None:
    """Figures side by side; a column may lack some."""
    from rich.console import Console
    from rich.table import Table

    table = Table("", *(name.replace("_", " ") for name in columns), title=title, title_justify="left")
    for figure in dict.fromkeys(figure for column in columns.values() for figure in column):
        values = [column.get(figure, "-") for column in columns.values()]
        shown = [f"{value:.3f}" if isinstance(value, float) else str(value) for value in values]
        table.add_row(figure.replace("_", " "), *shown)
    Console().print(table)


def wrote(path: Path, then: str = "") -> None:
    print(f"Wrote {path}" + (f" ({then})" if then else ""))
