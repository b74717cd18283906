"""One measurement in a process of its own, so that memory and warm-up do not mix; prints one JSON line.

measure.py apil RUNS EPISODES SEED | plain EPISODES SEED | losses EPISODES SEED
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from apil.learning.build import configure_torch
from apil.learning.trainer import Trainer
from apil.model.persona import PersonaModel
from apil.settings import RunSettings
from plain import PlainDagger

HORIZON = 8
WARM_UP = 20
TOLERANCE, ROUNDING = 1e-4, 1e-6
"""By how much a policy loss of the plain loop may differ from apil's: relative, and what eight float32 terms near 0
may add to it."""


def settings(episodes: int, seed: int, log_every: int = 20) -> RunSettings:
    """The work that everyone does."""
    return RunSettings.of("grid", "twodifdetm", "dagger", seed=seed, iterations=episodes, log_every=log_every)


def peak_mb() -> float:
    """Peak memory of this process, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def apil(runs: int, episodes: int, seed: int) -> dict[str, Any]:
    """A stack of `runs` runs with the default settings."""
    Trainer([settings(WARM_UP, seed)]).train()
    imported = peak_mb()
    wall, cpu = time.perf_counter(), time.process_time()
    trainer = Trainer([settings(episodes, seed + run) for run in range(runs)])
    trainer.train()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    steps = sum(row["steps"] for rows in trainer.rows for row in rows)
    assert steps == runs * episodes * HORIZON
    return {
        "steps": steps,
        "labels": sum(rows[-1]["answers"] for rows in trainer.rows),
        "updates": runs * episodes,
        "labels_per_update": HORIZON,
        "seconds": wall,
        "cpu_seconds": cpu,
        "peak_mb": peak_mb(),
        "imported_mb": imported,
    }


def plain(episodes: int, seed: int) -> dict[str, Any]:
    """The plain loop from the same weights."""
    configure_torch()
    PlainLoop(seed).losses(WARM_UP)
    imported = peak_mb()
    wall, cpu = time.perf_counter(), time.process_time()
    loop = PlainLoop(seed)
    loop.losses(episodes)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "steps": loop.dagger.totals.steps,
        "labels": loop.dagger.totals.labels,
        "updates": loop.dagger.totals.updates,
        "labels_per_update": HORIZON,
        "seconds": wall,
        "cpu_seconds": cpu,
        "peak_mb": peak_mb(),
        "imported_mb": imported,
    }


class PlainLoop:
    """The plain loop with apil's initial weights."""

    def __init__(self, seed: int) -> None:
        config = settings(1, seed)
        model = Trainer([config]).agents.model
        assert isinstance(model, PersonaModel)
        self.dagger = PlainDagger(seed, model, config.learner.learning_rate)

    def losses(self, episodes: int) -> list[float]:
        """The policy loss of each iteration."""
        return [self.dagger.iteration(number) for number in range(episodes)]


def losses(episodes: int, seed: int) -> dict[str, Any]:
    """Compares the policy losses of apil and of the plain loop, iteration by iteration."""
    trainer = Trainer([settings(episodes, seed, log_every=1)])
    trainer.train()
    ours = [float(row["policy_loss"]) for row in trainer.rows[0]]
    theirs = PlainLoop(seed).losses(episodes)
    far = [abs(a - b) > TOLERANCE * abs(a) + ROUNDING for a, b in zip(ours, theirs, strict=True)]
    equal = far.index(True) if True in far else episodes
    return {
        "iterations": episodes,
        "equal_iterations": equal,
        "relative_tolerance": TOLERANCE,
        "absolute_tolerance": ROUNDING,
        "largest_difference": max((abs(a - b) for a, b in zip(ours[:equal], theirs, strict=False)), default=None),
        "first_losses": [ours[0], theirs[0]],
        "last_losses": [ours[-1], theirs[-1]],
    }


def main(what: str, numbers: Sequence[int]) -> None:
    """Runs one item."""
    measures: dict[str, Callable[..., dict[str, Any]]] = {"apil": apil, "plain": plain, "losses": losses}
    print(json.dumps(measures[what](*numbers)))


if __name__ == "__main__":
    main(sys.argv[1], [int(value) for value in sys.argv[2:]])
