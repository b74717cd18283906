"""Levels of MiniGrid in which order matters or a mistake is the end, with exact planners as teachers.

APIL_PLUGINS=examples/budget/minigrid_levels.py apil train --task lava-gap --teacher way-three --query random \
--answer-budget 300 --out runs/lava-gap

Tasks: lava-gap, lava-crossing, dist-shift, door-key. The planners agree on what is a shortest way and differ in which
of several they take. The distance is the number of actions to the goal; in the lava it is the horizon.
"""

from collections.abc import Mapping
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from planners import (
    CLOSED,
    FORWARD,
    HEADINGS,
    LEFT,
    LOCKED,
    OPEN,
    PICK_UP,
    RIGHT,
    TOGGLE,
    WAYS,
    Cell,
    Pose,
    level_of,
    moves,
    plan,
    right_moves,
    things_in,
)  # fmt: skip

import apil
from apil.tasks import from_gymnasium
from apil.tasks.plane import Plane, grid_plane
from apil.teachers import Scripted, Team


class Seen(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A MiniGrid level as a vector, seen from where the agent stands and the way it looks, and its planner.

    Walls and lava up to `radius` cells away as 0 and 1, the heading, and where the goal is; with a door also where the
    key and the door are, whether the key is carried, and the state of the door. With a `radius` of 0 nothing around is
    seen, but the agent's column and row.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], radius: int, actions: tuple[int, ...]) -> None:
        super().__init__(env)
        self.world = world = cast(Any, env.unwrapped)
        self.radius, self.actions = radius, actions
        around = 2 * (2 * radius + 1) ** 2 if radius else world.width + world.height
        size = around + 6 + 8 * (TOGGLE in actions)
        self.observation_space = spaces.Box(-1.0, 1.0, (size,), np.float32)
        self.action_space = spaces.Discrete(len(actions))
        world.gen_obs = dict  # its own view, which nobody reads, takes longer than all else

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        """A new level, and the plan for it."""
        self.env.reset(**given)
        things, r = things_in(self.world), self.radius
        self.level, self.key = level_of(things)
        self.door = None if self.level.door is None else things[self.level.door]
        self.to_go = plan(self.level, self.key, False, self.pose().door)
        self.solid = np.zeros((2, self.world.width + 2 * r, self.world.height + 2 * r), np.float32)
        self.solid[0] = 1
        for (x, y), thing in things.items():
            kind = "" if thing is None else thing.type
            self.solid[:, x + r, y + r] = kind == "wall", kind == "lava"
        return self.seen(), {}

    def step(self, action: int) -> Any:
        """One of `actions`, by its place."""
        _, reward, terminated, truncated, _ = self.env.step(self.actions[int(action)])
        return self.seen(), reward, terminated, truncated, {}

    def pose(self) -> Pose:
        """Where the agent stands, and what has changed since the reset."""
        world, carries = self.world, self.world.carrying is not None
        door = OPEN if self.door is None or self.door.is_open else LOCKED if self.door.is_locked else CLOSED
        cell = (int(world.agent_pos[0]), int(world.agent_pos[1]))
        return Pose(cell, int(world.agent_dir), None if carries else self.key, carries, door)

    def seen(self) -> NDArray[np.float32]:
        """The observation."""
        pose, side = self.pose(), 2 * self.radius + 1
        (x, y), (dx, dy) = pose.cell, HEADINGS[pose.heading]

        def towards(cell: Cell | None) -> tuple[float, float]:
            """How far ahead and to the right, as shares of the level; (0, 0) is here, or nowhere."""
            east, south = (0, 0) if cell is None else (cell[0] - x, cell[1] - y)
            return (east * dx + south * dy) / self.world.width, (south * dx - east * dy) / self.world.width

        if self.radius:
            around = np.rot90(self.solid[:, x : x + side, y : y + side], -pose.heading, (1, 2)).reshape(-1)
        else:
            around = np.concatenate([np.arange(self.world.width) == x, np.arange(self.world.height) == y])
        rest = [*towards(self.level.goal), *(float(pose.heading == heading) for heading in range(4))]
        if TOGGLE in self.actions:
            state = (float(pose.door == state) for state in (OPEN, CLOSED, LOCKED))
            rest += [*towards(pose.key), *towards(self.level.door), float(pose.carries), *state]
        return np.concatenate([around, rest]).astype(np.float32)

    def distance(self, lost: float) -> float:
        """Actions to the goal; `lost` in the lava."""
        return float(self.to_go.get(self.pose(), lost))

    def right(self) -> list[int]:
        """The actions on a shortest way, by their places."""
        pose = self.pose()
        return [self.actions.index(action) for action in right_moves(self.to_go, moves(self.level, pose))]


def lava_gap(size: int = 7) -> Any:
    """MiniGrid-LavaGapS7: through the one gap in a river of lava."""
    return level("lava-gap", "LavaGapEnv", {"size": size}, radius=4, horizon=24)


def lava_crossing(size: int = 9, rivers: int = 1) -> Any:
    """MiniGrid-LavaCrossingS9N1: the river lies either way."""
    return level("lava-crossing", "CrossingEnv", {"size": size, "num_crossings": rivers}, radius=6, horizon=32)


def dist_shift(row: int = 2) -> Any:
    """MiniGrid-DistShift1 with the agent anywhere, where its own start has one best way: the goal lies behind lava.

    `row` is that of the second strip of lava; 5 is DistShift2.
    """
    return level("dist-shift", "DistShiftEnv", {"agent_start_pos": None, "strip2_row": row}, radius=0, horizon=24)


def door_key(size: int = 6) -> Any:
    """MiniGrid-DoorKey-6x6: the key, then the door, then the goal."""
    return level("door-key", "DoorKeyEnv", {"size": size}, radius=2, horizon=32, pickup=PICK_UP, toggle=TOGGLE)


def level(name: str, kind: str, options: Mapping[str, Any], *, radius: int, horizon: int, **more: int) -> Any:
    """A task from a class of MiniGrid; `more` are actions beside turning and walking."""
    from minigrid import envs

    actions = {"left": LEFT, "right": RIGHT, "forward": FORWARD, **more}
    return from_gymnasium(
        lambda: Seen(getattr(envs, kind)(**options), radius, tuple(actions.values())),
        distance=lambda episode: cast(Seen, episode.env).distance(lost=horizon),
        horizon=horizon,
        name=name,
        action_names=tuple(actions),
    )


def planners(*names: str) -> Team:
    """Teachers by name, each on a shortest way."""

    def member(name: str) -> Scripted:
        return Scripted(lambda episode, rng: WAYS[name](episode.env.right(), rng), privileged=True)

    return Team({name: member(name) for name in names})


def column_and_row(width: int, height: int, radius: int) -> Plane:
    """Where the agent stands, from what it sees; where it sees the level around, the goal is in the last corner."""

    def place(seen: NDArray[np.float32]) -> NDArray[np.float64]:
        if not radius:
            return np.stack([seen[:, :width].argmax(1), seen[:, width : width + height].argmax(1)], 1).astype(float)
        first = 2 * (2 * radius + 1) ** 2
        ahead, right = np.rint(seen[:, first : first + 2].T * width)
        dx, dy = np.array(HEADINGS)[seen[:, first + 2 : first + 6].argmax(1)].T
        return np.stack([width - 2 - (ahead * dx - right * dy), height - 2 - (ahead * dy + right * dx)], 1)

    return grid_plane(width, height, place)


apil.register_task("lava-gap", lava_gap, plane=lambda options: column_and_row(7, 7, radius=4))
apil.register_task("lava-crossing", lava_crossing, plane=lambda options: column_and_row(9, 9, radius=6))
apil.register_task("dist-shift", dist_shift, plane=lambda options: column_and_row(9, 7, radius=0))
apil.register_task("door-key", door_key, plane=lambda options: column_and_row(6, 6, radius=2))
apil.register_teacher("way-detm", lambda: planners("turner"))
apil.register_teacher("way-rand", lambda: planners("drifter"))
apil.register_teacher("way-twodif", lambda: planners("turner", "walker"))
apil.register_teacher("way-three", lambda: planners("turner", "walker", "drifter"))
