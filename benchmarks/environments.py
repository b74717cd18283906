"""What the task adapter costs: steps a second of environments through apil, and of gymnasium.vector alone.

    .venv/bin/python benchmarks/environments.py

Both take random actions, in one process, in turns. Processor time is counted, so that other work on the machine
changes the ratio little; it is taken within a round, then the median over rounds. Only steps that move an environment
count: not those of gymnasium's automatic resets, nor apil's for episodes that have ended. Times include the resets and
the drawing of actions on both sides. The distance is 'success': a function of the user's own costs what it costs.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import SyncVectorEnv

from apil.learning.build import configure_torch
from apil.rng import Streams
from apil.tasks import from_gymnasium
from apil.tasks.gymnasium import GymnasiumTask
from grid import HERE, Record, machine

COUNTS, ROUNDS, STEPS = (16, 64), 15, 400
"""Environments: one run of 16 episodes, and a stack of four."""
TARGET = 0.70
HORIZONS = {
    # A random CartPole falls after some 22 steps: longer horizons would mostly measure episodes that have ended.
    "CartPole-v1": 20,
    "MountainCar-v0": 200,
    "Pendulum-v1": 200,
    "MountainCarContinuous-v0": 200,
}


def of_gymnasium(vector: SyncVectorEnv[Any, Any], steps: int) -> float:
    """Steps a second of a vector environment alone."""
    began, moved = time.process_time(), 0
    vector.reset(seed=0)
    ended = np.zeros(vector.num_envs, bool)
    for _ in range(steps):
        _, _, terminated, truncated, _ = vector.step(vector.action_space.sample())
        moved += int((~ended).sum())
        ended = terminated | truncated
    return moved / (time.process_time() - began)


def of_apil(task: GymnasiumTask, space: gymnasium.Space[Any], turn: int, steps: int) -> float:
    """Steps a second through the task: reset, observe, step, done, as in the loop that collects episodes."""
    streams, count = Streams([0]), len(space.sample())
    began, moved = time.process_time(), 0
    with torch.inference_mode():
        for batch in range(max(1, steps // task.horizon)):
            state = task.reset(streams.draws("task", 1000 * turn + batch), count)
            for _ in range(task.horizon):
                moved += count - int(task.done(state).numpy().sum())
                task.observe(state)
                state = task.step(state, torch.from_numpy(space.sample()).unsqueeze(0))
            task.distance(state)
    return moved / (time.process_time() - began)


def compare(name: str, count: int) -> Record:
    """Both figures of an environment, medians over rounds, and the median ratio; printed too."""

    def make() -> gymnasium.Env[Any, Any]:
        return gymnasium.make(name)

    vector = SyncVectorEnv([make] * count)
    task = from_gymnasium(make, distance="success", horizon=HORIZONS[name])
    alone, adapted = [], []
    for turn in range(ROUNDS + 1):
        pair = of_gymnasium(vector, STEPS), of_apil(task, vector.action_space, turn, STEPS)
        if turn:  # the first warms up
            alone.append(pair[0])
            adapted.append(pair[1])
    ratios = [ours / theirs for ours, theirs in zip(adapted, alone, strict=True)]
    theirs, ours, ratio = (statistics.median(values) for values in (alone, adapted, ratios))
    print(f"{name:26} {count:4} {theirs:12,.0f} {ours:12,.0f} {ratio:8.2f}", flush=True)
    vector.close()
    task.close()
    return {
        "environment": name,
        "count": count,
        "gymnasium": round(theirs),
        "apil": round(ours),
        "ratio": round(ratio, 3),
        "ratios": [round(each, 3) for each in ratios],
    }


def main() -> None:
    """All environments, into results/gymnasium.json; fails if one is below the target."""
    configure_torch()
    print(f"steps a second of processor time, medians of {ROUNDS} rounds")
    print(f"{'environment':26} {'':4} {'gymnasium':>12} {'apil':>12} {'ratio':>8}")
    rows = [compare(name, count) for name in HORIZONS for count in COUNTS]
    worst = min(row["ratio"] for row in rows)
    versions = {"gymnasium": version("gymnasium"), "numpy": version("numpy")}
    result = {"machine": {**machine(), **versions}, "rounds": ROUNDS, "steps": STEPS, "target": TARGET, "rows": rows}
    (HERE / "results" / "gymnasium.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"least ratio {worst:.2f}; the target is {TARGET:.2f}")
    sys.exit(0 if worst >= TARGET else 1)


if __name__ == "__main__":
    main()
