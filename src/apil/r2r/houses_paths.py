"""Shortest paths through a house, and what is true of each of their steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from apil.r2r.houses_captions import Sight, turned
from apil.r2r.houses_dice import Dice
from apil.r2r.houses_graph import Graph
from apil.r2r.houses_things import Thing

_EDGES = (4, 5, 6)
_SHORTEST = 6.0
_STARTS_PER_GOAL = 4


@dataclass(frozen=True)
class Leg:
    """One step of a path, as an instruction may tell it."""

    turn: float
    """Radians clockwise from the heading before the step, between -pi and pi."""
    climb: float
    """Metres upwards."""
    room: str
    """The kind of room the step begins in."""
    enters: str | None
    """The kind of room the step leads into, if it is another one."""
    towards: Thing | None
    """Something straight ahead that has no like in any other direction."""
    passed: tuple[Thing, str] | None
    """The nearest thing beside the step, with 'left' or 'right'."""
    choices: int
    """Exits other than the way back."""


@dataclass(frozen=True)
class End:
    """Where a path ends."""

    room: str
    """The kind of room; in a door the one that is entered."""
    in_door: bool
    """Whether it ends in a doorway."""
    near: Thing | None
    """The nearest thing within two metres."""


def draw_paths(dice: Dice, graph: Graph, count: int) -> list[tuple[int, ...]]:
    """Different shortest paths of four to six steps, up to `count`, with several starts for each goal."""
    found: list[tuple[int, ...]] = []
    goals: list[list[tuple[int, ...]]] = []
    distance, before = graph.shortest()
    for goal in dice.shuffled(range(len(graph.points))):
        ways = [_way(before[goal].tolist(), int(start)) for start in np.flatnonzero(distance[goal] >= _SHORTEST)]
        goals.append(dice.shuffled([way for way in ways if len(way) - 1 in _EDGES]))
    while any(goals) and len(found) < count:
        for ways in goals:
            found += [ways.pop() for _ in range(min(_STARTS_PER_GOAL, len(ways)))]
    return dice.shuffled(found)[:count]


def _way(before: Sequence[int], start: int) -> tuple[int, ...]:
    way = [start]
    while before[way[-1]] >= 0:
        way.append(before[way[-1]])
    return tuple(way)


def describe_path(
    graph: Graph, seen: Sequence[Sequence[Sight]], path: Sequence[int], heading: float
) -> tuple[tuple[Leg, ...], End]:
    """The steps of a path that begins with the given heading, and its end; `seen` are the sights of each viewpoint."""
    rooms = [room.kind for room in graph.plan.rooms]
    inside = _rooms_along(graph, path)
    legs = []
    for step, (a, b) in enumerate(pairwise(path)):
        ahead, length = graph.heading(a, b), graph.length(a, b)
        before, after = inside[step], inside[step + 1]
        legs.append(
            Leg(
                turn=turned(ahead - heading),
                climb=graph.points[b].z - graph.points[a].z,
                room=rooms[before],
                enters=rooms[after] if after != before or (step == 0 and graph.points[a].in_door) else None,
                towards=_towards(seen[a], ahead, length),
                passed=_passed(seen[a], ahead, length),
                choices=len(graph.neighbours[a]) - (step > 0),
            )
        )
        heading = ahead
    point, last = graph.points[path[-1]], inside[-1]
    room = next((other for other in point.rooms if other != last), last)
    close = (s.thing for s in seen[path[-1]] if s.thing and s.distance <= 2.0 and s.thing.room in point.rooms)
    return tuple(legs), End(rooms[room], point.in_door, next(close, None))


def _rooms_along(graph: Graph, path: Sequence[int]) -> list[int]:
    """The room at each viewpoint; in a door it is the one the walker comes from (at the start: the other one)."""
    points = [graph.points[i] for i in path]
    first = points[0].rooms[0]
    if points[0].in_door and first in points[1].rooms:
        first = points[0].rooms[1]
    inside = [first]
    for before, point in pairwise(points):
        # From one door straight to another the walker crosses the room both belong to.
        shared = [room for room in point.rooms if room in before.rooms]
        inside.append(next(room for room in (inside[-1], *shared, *point.rooms) if room in point.rooms))
    return inside


def _towards(seen: Sequence[Sight], ahead: float, length: float) -> Thing | None:
    off = [(abs(turned(s.heading - ahead)), s.distance, s.thing) for s in seen if s.thing]
    for angle, distance, thing in off:
        like = any(far > math.radians(25) and other.noun == thing.noun for far, _, other in off)
        if angle <= math.radians(18) and distance >= 0.6 * length and not like:
            return thing
    return None


def _passed(seen: Sequence[Sight], ahead: float, length: float) -> tuple[Thing, str] | None:
    beside: list[tuple[float, tuple[Thing, str]]] = []
    for s in seen:
        angle = turned(s.heading - ahead)
        along, aside = s.distance * math.cos(angle), s.distance * math.sin(angle)
        if s.thing and 0.2 <= along <= length and 0.3 <= abs(aside) <= 1.7:
            beside.append((abs(aside), (s.thing, "right" if aside > 0 else "left")))
    return min(beside, key=lambda item: item[0])[1] if beside else None
