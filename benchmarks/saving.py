"""What saving costs: the same training with and without a run folder, in turns in one process, by CPU time.

    python benchmarks/saving.py

Prints the median ratio for metrics and checkpoints at the default interval, and with every question and answer as well.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from apil.config import RunConfig
from apil.learning.trainer import Trainer
from apil.runs.train import start_run
from apil.tasks import TASKS


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of this process, its system calls included."""
    started = time.process_time()
    work()
    return time.process_time() - started


def saved(config: RunConfig) -> float:
    """CPU seconds of a training into a folder."""
    with tempfile.TemporaryDirectory() as folder:
        return seconds(lambda: start_run(config, Path(folder) / "run", progress=lambda done: None))


def main() -> None:
    """Measures every task with the policy that asks most and the one that asks least."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    for task, iterations in (("grid", 300), ("maze", 100)):
        for query in ("dagger", "apil"):
            config = RunConfig(task, "twodifdetm", query, iterations=iterations, batch=TASKS.load(task)().batch)
            kinds = {"metrics and checkpoints": replace(config, answers=False), "and answers": config}
            ratios: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(options.repeats):
                alone = seconds(lambda config=config: Trainer([config]).train())  # type: ignore[misc]
                for kind, own in kinds.items():
                    ratios[kind].append(saved(own) / alone - 1)
            told = [
                f"{kind} {statistics.median(r):+.1%} ({min(r):+.1%} to {max(r):+.1%})" for kind, r in ratios.items()
            ]
            print(f"{task}, {query}: {', '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
