"""How long a trained agent takes to decide: one MAZE observation, and a batch of 1000. See README.md.

.venv/bin/python benchmarks/acting.py --help
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import apil
from apil.rng import Streams
from apil.tasks.maze import Maze
from apil.teachers.committee import committee

BATCH = 1000
GOALS = {1: 1000.0, BATCH: 20.0}
"""Microseconds of the clock for each observation, by the size of the batch."""


def forward(features: int) -> Callable[[torch.Tensor], object]:
    """What the same networks cost at least: one pass of a plain policy network of apil's sizes, without a vote."""
    network = torch.nn.Sequential(torch.nn.Linear(features, 100), torch.nn.ReLU(), torch.nn.Linear(100, 4))

    def decide(rows: torch.Tensor) -> object:
        with torch.inference_mode():
            return network(rows).softmax(-1).argmax(-1).numpy()

    return decide


def measured(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Microseconds of one call: by the clock and of processor time."""
    work()
    clock, processor = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        work()
    return 1e6 * (time.perf_counter() - clock) / repeats, 1e6 * (time.process_time() - processor) / repeats


def main() -> None:
    """Trains a small run, loads its agent and prints the table; exits with 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    rounds, threads = vars(parser.parse_args()).values()
    with tempfile.TemporaryDirectory() as folder:
        apil.train(Maze(), committee("twodifdetm"), "apil", folder=Path(folder) / "run", iterations=20)
        agent = apil.load(Path(folder) / "run")
    torch.set_num_threads(threads)
    maze = Maze()
    seen = maze.observe(maze.reset(Streams([0]).draws("task", 0), BATCH))
    features, valid = seen.features[0], seen.valid[0]
    plain = forward(features.shape[1])
    table = Table(title=f"{agent}, {threads} thread, load {os.getloadavg()[0]:.1f}")
    for column in ("observations", "µs each", "of processor time", "goal", "of the goal", "of a plain network"):
        table.add_column(column, justify="right")
    met = True
    for count, goal in GOALS.items():
        rows, flags = (features[0], valid[0]) if count == 1 else (features, valid)
        repeats = 200 if count == 1 else 5
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(measured(lambda: agent.act(rows, valid=flags), repeats))  # noqa: B023
            theirs.append(measured(lambda: plain(rows), repeats))  # noqa: B023
        clock, processor = (statistics.median(each) / count for each in zip(*ours, strict=True))
        ratio = statistics.median(a[1] / b[1] for a, b in zip(ours, theirs, strict=True))
        met &= clock < goal
        figures = (f"{clock:.1f}", f"{processor:.1f}", f"{goal:g}", f"{clock / goal:.2f}", f"{ratio:.1f}")
        table.add_row(str(count), *figures)
    Console().print(table)
    raise SystemExit(not met)


if __name__ == "__main__":
    main()
