"""A MiniGrid environment with two experts who disagree: one walks along the row first, one along the column.

APIL_PLUGINS=examples/minigrid_experts.py apil study examples/minigrid.toml --out results/minigrid
"""

from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from gymnasium import spaces
from minigrid.core.constants import DIR_TO_VEC
from minigrid.core.world_object import Goal
from minigrid.envs import EmptyEnv

import apil
from apil.tasks import from_gymnasium
from apil.tasks.plane import Plane
from apil.teachers import Scripted, Team

SIDE, HORIZON = 6, 20
(LEFT, RIGHT, FORWARD), (EAST, SOUTH, WEST, NORTH) = range(3), range(4)


class Room(EmptyEnv):  # type: ignore[misc]
    """MiniGrid-Empty-Random-8x8 with a random goal too; seen are where the goal lies, and the heading."""

    def __init__(self) -> None:
        super().__init__(size=SIDE + 2, agent_start_pos=None, max_steps=HORIZON)
        self.action_space = spaces.Discrete(3)
        self.observation_space = spaces.Box(-1.0, 1.0, (6,), np.float32)

    def _gen_grid(self, width: int, height: int) -> None:
        super()._gen_grid(width, height)
        self.grid.set(width - 2, height - 2, None)
        self.goal = tuple(map(int, self.place_obj(Goal())))

    def gen_obs(self) -> Any:
        """[6]: how far the goal is ahead and to the right, as shares of the room, and the heading as 0 and 1."""
        (dx, dy), (x, y, heading) = DIR_TO_VEC[self.agent_dir].tolist(), stand(self)
        east, south = self.goal[0] - x, self.goal[1] - y
        seen = np.zeros(6, np.float32)
        seen[:2] = (east * dx + south * dy) / SIDE, (south * dx - east * dy) / SIDE
        seen[2 + heading] = 1
        return seen


def stand(env: Any) -> tuple[int, int, int]:
    """x, y and heading of the agent."""
    return int(env.agent_pos[0]), int(env.agent_pos[1]), env.agent_dir


@lru_cache
def plan(goal: tuple[int, int]) -> dict[tuple[int, int, int], float]:
    """Steps to the goal by x, y and heading, turns included: backwards from the goal, breadth first."""
    queue = deque((*goal, heading) for heading in range(4))
    steps = dict.fromkeys(queue, 0.0)
    while queue:
        x, y, heading = queue.popleft()
        dx, dy = DIR_TO_VEC[heading].tolist()
        for place in ((x, y, (heading + 1) % 4), (x, y, (heading - 1) % 4), (x - dx, y - dy, heading)):
            if place not in steps and 1 <= place[0] <= SIDE and 1 <= place[1] <= SIDE:
                steps[place] = steps[x, y, heading] + 1
                queue.append(place)
    return steps


def distance(episode: Any) -> float:
    """Steps to the goal."""
    return plan(episode.unwrapped.goal)[stand(episode.unwrapped)]


def room() -> Any:
    """MiniGrid's empty room, start and goal anywhere, 20 steps; failure is possible."""
    return from_gymnasium(Room, distance=distance, horizon=HORIZON, action_names=("left", "right", "forward"))


def goal_from_agent(options: Mapping[str, Any]) -> Plane:
    """Where the goal lies, from the agent."""
    cells, bounds = (2 * SIDE - 1, 2 * SIDE - 1), (0.5 - SIDE, SIDE - 0.5, 0.5 - SIDE, SIDE - 0.5)
    return Plane(lambda seen: SIDE * seen[:, [1, 0]], "goal to the right", "goal ahead", cells, bounds)


apil.register_task("room", room, plane=goal_from_agent)


def ways(env: Any) -> tuple[int | None, int | None]:
    """The headings that lead nearer, along the row and along the column."""
    x, y, _ = stand(env)
    east, south = env.goal[0] - x, env.goal[1] - y
    return (EAST if east > 0 else WEST) if east else None, (SOUTH if south > 0 else NORTH) if south else None


def towards(wanted: int | None, heading: int) -> int:
    """Forward, or a turn to where it wants to go."""
    return (FORWARD, RIGHT, RIGHT, LEFT)[((wanted or 0) - heading) % 4]


def expert(row_first: bool) -> Scripted:
    """Turns to the goal along the row and then along the column, or the other way round."""

    def act(episode: Any, rng: np.random.Generator) -> int:
        row, column = ways(episode.unwrapped)
        first, second = (row, column) if row_first else (column, row)
        return towards(second if first is None else first, episode.unwrapped.agent_dir)

    return Scripted(act, privileged=True)


def either(episode: Any, rng: np.random.Generator) -> int:
    """Walks on as long as that leads nearer, and otherwise draws where to turn."""
    nearer = [way for way in ways(episode.unwrapped) if way is not None]
    heading = episode.unwrapped.agent_dir
    return FORWARD if heading in nearer else towards(int(rng.choice(nearer)), heading)


def experts() -> Team:
    """Two who disagree: along the row first, along the column first."""
    return Team({"row-first": expert(True), "column-first": expert(False)})


apil.register_teacher("row-and-column", experts)


MEMBERS = {"row-first": expert(True), "column-first": expert(False), "either": Scripted(either, privileged=True)}
apil.register_teacher("room-detm", lambda: Team({"row-first": MEMBERS["row-first"]}))
apil.register_teacher("room-rand", lambda: Team({"either": MEMBERS["either"]}))
apil.register_teacher("room-twodif", experts)
apil.register_teacher("room-three", lambda: Team(MEMBERS))
