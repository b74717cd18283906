"""Worlds of cells with exact planners: MiniGrid's levels, and a 9 x 9 world of one-hot codes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parents[1] / "examples" / "budget"))
from planners import Cell, level_of, moves, plan, pose_in, right_moves, steps_to, things_in

SIDE, WALLS, LIMIT = 9, 12, 40
MOVES: tuple[Cell, ...] = ((0, -1), (1, 0), (0, 1), (-1, 0))
"""Up, right, down, left."""


class Cells(gymnasium.Env[NDArray[np.float32], Any]):
    """9 x 9 cells, 12 of them walls; start and goal anywhere; seen are the agent's and the goal's cell, one-hot."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (2 * SIDE**2,), np.float32)
        self.action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Two different cells."""
        super().reset(seed=seed)
        free = sorted(cell_moves())
        start, goal = self.np_random.choice(len(free), 2, replace=False)
        self.agent, self.goal, self.steps = free[start], free[goal], 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Moves one cell; a wall or the edge keeps the agent where it is."""
        self.agent = cell_moves()[self.agent][int(action)]
        self.steps += 1
        reached = self.agent == self.goal
        return self._seen(), float(reached), reached, self.steps >= LIMIT, {}

    def _seen(self) -> NDArray[np.float32]:
        seen = np.zeros((2, SIDE, SIDE), np.float32)
        seen[(0, *self.agent)] = seen[(1, *self.goal)] = 1
        return seen.flatten()


@cache
def cell_moves() -> dict[Cell, tuple[Cell, ...]]:
    """Where each action leads from each free cell. The walls are the same in every episode and enclose no cell."""
    rng = np.random.default_rng(9)
    everywhere = [(x, y) for x in range(SIDE) for y in range(SIDE)]
    while True:
        walls = rng.choice(len(everywhere), WALLS, replace=False)
        free = set(everywhere) - {everywhere[wall] for wall in walls}
        moves = {
            (x, y): tuple((x + dx, y + dy) if (x + dx, y + dy) in free else (x, y) for dx, dy in MOVES) for x, y in free
        }
        if len(steps_to([min(free)], moves)) == len(free):
            return moves


@cache
def _cell_steps(goal: Cell) -> dict[Cell, int]:
    return steps_to([goal], cell_moves())


def right_in_cells(episode: Any) -> list[int]:
    """The actions on a shortest way to the goal."""
    world = episode.unwrapped
    return right_moves(_cell_steps(world.goal), dict(enumerate(cell_moves()[world.agent])))


def right_in_minigrid(episode: Any) -> list[int]:
    """The actions on a shortest way to the goal: around walls and lava, with the key through the door."""
    env = episode.unwrapped
    things = things_in(env)
    level, key = level_of(things)
    pose = pose_in(env, things, level, key)
    return right_moves(plan(level, *pose[2:]), moves(level, pose))


PLANES = ((2, None), (8, None), (9, None), (5, None), (4, 0), (4, 1), (4, 2), (10, 0), (10, 1), (10, 2), (10, 3))
"""Object and state, as MiniGrid counts them: wall, goal, lava, key, the door open, closed and locked, the agent by its
heading."""


class Planes(gymnasium.ObservationWrapper[NDArray[np.float32], int, Any]):
    """The whole level but its outer walls: for each cell and each of `PLANES` whether it is there."""

    def __init__(self, env: gymnasium.Env[Any, int]) -> None:
        super().__init__(env)
        level: Any = env.unwrapped
        self.observation_space = spaces.Box(
            0.0, 1.0, (len(PLANES) * (level.width - 2) * (level.height - 2),), np.float32
        )

    def observation(self, observation: Any) -> NDArray[np.float32]:
        """[planes x width x height] from [width, height, 3]."""
        thing, _, state = observation[1:-1, 1:-1].transpose(2, 0, 1)
        planes = [(thing == kind) & (True if which is None else state == which) for kind, which in PLANES]
        return np.stack(planes).astype(np.float32).flatten()


def minigrid_level(name: str, planes: bool) -> Callable[[], gymnasium.Env[Any, Any]]:
    """Makes the level, all of it in view: as one-hot planes, or as MiniGrid's own image of codes."""

    def make() -> gymnasium.Env[Any, Any]:
        from minigrid.wrappers import FullyObsWrapper, ImgObsWrapper

        env: gymnasium.Env[Any, Any] = ImgObsWrapper(FullyObsWrapper(gymnasium.make(name)))
        return Planes(env) if planes else env

    return make
