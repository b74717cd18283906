"""A training while it runs, as the command line and Python show it: a panel or lines, outlooks, TensorBoard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from apil.learning.trainer import Trainer
from apil.runs.panel import TrainingLines, TrainingPanel, training
from apil.runs.tensorboard import events
from apil.runs.train import Look


@contextmanager
def watched(
    folder: Path, what: str, total: int, *, of_answers: bool, tensorboard: bool, shown: bool = True
) -> Iterator[tuple[TrainingPanel | TrainingLines, Look]]:
    """Progress of a training into a folder, and what to call after every iteration.

    `total` counts iterations or, if `of_answers`, answers. With `tensorboard` the metrics are written for it too.
    """
    with (
        events(folder, wanted=tensorboard) as write,
        training(folder, what, total, of_answers=of_answers, shown=shown) as progress,
    ):
        say = _outlook_lines(progress.line)

        def look(trainer: Trainer) -> None:
            say(trainer)
            write()

        yield progress, look


def _outlook_lines(line: Callable[[str], None]) -> Callable[[Trainer], None]:
    """Prints what more answers would bring, after every look."""
    said = -1
    bad: dict[str, int] = {}

    def look(trainer: Trainer) -> None:
        nonlocal said, bad
        turned = trainer.turned(0)
        for name, since in turned.items():
            if bad.get(name) != since:
                line(f"{name} has become worse since about answer {since:,}: earlier answers no longer count.")
        bad = turned
        found = trainer.outlook(0)
        if found is not None and found.answers != said:
            said = found.answers
            line(f"Outlook: {found}")

    return look
