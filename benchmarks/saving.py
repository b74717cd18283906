"""What saving costs, as a share of the training time, measured inside one run.

    python benchmarks/saving.py

Every call that writes metrics, checkpoints (at the default interval), answers or rows of the store is timed, and so is
every iteration; as the paper prints it, and with the store of answers and the other defaults that learn.
Two runs beside each other would differ by more than what is measured. The sum of the calls also has what other jobs on
the machine add, above all at calls into the system; the typical cost, of the median call times the number of calls over
the median iteration times theirs, has not.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from apil.learning.ask import Guard
from apil.learning.store import Store
from apil.learning.trainer import Trainer
from apil.runs.answers import AnswerBooks
from apil.runs.calibration import load_calibration
from apil.runs.resolve import resolve
from apil.runs.train import start_run
from apil.runs.writer import Record


class Clock:
    """Seconds spent in some functions, call by call, without the calls of others of them inside."""

    def __init__(self) -> None:
        self.calls: dict[str, list[float]] = {}
        self.inner = 0.0
        """Seconds of the present call that belong to another."""

    def timed(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, its time noted."""
        calls = self.calls.setdefault(name, [])

        def run(*args: Any) -> Any:
            outer, self.inner = self.inner, 0.0
            begun = time.perf_counter()
            try:
                return work(*args)
            finally:
                seconds = time.perf_counter() - begun
                calls.append(seconds - self.inner)
                self.inner = outer + seconds

        return run

    def summed(self, *names: str) -> float:
        """Seconds of all calls."""
        return sum(sum(self.calls[name]) for name in names)

    def typical(self, *names: str) -> float:
        """Seconds if every call had taken as long as the median one."""
        return sum(median(self.calls[name]) * len(self.calls[name]) for name in names if self.calls[name])


def shown(clock: Clock) -> str:
    """The shares of the run that was just made."""
    lines = []
    for how in ("summed", "typical"):
        seconds = getattr(clock, how)
        files, answers, rest = seconds("save", "add"), seconds("consult", "flush"), seconds("step", "answers")
        stored = seconds("stored")
        together = files + answers + stored
        lines.append(f"{how} {files / rest:.1%} + {answers / rest:.1%} + {stored / rest:.1%} = {together / rest:.1%}")
    return ", ".join(lines)


def main() -> None:
    """Measures every task with two policies that ask at every step and one that asks less and less."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--iterations", type=int, default=500)
    options = parser.parse_args()
    clock = Clock()
    timed = (Record, "save"), (Record, "add"), (AnswerBooks, "consult"), (AnswerBooks, "flush")
    for owner, name in (*timed, (Guard, "answers"), (Trainer, "step")):
        setattr(owner, name, clock.timed(name, getattr(owner, name)))
    Store.add = clock.timed("stored", Store.add)  # type: ignore[method-assign]
    print("metrics and checkpoints + answers + rows of the store = together, of the training time")
    for as_printed in (True, False):
        for task in ("grid", "maze"):
            for query in ("bc", "dagger", "apil"):
                for calls in clock.calls.values():
                    calls.clear()
                given = {"iterations": options.iterations}
                config = resolve(task, "twodifdetm", query, given, load_calibration(None), as_printed=as_printed)
                with tempfile.TemporaryDirectory() as folder:
                    start_run(config.settings, Path(folder) / "run", progress=lambda done: None)
                how = "as printed" if as_printed else "with the store"
                print(f"{task}, {query}, {how}: {shown(clock)}", flush=True)


if __name__ == "__main__":
    main()
