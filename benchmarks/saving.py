"""What saving costs: the same training with and without a run folder, alternating in one process.

    python benchmarks/saving.py

Prints the median ratio. With a folder, a run writes metrics, answers, checkpoints (at the default interval)
and timings.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from apil.config import RunConfig
from apil.learning.trainer import Trainer
from apil.runs.train import start_run
from apil.tasks import TASKS


def main() -> None:
    """Measures every task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    for task, iterations in (("grid", 300), ("maze", 100)):
        for query in ("dagger", "apil"):
            config = RunConfig(task, "twodifdetm", query, iterations=iterations, batch=TASKS.load(task)().batch)
            ratios = []
            for _ in range(options.repeats):
                started = time.perf_counter()
                Trainer([config]).train()
                alone = time.perf_counter() - started
                with tempfile.TemporaryDirectory() as folder:
                    started = time.perf_counter()
                    start_run(config, Path(folder) / "run", progress=lambda done: None)
                    saved = time.perf_counter() - started
                ratios.append(saved / alone)
            print(
                f"{task}, {query}: saving costs {statistics.median(ratios) - 1:+.1%} of the training time "
                f"(median of {options.repeats}, {min(ratios) - 1:+.1%} to {max(ratios) - 1:+.1%})"
            )


if __name__ == "__main__":
    main()
