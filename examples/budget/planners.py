"""What the teachers of this folder know: shortest ways in worlds of cells, and how to land. Registers nothing."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

Cell = tuple[int, int]
Place = TypeVar("Place", bound=Hashable)


def steps_to(goals: Iterable[Place], moves: Mapping[Place, Iterable[Place]]) -> dict[Place, int]:
    """The fewest moves to any of the goals, for each place that can reach one: breadth first, backwards."""
    before: dict[Place, list[Place]] = {}
    for place, following in moves.items():
        for after in following:
            before.setdefault(after, []).append(place)
    queue = deque(goals)
    steps = dict.fromkeys(queue, 0)
    while queue:
        place = queue.popleft()
        for previous in before.get(place, ()):
            if previous not in steps:
                steps[previous] = steps[place] + 1
                queue.append(previous)
    return steps


def right_moves(steps: Mapping[Place, int], moves: Mapping[int, Place]) -> list[int]:
    """The actions of `moves` that lead to a place with the fewest steps to go, in order."""
    far = {action: steps[place] for action, place in moves.items() if place in steps}
    return [action for action in far if far[action] == min(far.values())]


HEADINGS: tuple[Cell, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1))
LEFT, RIGHT, FORWARD, PICK_UP, TOGGLE = 0, 1, 2, 3, 5
OPEN, CLOSED, LOCKED = range(3)


class Pose(NamedTuple):
    """What changes in a level."""

    cell: Cell
    heading: int
    key: Cell | None
    """Where the key lies; None where there is none, or it is carried."""
    carries: bool
    door: int
    """Open, closed or locked; open where there is none."""


@dataclass(frozen=True)
class Level:
    """What stays the same: one goal, at most one door."""

    free: frozenset[Cell]
    """Cells without a wall or lava."""
    goal: Cell
    door: Cell | None


def moves(level: Level, pose: Pose) -> dict[int, Pose]:
    """Where the actions lead that change anything and end nothing."""
    (x, y), (dx, dy) = pose.cell, HEADINGS[pose.heading]
    ahead = (x + dx, y + dy)
    found = {
        LEFT: pose._replace(heading=(pose.heading - 1) % 4),
        RIGHT: pose._replace(heading=(pose.heading + 1) % 4),
    }
    if ahead in level.free and ahead != pose.key and not (ahead == level.door and pose.door):
        found[FORWARD] = pose._replace(cell=ahead)
    if ahead == pose.key and not pose.carries:
        found[PICK_UP] = pose._replace(key=None, carries=True)
    if ahead == level.door and (pose.door != LOCKED or pose.carries):
        found[TOGGLE] = pose._replace(door=CLOSED if pose.door == OPEN else OPEN)
    return found


@cache
def plan(level: Level, key: Cell | None, carries: bool, door: int) -> dict[Pose, int]:
    """Actions to the goal from every pose that can follow one with this key and door."""
    poses = deque(Pose(cell, heading, key, carries, door) for cell in level.free for heading in range(4))
    following: dict[Pose, tuple[Pose, ...]] = {}
    while poses:
        pose = poses.popleft()
        if pose not in following:
            following[pose] = tuple(moves(level, pose).values())
            poses.extend(following[pose])
    return steps_to([pose for pose in following if pose.cell == level.goal], following)


def things_in(env: Any) -> dict[Cell, Any]:
    """What is in each cell of a MiniGrid environment; None where it is empty."""
    return {(i % env.width, i // env.width): thing for i, thing in enumerate(env.grid.grid)}


def level_of(things: Mapping[Cell, Any]) -> tuple[Level, Cell | None]:
    """The level, and where its key lies."""
    places = {thing.type: cell for cell, thing in things.items() if thing is not None}
    free = (cell for cell, thing in things.items() if thing is None or thing.type not in ("wall", "lava"))
    return Level(frozenset(free), places["goal"], places.get("door")), places.get("key")


def pose_in(env: Any, things: Mapping[Cell, Any], level: Level, key: Cell | None) -> Pose:
    """Where the agent of a MiniGrid environment stands, and what is there now."""
    door = OPEN if level.door is None else int(things[level.door].encode()[2])
    cell = (int(env.agent_pos[0]), int(env.agent_pos[1]))
    return Pose(cell, int(env.agent_dir), key, env.carrying is not None, door)


WAYS: Mapping[str, Callable[[list[int], np.random.Generator], int]] = {
    "turner": lambda right, rng: right[0],
    "walker": lambda right, rng: right[-1],
    "drifter": lambda right, rng: int(rng.choice(right)),
}
"""Which of the right actions a planner takes: it turns as early as it can, as late as it can, or draws."""


def landing(seen: Any, favour: float) -> int:
    """Gymnasium's own heuristic of the lander; it fires the main engine where that needs `favour` times as much."""
    x, y, vx, vy, angle, spin, left, right = map(float, seen)
    turn = 0.5 * (min(0.4, max(-0.4, 0.5 * x + vx)) - angle) - spin
    lift = 0.5 * (0.55 * abs(x) - y) - 0.5 * vy
    if left or right:
        turn, lift = 0.0, -0.5 * vy
    if lift > favour * abs(turn) and lift > 0.05:
        return 2
    return 3 if turn < -0.05 else 1 if turn > 0.05 else 0
