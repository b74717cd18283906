"""Floor plans: a hall with rooms on both sides as rectangles, the doors between them, and stairs to a second floor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from apil.r2r.houses_dice import Dice
from apil.studies.text import texts

STOREY = 2.8
"""Metres from one floor to the next."""
WORDS = texts("houses.toml", "apil.r2r")
ROOM_NAMES: dict[str, str] = WORDS["rooms"]
"""What the letter of a room stands for, by the letters of Matterport3D."""

_LARGE, _MEDIUM, _SMALL = "llfbbdkrin", "bbbokdwoi", "aaacjcc"
_STAIRS_LENGTH = 3.2
_SHARED_WALL = 1.4


@dataclass(frozen=True)
class Room:
    """A rectangle with a purpose."""

    kind: str
    """A letter of `ROOM_NAMES`."""
    floor: int
    """0 or 1."""
    x0: float
    y0: float
    x1: float
    y1: float
    """Corners in metres; x grows to the east, y to the north."""

    @property
    def area(self) -> float:
        """Square metres."""
        return (self.x1 - self.x0) * (self.y1 - self.y0)

    def holds(self, x: float, y: float) -> bool:
        """Whether a point of its floor is inside."""
        return self.x0 <= x <= self.x1 and self.y0 <= y <= self.y1


@dataclass(frozen=True)
class Door:
    """An opening in the wall that two rooms share."""

    rooms: tuple[int, int]
    """Indices of the rooms."""
    x: float
    y: float
    """Its middle, in metres."""
    wall: str
    """'x' if the wall runs east-west, 'y' if it runs north-south."""
    width: float
    """Metres."""

    def beyond(self, room: int) -> int:
        """The room on the other side."""
        return self.rooms[1] if room == self.rooms[0] else self.rooms[0]

    def lets_through(self, a: tuple[float, float], b: tuple[float, float]) -> bool:
        """Whether the straight line between two points on either side goes through the opening."""
        (across_a, along_a), (across_b, along_b) = (p[::-1] if self.wall == "x" else p for p in (a, b))
        across, along = (self.y, self.x) if self.wall == "x" else (self.x, self.y)
        if (across_a - across) * (across_b - across) >= 0:
            return False
        t = (across - across_a) / (across_b - across_a)
        return abs(along_a + t * (along_b - along_a) - along) <= self.width / 2


@dataclass(frozen=True)
class Plan:
    """The rooms and doors of a house."""

    rooms: tuple[Room, ...]
    doors: tuple[Door, ...]

    @property
    def stairs(self) -> list[int]:
        """The two rooms, below and above, that the stairs join; none in a house of one floor."""
        return [index for index, room in enumerate(self.rooms) if room.kind == "s"]

    def doors_of(self, room: int) -> list[Door]:
        """The doors of a room."""
        return [door for door in self.doors if room in door.rooms]


def draw_plan(dice: Dice) -> Plan:
    """A house of one floor, or (two in five) of two."""
    floors = 2 if dice.chance(0.4) else 1
    width, depth, hall = dice.uniform(13.5, 18.5), dice.uniform(10.0, 12.5), dice.uniform(1.8, 2.2)
    south = dice.uniform(0.42, 0.58) * (depth - hall)
    decks = {letters: dice.shuffled(letters) for letters in (_LARGE, _MEDIUM, _SMALL)}
    rooms: list[Room] = []
    doors: list[Door] = []
    for floor in range(floors):
        first = len(rooms)
        rooms += _strip(floor, floors, width, south, south + hall)
        for low, high in ((0.0, south), (south + hall, depth)):
            rooms += _side(dice, floor, width, low, high, back=high if low else low)
        rooms[first:] = [_furnished(dice, room, decks) for room in rooms[first:]]
        doors += _doors(dice, rooms, first)
    return Plan(tuple(rooms), tuple(doors))


def _strip(floor: int, floors: int, width: float, y0: float, y1: float) -> list[Room]:
    """The middle of a floor from west to east: stairs if there are any, the hall, an entry on the ground floor."""
    west = _STAIRS_LENGTH if floors == 2 else 0.0
    east = width - (2.4 if floor == 0 else 0.0)
    parts = [("h", west, east), ("s", 0.0, west), ("e", east, width)]
    return [Room(kind, floor, x0, y0, x1, y1) for kind, x0, x1 in parts if x1 > x0]


def _side(dice: Dice, floor: int, width: float, y0: float, y1: float, back: float) -> list[Room]:
    """Rooms on one side of the hall; some have another room behind them, away from the hall (at y = `back`)."""
    rooms = []
    x = 0.0
    while x < width:
        wide = dice.uniform(2.6, 5.2)
        if width - x - wide < 2.6:
            wide = min(width - x, 5.4)
        if width - x - wide < 2.0:
            wide = width - x
        if y1 - y0 > 4.0 and dice.chance(0.35):
            cut = dice.uniform(1.7, 2.2)
            wall = y1 - cut if back == y1 else y0 + cut
            rooms += [Room("?", floor, x, y0, x + wide, wall), Room("?", floor, x, wall, x + wide, y1)]
        else:
            rooms.append(Room("?", floor, x, y0, x + wide, y1))
        x += wide
    return rooms


def _furnished(dice: Dice, room: Room, decks: dict[str, list[str]]) -> Room:
    """The room with a purpose that fits its size."""
    if room.kind != "?":
        return room
    letters = _LARGE if room.area >= 17 else _MEDIUM if room.area >= 10 else _SMALL
    if not decks[letters]:
        decks[letters] = dice.shuffled(letters)
    return replace(room, kind=decks[letters].pop())


def _doors(dice: Dice, rooms: Sequence[Room], first: int) -> list[Door]:
    """Doors of the floor whose rooms begin at `first`: as chance has it, then more until all rooms are joined."""
    pairs = combinations(range(first, len(rooms)), 2)
    walls = dice.shuffled([(a, b, wall) for a, b in pairs if (wall := _shared(rooms[a], rooms[b]))])
    wanted = [(a, b, wall) for a, b, wall in walls if dice.chance(_likely(rooms[a].kind, rooms[b].kind))]
    group = {room: room for room in range(first, len(rooms))}
    doors = []
    for a, b, wall in wanted + [wall for wall in walls if wall not in wanted]:
        if (a, b, wall) in wanted or group[a] != group[b]:
            direction, across, low, high = wall
            # Stairs are open to the hall over most of its width.
            stairs = "s" in (rooms[a].kind, rooms[b].kind)
            along, width = ((low + high) / 2, 1.7) if stairs else (dice.uniform(low + 0.65, high - 0.65), 1.1)
            x, y = (along, across) if direction == "x" else (across, along)
            doors.append(Door((a, b), x, y, direction, width))
            group = {room: group[a] if g == group[b] else g for room, g in group.items()}
    return doors


def _likely(a: str, b: str) -> float:
    """How likely two rooms with a common wall have a door."""
    to_hall, elsewhere = (1.0, 0.0) if "s" in (a, b) else (1.0, 0.2) if "e" in (a, b) else (0.85, 0.4)
    return to_hall if "h" in (a, b) else elsewhere


def _shared(a: Room, b: Room) -> tuple[str, float, float, float] | None:
    """The wall two rooms share: its direction, its place across, and its two ends along; None if too short."""
    across_x, across_y = (a.x0, a.x1, b.x0, b.x1), (a.y0, a.y1, b.y0, b.y1)
    for wall, (a0, a1, b0, b1), along in (("x", across_y, across_x), ("y", across_x, across_y)):
        low, high = max(along[0], along[2]), min(along[1], along[3])
        for across, other in ((a1, b0), (a0, b1)):
            if abs(across - other) < 1e-9 and high - low >= _SHARED_WALL:
                return wall, across, low, high
    return None
