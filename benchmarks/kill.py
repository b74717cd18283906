"""Kills trainings with SIGKILL at random moments, resumes them, and compares with runs that were never stopped.

    python benchmarks/kill.py --grid 200 --maze 20
    python benchmarks/kill.py --grid 20 --maze 20 --gymnasium 20 --houses 20 --replay

Each trial trains in a process of its own, kills it at a moment drawn over the length of the run, resumes it (and kills
the resumed one too, in every third trial), and compares every file that must be the same byte for byte. With --replay
runs keep a store of answers and learn from it, and every other one has a budget of answers and ends by itself.
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
from typing import Any

from apil.learning.build import NAMED, Parts, configure_torch
from apil.query import QUERY_POLICIES, needs_threshold
from apil.r2r.houses_folder import write_houses
from apil.runs.calibration import load_calibration, threshold_of
from apil.runs.resolve import resolve
from apil.runs.stored import answers
from apil.runs.train import resume_run, start_run
from apil.settings import RunSettings
from apil.tasks import TASKS, from_gymnasium
from apil.teachers import TEACHERS
from apil.teachers.team import Team

SAME = ("config.json", "metrics.jsonl", "answers.jsonl")
STORE = "answers.store"
REPLAY = {"replay": 32, "updates": 4, "validation": 0.1, "recent": 0.25}
ITERATIONS = {"grid": 60, "maze": 24, "gymnasium": 24, "houses": 12}


def config_of(task: str, trial: int, replay: bool, data: Path) -> tuple[RunSettings, Parts]:
    """Trials go round all query policies and teachers."""
    queries, teachers = QUERY_POLICIES.names(), TEACHERS.names()
    query, teacher = queries[trial % len(queries)], teachers[trial % len(teachers)]
    given: dict[str, Any] = {"iterations": ITERATIONS[task], "log_every": 7, "save_every": 4}
    given |= REPLAY if replay else {}
    threshold = threshold_of(load_calibration(None), task, query) or 0.1
    if task in ("grid", "maze"):
        given |= {"threshold": threshold, "batch": TASKS.load(task)().batch}
        if replay:
            given |= {"standardise": True, "encode": 32}
    else:
        given |= {"threshold": threshold} if needs_threshold(query) else {}
    if replay and trial % 2 and query != "never":
        given |= {"answer_budget": 60, "log_every": 2, "iterations": 10 * ITERATIONS[task]}
    if task == "houses":
        given |= {"data": str(data), "width": 16, "heads": 2, "batch": 4} | ({"replay": 8} if replay else {})
        return resolve("r2r", teacher, query, given, {}, as_printed=True).settings, NAMED
    if task == "gymnasium":
        made = from_gymnasium("CartPole-v1", distance="steps", horizon=20)
        own = resolve(made, "hard+soft", query, {**given, "batch": 4}, {}, as_printed=True)
        return own.settings, Parts(made, _team())
    return RunSettings.of(task=task, teacher=teacher, query=query, **given), NAMED


def _team() -> Team:
    """Two who balance a pole."""
    return Team({"hard": lambda seen, rng: int(seen[2] + seen[3] > 0), "soft": lambda seen, rng: int(seen[2] > 0)})


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


def begin(config: RunSettings, folder: Path, parts: Parts) -> None:
    """Starts a run, or goes on with it if it has begun."""
    if (folder / "config.json").exists():
        resume_run(folder, iterations=None, progress=lambda done: None, parts=parts)
    else:
        start_run(config, folder, progress=lambda done: None, parts=parts)


def finish(config: RunSettings, folder: Path, parts: Parts) -> float:
    """Trains to the end, unharmed; returns the seconds it took."""
    started = time.perf_counter()
    log = folder.with_suffix(".log")
    _, status = os.waitpid(in_child(lambda: begin(config, folder, parts), log), 0)
    if status:
        raise SystemExit(f"\nA run failed: {config}\n{log.read_text()}")
    return time.perf_counter() - started


def kill_after(seconds: float, config: RunSettings, folder: Path, parts: Parts) -> bool:
    """Kills a training after some seconds; false if it was done before."""
    pid = in_child(lambda: begin(config, folder, parts), folder.with_suffix(".log"))
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def contents(config: RunSettings, folder: Path) -> dict[str, bytes]:
    """What must be the same."""
    last = max(folder.glob("checkpoint-*.json"))
    names = (*SAME, last.name, last.with_suffix(".safetensors").name, *([STORE] if config.learner.replay else []))
    return {name: (folder / name).read_bytes() for name in names}


def trials(task: str, count: int, luck: random.Random, root: Path, replay: bool, data: Path) -> tuple[int, int, int]:
    """Trials that came out the same, kills that hit a running process, and those that hit a save."""
    references: dict[RunSettings, tuple[dict[str, bytes], float]] = {}
    same = kills = saves = 0
    for trial in range(count):
        config, parts = config_of(task, trial, replay, data)
        if config not in references:
            folder = root / f"{task}-reference-{trial}"
            seconds = finish(config, folder, parts)
            references[config] = contents(config, folder), seconds
        expected, seconds = references[config]
        folder = root / f"{task}-{trial}"
        while not kill_after(luck.uniform(0.0, seconds), config, folder, parts):
            shutil.rmtree(folder)  # it was done before its moment came: that is no kill
        kills += 1
        saves += any(folder.glob(".*.new"))
        if trial % 3 == 0:
            kills += kill_after(luck.uniform(0.0, seconds), config, folder, parts)
            saves += any(folder.glob(".*.new"))
        if replay and (folder / STORE).exists():
            answers(folder)  # a store that was left by a kill opens
        finish(config, folder, parts)
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
    parser.add_argument("--gymnasium", type=int, default=0, help="trials on CartPole-v1")
    parser.add_argument("--houses", type=int, default=0, help="trials on R2R in generated houses")
    parser.add_argument("--replay", action="store_true", help="learn from a store of answers")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args()
    luck = random.Random(options.seed)
    configure_torch()  # before any fork: a child of a process with several threads can hang
    good = True
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        if options.houses:
            data = write_houses(data, 3, 0, lambda stage, done, total: None)
        for task in ITERATIONS:
            count = getattr(options, task)
            if count:
                same, _, _ = trials(task, count, luck, Path(folder), options.replay, data)
                print(f"{task}: {same} of {count} resumed to identical bytes")
                good = good and same == count
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
