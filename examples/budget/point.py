"""A point that walks around a wall by small steps of any direction: continuous control for choosing rules.

APIL_PLUGINS=examples/budget/point.py apil train --task point --teacher point-three --query random --answer-budget 60 \
--out runs/point

The wall may be passed on either side, and teachers differ in which. Into the wall nothing moves. The distance is the
length of the shortest way, in steps.
"""

import math
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

import apil
from apil.tasks import from_gymnasium
from apil.teachers import Team

STEP, HORIZON, NEAR = 0.1, 24, 0.6
"""The length of a step in a square of size 1, steps of an episode, and the distance in steps that counts as reached."""
WALL, ENDS = 0.5, (0.25, 0.75)
"""The height of the wall, and where it begins and ends."""
CORNERS = ((0.17, 0.5), (0.83, 0.5))
"""Where the wall is passed, left and right."""


class Point(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Starts below the wall, and the target is above it."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """A start and a target, drawn evenly."""
        super().reset(seed=seed)
        self.at = np.array([self.np_random.uniform(0.1, 0.9), self.np_random.uniform(0.1, 0.35)])
        self.target = np.array([self.np_random.uniform(0.1, 0.9), self.np_random.uniform(0.65, 0.9)])
        return self.seen(), {}

    def seen(self) -> NDArray[np.float32]:
        """The place and the target, from -1 to 1."""
        return (2 * np.concatenate([self.at, self.target]) - 1).astype(np.float32)

    def step(self, action: Any) -> Any:
        """A step of at most `STEP`, unless the wall or the edge is in the way."""
        move = np.asarray(action, np.float64)
        there = np.clip(self.at + STEP * move / max(1.0, float(np.linalg.norm(move))), 0.0, 1.0)
        if not crosses(self.at, there):
            self.at = there
        return self.seen(), 0.0, self.to_go() <= NEAR, False, {}

    def to_go(self) -> float:
        """Steps on the shortest way."""
        return min(float(np.linalg.norm(np.diff(way, axis=0), axis=1).sum()) for way in self.ways()) / STEP

    def ways(self) -> list[NDArray[np.float64]]:
        """Straight ahead where nothing is in the way, else around either end of the wall."""
        if not crosses(self.at, self.target):
            return [np.stack([self.at, self.target])]
        return [np.stack([self.at, np.array(corner), self.target]) for corner in CORNERS]


def crosses(here: NDArray[np.float64], there: NDArray[np.float64]) -> bool:
    """Whether the straight way from one place to another goes through the wall."""
    if (here[1] - WALL) * (there[1] - WALL) > 0 or here[1] == there[1]:
        return False
    x = here[0] + (there[0] - here[0]) * (WALL - here[1]) / (there[1] - here[1])
    return bool(ENDS[0] <= x <= ENDS[1])


def walker(side: int | None, least: float = 1.0) -> Any:
    """Goes around the wall on a `side`, 0 or 1, or on the shorter one; with a speed drawn from `least` to 1."""

    def answer(seen: Any, rng: np.random.Generator) -> Any:
        at, target = (np.asarray(seen, np.float64).reshape(2, 2) + 1) / 2
        aim = target
        if crosses(at, target):
            lengths = [math.dist(at, corner) + math.dist(corner, target) for corner in CORNERS]
            aim = np.array(CORNERS[int(np.argmin(lengths)) if side is None else side])
        way = aim - at
        return (way / max(STEP, float(np.linalg.norm(way))) * rng.uniform(least, 1.0)).astype(np.float32)

    return answer


def point() -> Any:
    """To reach the target on the other side of the wall."""
    return from_gymnasium(
        Point,
        distance=lambda episode: cast(Point, episode.env).to_go(),
        horizon=HORIZON,
        success_distance=NEAR,
        name="point",
        encoder="learned",
    )


apil.register_task("point", point)
apil.register_teacher(
    "point-three", lambda: Team({"left": walker(0), "right": walker(1), "nearer": walker(None, least=0.5)})
)
