"""Kills trainings with SIGKILL at random moments, resumes them, and compares with runs that were never stopped.

    python benchmarks/kill.py --grid 200 --maze 20

Each trial trains in a process of its own, kills it at a moment drawn over the length of the run, resumes it (and kills
the resumed one too, in every third trial), and compares every file that must be the same byte for byte.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from apil.learning.build import configure_torch
from apil.query import QUERY_POLICIES
from apil.runs.calibration import load_calibration, threshold_of
from apil.runs.train import resume_run, start_run
from apil.settings import RunSettings
from apil.tasks import TASKS
from apil.teachers import TEACHERS

SAME = ("config.json", "metrics.jsonl", "answers.jsonl")


def config_of(task: str, trial: int) -> RunSettings:
    """Trials go round all query policies and teachers."""
    queries, teachers = QUERY_POLICIES.names(), TEACHERS.names()
    query = queries[trial % len(queries)]
    return RunSettings.of(
        task=task,
        teacher=teachers[trial % len(teachers)],
        query=query,
        batch=TASKS.load(task)().batch,
        iterations=60 if task == "grid" else 24,
        threshold=threshold_of(load_calibration(None), task, query) or 0.1,
        log_every=7,
        save_every=4,
    )


def in_child(work: Callable[[], object], log: Path) -> int:
    """Runs `work` in a forked process that says what it says into `log`; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        heard = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(heard, 1)
        os.dup2(heard, 2)
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def begin(config: RunSettings, folder: Path) -> None:
    """Starts a run, or goes on with it if it has begun."""
    if (folder / "config.json").exists():
        resume_run(folder, iterations=None, progress=lambda done: None)
    else:
        start_run(config, folder, progress=lambda done: None)


def finish(config: RunSettings, folder: Path) -> float:
    """Trains to the end, unharmed; returns the seconds it took."""
    started = time.perf_counter()
    log = folder.with_suffix(".log")
    _, status = os.waitpid(in_child(lambda: begin(config, folder), log), 0)
    if status:
        raise SystemExit(f"\nA run failed: {config}\n{log.read_text()}")
    return time.perf_counter() - started


def kill_after(seconds: float, config: RunSettings, folder: Path) -> bool:
    """Kills a training after some seconds; false if it was done before."""
    pid = in_child(lambda: begin(config, folder), folder.with_suffix(".log"))
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def contents(config: RunSettings, folder: Path) -> dict[str, bytes]:
    """What must be the same."""
    final = [f"checkpoint-{config.iterations:08d}{suffix}" for suffix in (".safetensors", ".json")]
    return {name: (folder / name).read_bytes() for name in (*SAME, *final)}


def trials(task: str, count: int, luck: random.Random, root: Path) -> tuple[int, int, int]:
    """Trials that came out the same, kills that hit a running process, and those that hit a save."""
    references: dict[RunSettings, tuple[dict[str, bytes], float]] = {}
    same = kills = saves = 0
    for trial in range(count):
        config = config_of(task, trial)
        if config not in references:
            folder = root / f"{task}-reference-{trial}"
            seconds = finish(config, folder)
            references[config] = contents(config, folder), seconds
        expected, seconds = references[config]
        folder = root / f"{task}-{trial}"
        while not kill_after(luck.uniform(0.0, seconds), config, folder):
            shutil.rmtree(folder)  # it was done before its moment came: that is no kill
        kills += 1
        saves += any(folder.glob(".*.new"))
        if trial % 3 == 0:
            kills += kill_after(luck.uniform(0.0, seconds), config, folder)
            saves += any(folder.glob(".*.new"))
        finish(config, folder)
        same += contents(config, folder) == expected
        print(f"\r{task}: {same} of {trial + 1} the same, {kills} kills, {saves} of them during a save", end="")
        sys.stdout.flush()
    print()
    return same, kills, saves


def main() -> None:
    """Runs the trials; exits with 1 if any run came out different."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--grid", type=int, default=200, help="trials on GRID")
    parser.add_argument("--maze", type=int, default=20, help="trials on MAZE")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args()
    luck = random.Random(options.seed)
    configure_torch()  # before any fork: a child of a process with several threads can hang
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for task, count in (("grid", options.grid), ("maze", options.maze)):
            if count:
                same, _, _ = trials(task, count, luck, Path(folder))
                print(f"{task}: {same} of {count} resumed to identical bytes")
                good = good and same == count
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
