"""What saving costs, as a share of the training time, measured inside one run.

    python benchmarks/saving.py

The seconds spent in writing metrics, checkpoints (at the default interval) and answers are taken out of the run's own
time: with / without = total / (total - saving). Two runs beside each other would differ by more than what is measured.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

import apil.runs.train as train
from apil.config import RunConfig
from apil.runs.answers import AnswerBooks
from apil.tasks import TASKS
from apil.types import Answer


class Clock:
    """Seconds spent in some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, its time added up."""

        def run(*args: Any) -> Any:
            started = time.perf_counter()
            try:
                return work(*args)
            finally:
                self.seconds += time.perf_counter() - started

        return run


class TimedBooks(AnswerBooks):
    """Books that leave the asking itself out of their time."""

    clock = Clock()

    def consult(self, iteration: int, t: int, asked: Tensor, ask: Callable[[Tensor], Answer]) -> Answer:
        """As `AnswerBooks.consult`."""
        asking = Clock()
        started = time.perf_counter()
        answer = super().consult(iteration, t, asked, asking.timed(ask))
        self.clock.seconds += time.perf_counter() - started - asking.seconds
        return answer


def main() -> None:
    """Measures every task with the policy that asks most and the one that asks least."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--iterations", type=int, default=500)
    options = parser.parse_args()
    files = Clock()
    for name in ("_save", "_append", "_append_timing"):
        setattr(train, name, files.timed(getattr(train, name)))
    vars(train)["AnswerBooks"] = TimedBooks
    for task in ("grid", "maze"):
        for query in ("dagger", "apil"):
            batch = TASKS.load(task)().batch
            config = RunConfig(task, "twodifdetm", query, iterations=options.iterations, batch=batch)
            files.seconds = TimedBooks.clock.seconds = 0.0
            with tempfile.TemporaryDirectory() as folder:
                started = time.perf_counter()
                train.start_run(config, Path(folder) / "run", progress=lambda done: None)
                total = time.perf_counter() - started
            rest = total - files.seconds - TimedBooks.clock.seconds
            print(
                f"{task}, {query}: metrics and checkpoints {files.seconds / rest:.1%}, "
                f"answers {TimedBooks.clock.seconds / rest:.1%} of the training time",
                flush=True,
            )


if __name__ == "__main__":
    main()
