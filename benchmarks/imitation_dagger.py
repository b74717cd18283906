"""DAgger of `imitation` 1.0.1 on the same GRID; runs in an environment of its own and prints one JSON line.

    imitation_dagger.py EPISODES SEED [UPDATES_PER_ROUND]

`SimpleDAggerTrainer` at its defaults: rounds of at least 500 steps, four epochs over all labels after each. With
UPDATES_PER_ROUND, that many gradient updates after each round instead.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from imitation.algorithms import bc
from imitation.algorithms.dagger import SimpleDAggerTrainer
from imitation.policies.base import NonTrainablePolicy
from stable_baselines3.common.vec_env import DummyVecEnv

SIZE = 5
HORIZON = 2 * (SIZE - 1)
EMPTY, GOAL, AGENT = 0.0, 0.5, 1.0
RIGHT, DOWN = 0, 1
SPACE = gymnasium.spaces.Box(0.0, 1.0, (SIZE * SIZE,), np.float32)


class Grid(gymnasium.Env[Any, Any]):
    """GRID; imitation knows no invalid actions, so a move out of the grid becomes the other one."""

    observation_space = SPACE
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """To the top-left cell."""
        super().reset(seed=seed)
        self._row = self._column = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One cell right or down; the reward is 1 at the goal, which imitation only logs."""
        if self._row == SIZE - 1 or (self._column < SIZE - 1 and int(action) == RIGHT):
            self._column += 1
        else:
            self._row += 1
        done = self._row == self._column == SIZE - 1
        return self._observe(), float(done), done, False, {}

    def _observe(self) -> Any:
        cells = np.full(SIZE * SIZE, EMPTY, dtype=np.float32)
        cells[-1] = GOAL
        cells[self._row * SIZE + self._column] = AGENT
        return cells


class First(NonTrainablePolicy):  # type: ignore[misc]  # imitation is not installed where types are checked
    """The teacher: right before down."""

    def __init__(self) -> None:
        super().__init__(SPACE, Grid.action_space)

    def _choose_action(self, obs: Any) -> int:
        cell = int(np.argmax(obs))
        return RIGHT if cell % SIZE < SIZE - 1 else DOWN


def main(episodes: int, seed: int, updates_per_round: int | None) -> None:
    """Trains once, on one thread."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    venv = DummyVecEnv([Grid])
    imported = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    updates = 0

    def count() -> None:
        nonlocal updates
        updates += 1

    learning: dict[str, Any] = {"on_batch_end": count}
    if updates_per_round:
        learning["n_batches"] = updates_per_round
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.perf_counter(), time.process_time()
        learner = bc.BC(observation_space=SPACE, action_space=Grid.action_space, rng=rng)
        trainer = SimpleDAggerTrainer(venv=venv, scratch_dir=folder, expert_policy=First(), bc_trainer=learner, rng=rng)
        trainer.train(total_timesteps=episodes * HORIZON, bc_train_kwargs=learning)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        steps = sum(len(demonstration) for demonstration in trainer._all_demos)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = {
        "steps": steps,
        "labels": steps,
        "updates": updates,
        "labels_per_update": learner.batch_size,
        "seconds": wall,
        "cpu_seconds": cpu,
        "peak_mb": peak / 1024,
        "imported_mb": imported / 1024,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
