"""What the store of answers costs: opening, drawing a batch, and an update from it against one from a fresh batch.

    python benchmarks/store.py

Stores of 1,000, 100,000 and 1,000,000 answers of MAZE and of 100,000 frames of 64 x 64 x 3 are written to disk, opened
as a run that resumes opens them (every byte checked) and as `apil answers` does (every row checked), and drawn from.
Times of drawing are reported as ratios to the smallest store; measurements take turns, and the median counts.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from apil.learning.build import configure_torch
from apil.learning.rows import ANSWERED, RowFormat, Rows
from apil.learning.store import Shelf, Store
from apil.learning.trainer import Trainer
from apil.rng import Streams
from apil.runs.journal import Prefix
from apil.runs.store_file import Header, StoreFile, read_store
from apil.settings import LearnerSettings, RunSettings
from apil.settings.run import LEARNING
from apil.tasks.maze import Maze

MAZE = RowFormat.of(Maze())
FRAMES = RowFormat([(64 * 64 * 3, "bytes")], 4, False)
SETTINGS = LearnerSettings(replay=128, updates=10, validation=0.1)
_AT_ONCE = 5000


def rows_of(layout: RowFormat, count: int, start: int, luck: np.random.Generator) -> Rows:
    """Answers with random features."""
    rows = luck.integers(0, 256, (count, layout.dtype.itemsize), np.uint8).view(layout.dtype)[:, 0]
    rows["iteration"], rows["episode"], rows["step"] = start, np.arange(count), 0
    rows["identity"], rows["action"], rows["flags"], rows["distance"] = 0, 0, ANSWERED, 1.0
    return rows


def write(folder: Path, layout: RowFormat, count: int) -> Prefix:
    """A store with so many answers; what a checkpoint would note of it."""
    folder.mkdir()
    file = StoreFile(folder / "answers.store", Header("maze", layout, ("a", "b"), False), None)
    file.open()
    shelf = Shelf(layout, 0, SETTINGS.validation, whole=False, room=file)
    luck = np.random.default_rng(0)
    for start in range(0, count, _AT_ONCE):
        rows = rows_of(layout, min(_AT_ONCE, count - start), start, luck)
        layout.seal(rows)
        shelf.add(rows)
    prefix = file.sync(shelf.rows)
    file.close()
    return prefix


def opened(folder: Path, layout: RowFormat, prefix: Prefix) -> tuple[Store, StoreFile]:
    """As a run that resumes opens it."""
    file = StoreFile(folder / "answers.store", Header("maze", layout, ("a", "b"), False), prefix)
    file.open()
    shelf = Shelf(layout, 0, SETTINGS.validation, whole=False, room=file)
    shelf.recall(file.rows)
    return Store(layout, 1, SETTINGS, [shelf]), file


def seconds(work: Callable[[], Any]) -> float:
    """Of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def stores(root: Path, repetitions: int) -> list[dict[str, Any]]:
    """Opening and drawing."""
    cases = {f"MAZE, {count:,} answers": (MAZE, count) for count in (1000, 100_000, 1_000_000)}
    cases["frames of 64 x 64 x 3, 1,000 answers"] = (FRAMES, 1000)
    cases["frames of 64 x 64 x 3, 100,000 answers"] = (FRAMES, 100_000)
    found: dict[str, dict[str, Any]] = {}
    open_ones: dict[str, tuple[Store, StoreFile]] = {}
    for number, (name, (layout, count)) in enumerate(cases.items()):
        folder = root / str(number)
        prefix = write(folder, layout, count)
        resumed = [seconds(lambda f=folder, w=layout, p=prefix: opened(f, w, p)[1].close()) for _ in range(3)]  # type: ignore[misc]
        looked = [seconds(lambda f=folder: read_store(f)) for _ in range(3)]  # type: ignore[misc]
        found[name] = {
            "store": name,
            "megabytes": round((folder / "answers.store").stat().st_size / 1e6, 1),
            "seconds_to_resume": round(median(resumed), 3),
            "seconds_to_look": round(median(looked), 3),
        }
        open_ones[name] = opened(folder, layout, prefix)
    streams = Streams([0])
    drawn: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(repetitions):
        for name, (store, _) in open_ones.items():
            drawn[name].append(seconds(lambda s=store, n=number: s.sample(streams.draws("replay", n))))  # type: ignore[misc]
    for name, record in found.items():
        smallest = next(other for other, case in cases.items() if case[0] is cases[name][0])
        record["microseconds_a_batch"] = round(1e6 * median(drawn[name]), 1)
        record["of_the_smallest"] = round(median(drawn[name]) / median(drawn[smallest]), 2)
    for _, file in open_ones.values():
        file.close()
    return list(found.values())


def updates(repetitions: int, runs: int, answers: int) -> dict[str, Any]:
    """An update of a stack from the store against one from a fresh batch of the same size, at the default sizes."""
    sizes = {name: LEARNING[name] for name in ("encode", "standardise", "hidden")}
    configs = [
        RunSettings.of("maze", "twodifdetm", "dagger", seed=seed, replay=128, validation=0.1, **sizes)
        for seed in range(runs)
    ]
    trainer = Trainer(configs)
    store, agents, learner = trainer.store, trainer.agents, trainer._learner
    assert store is not None
    luck = np.random.default_rng(0)
    for shelf in store.shelves:
        rows = rows_of(MAZE, answers, 0, luck)
        rows["valid"] = 255
        MAZE.seal(rows)
        shelf.add(rows)
    fresh, some = store.sample(agents.streams.draws("replay", 0))
    fresh = replace(fresh, features=fresh.features.clone())
    of_model = learner._optimizers[:2]

    def update(from_store: bool, number: int) -> None:
        lessons = store.sample(agents.streams.draws("replay", number))[0] if from_store else fresh
        losses = agents.model.losses(lessons, agents.streams.draws("dropout", number))
        learner._descend(of_model, losses, [some, some])

    took: dict[bool, list[float]] = {True: [], False: []}
    for number in range(repetitions):
        for from_store in (True, False):
            took[from_store].append(seconds(lambda f=from_store, n=number: update(f, n)))  # type: ignore[misc]
    return {
        "stack": runs,
        "milliseconds_from_the_store": round(1e3 * median(took[True]), 2),
        "milliseconds_from_a_fresh_batch": round(1e3 * median(took[False]), 2),
        "ratio": round(median(took[True]) / median(took[False]), 3),
    }


def main() -> None:
    """Prints a JSON line for each store, and one for the updates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repetitions", type=int, default=300)
    parser.add_argument("--folder", type=Path, default=None, help="on the disk to measure; 1.4 GB are written")
    options = parser.parse_args()
    configure_torch()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for record in stores(Path(folder), options.repetitions):
            print(json.dumps(record), flush=True)
    with torch.inference_mode(False):
        for runs in (1, 24):
            print(json.dumps(updates(max(30, options.repetitions // 3), runs, 10_000)), flush=True)


if __name__ == "__main__":
    main()
