"""Where one can stand in a house and walk from there: viewpoints, edges, lines of sight, shortest paths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from apil.r2r.houses_dice import Dice
from apil.r2r.houses_plan import STOREY, Door, Plan, Room

EYE = 1.5
"""Metres from the floor to the camera."""
_SPACING = 2.0
_REACH = 3.3
_MOST = 5
_Pair = tuple[int, int]


@dataclass(frozen=True)
class Viewpoint:
    """A place to stand."""

    x: float
    y: float
    z: float
    """Metres; z is that of the camera."""
    rooms: tuple[int, ...]
    """The rooms it is in: one, or both sides of the door it stands in. The first gives its label."""

    @property
    def in_door(self) -> bool:
        """Whether it stands in a door."""
        return len(self.rooms) == 2

    def apart(self, other: Viewpoint) -> float:
        """Metres as the crow flies."""
        return math.dist((self.x, self.y, self.z), (other.x, other.y, other.z))


@dataclass(frozen=True)
class Graph:
    """The viewpoints of a house and the edges between them."""

    plan: Plan
    points: tuple[Viewpoint, ...]
    edges: frozenset[_Pair]
    """Pairs (a, b) with a < b."""

    @cached_property
    def neighbours(self) -> list[list[int]]:
        """For each viewpoint those one step away, ascending."""
        return [sorted(a + b - i for a, b in self.edges if i in (a, b)) for i in range(len(self.points))]

    def heading(self, a: int, b: int) -> float:
        """Radians clockwise from +y."""
        return math.atan2(self.points[b].x - self.points[a].x, self.points[b].y - self.points[a].y)

    def length(self, a: int, b: int) -> float:
        """Metres between two viewpoints as the crow flies."""
        return self.points[a].apart(self.points[b])

    def sees(self, viewpoint: int, x: float, y: float, room: int) -> bool:
        """Whether a point of a room is in sight: in the same room, or through one door."""
        point = self.points[viewpoint]
        return room in point.rooms or any(
            door.beyond(here) == room and door.lets_through((point.x, point.y), (x, y))
            for here in point.rooms
            for door in self.plan.doors_of(here)
        )

    def shortest(self) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """From each viewpoint (row) to each other: metres, and the viewpoint before it on the way (below 0: none)."""
        from scipy.sparse.csgraph import dijkstra

        lengths = np.zeros((len(self.points), len(self.points)))
        for a, b in self.edges:
            lengths[a, b] = self.length(a, b)
        distance, before = dijkstra(lengths, directed=False, return_predecessors=True)
        return distance, before


def draw_graph(dice: Dice, plan: Plan) -> Graph:
    """Viewpoints about two metres apart, joined where one can walk straight."""
    points: list[Viewpoint] = []
    edges: set[_Pair] = set()
    for index, room in enumerate(plan.rooms):
        first = len(points)
        points += _place(dice, index, room)
        edges |= _join(points, range(first, len(points)))
    for door in plan.doors:
        edges |= _pass(dice, points, door)
    if plan.stairs:
        # The landing half way up joins the floors.
        bottom, top = (next(i for i, p in enumerate(points) if p.rooms == (room,)) for room in plan.stairs)
        a, b = points[bottom], points[top]
        edges |= {(bottom, len(points)), (top, len(points))}
        points.append(Viewpoint(a.x - 1.7, (a.y + b.y) / 2, (a.z + b.z) / 2, (plan.stairs[0],)))
    return Graph(plan, tuple(points), frozenset(edges))


def _place(dice: Dice, index: int, room: Room) -> list[Viewpoint]:
    """The viewpoints of a room: a grid with some disorder, and now and then one left out."""
    z = room.floor * STOREY + EYE
    if room.kind == "s":
        # The stairs go up to a landing at the far wall and back: the ways in on the two floors lie side by side.
        side = -0.5 if room.floor == 0 else 0.5
        return [Viewpoint(room.x1 - 0.8, (room.y0 + room.y1) / 2 + side, z, (index,))]
    wide, deep = room.x1 - room.x0, room.y1 - room.y0
    most = 99 if room.kind == "h" else 3
    columns, rows = (max(1, min(most, round(side / _SPACING))) for side in (wide, deep))
    cells = [(i, j) for i in range(columns) for j in range(rows)]
    if len(cells) >= 4 and room.kind != "h":
        cells = sorted(dice.shuffled(cells)[: min(len(cells) - dice.chance(0.4), _MOST)])
    points = []
    for i, j in cells:
        right, up = i + 0.5 + dice.uniform(-0.12, 0.12), j + 0.5 + dice.uniform(-0.12, 0.12)
        points.append(Viewpoint(room.x0 + right * wide / columns, room.y0 + up * deep / rows, z, (index,)))
    return points


def _join(points: list[Viewpoint], mine: range) -> set[_Pair]:
    """Edges inside a room: all short ones, and the shortest that it takes to join the rest."""
    group = {i: i for i in mine}
    edges = set()
    for length, a, b in sorted((points[a].apart(points[b]), a, b) for a, b in combinations(mine, 2)):
        if length <= _REACH or group[a] != group[b]:
            edges.add((a, b))
            group = {i: group[a] if g == group[b] else g for i, g in group.items()}
    return edges


def _pass(dice: Dice, points: list[Viewpoint], door: Door) -> set[_Pair]:
    """Edges through a door, straight from room to room where that is possible, else by a viewpoint in the door."""
    sides = [[i for i, p in enumerate(points) if p.rooms == (room,)] for room in door.rooms]
    through = sorted(
        (length, a, b)
        for a in sides[0]
        for b in sides[1]
        if (length := points[a].apart(points[b])) <= _REACH
        and door.lets_through((points[a].x, points[a].y), (points[b].x, points[b].y))
    )
    if through and dice.chance(0.6):
        return {(a, b) for _, a, b in through[:3]}
    new = Viewpoint(door.x, door.y, points[sides[0][0]].z, tuple(dice.shuffled(door.rooms)))
    edges = set()
    for side in sides:
        near = sorted((points[i].apart(new), i) for i in side)
        edges |= {(i, len(points)) for k, (length, i) in enumerate(near[:3]) if k == 0 or length <= 2.8}
    points.append(new)
    return edges
