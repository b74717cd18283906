"""Floor plans: a hall with rooms on both sides as rectangles, the doors between them, and stairs to a second floor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from apil.r2r.houses_dice import Dice

STOREY = 2.8
"""Metres from one floor to the next."""
ROOM_NAMES = {
    "a": "bathroom",
    "b": "bedroom",
    "c": "closet",
    "d": "dining room",
    "e": "entryway",
    "f": "family room",
    "h": "hallway",
    "i": "library",
    "j": "laundry room",
    "k": "kitchen",
    "l": "living room",
    "n": "lounge",
    "o": "office",
    "r": "game room",
    "s": "stairs",
    "w": "gym",
}
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
    stairs: tuple[int, int] | None
    """The two rooms, below and above, that the stairs join; None in a house of one floor."""

    def doors_of(self, room: int) -> list[Door]:
        """The doors of a room."""
        return [door for door in self.doors if room in door.rooms]


def draw_plan(dice: Dice) -> Plan:
    """A house of one floor, or (two in five) of two."""
    floors = 2 if dice.chance(0.4) else 1
    width, depth, hall = dice.uniform(13.5, 18.5), dice.uniform(10.0, 12.5), dice.uniform(1.8, 2.2)
    south = dice.uniform(0.42, 0.58) * (depth - hall)
    decks = {letters: _deck(dice, letters) for letters in (_LARGE, _MEDIUM, _SMALL)}
    rooms: list[Room] = []
    doors: list[Door] = []
    stairs = []
    for floor in range(floors):
        first = len(rooms)
        rooms += _strip(floor, floors, width, south, south + hall)
        stairs += [first + i for i, room in enumerate(rooms[first:]) if room.kind == "s"]
        for low, high in ((0.0, south), (south + hall, depth)):
            rooms += _side(dice, floor, width, low, high, back=high if low else low)
        rooms[first:] = [_furnished(dice, room, decks) for room in rooms[first:]]
        doors += _doors(dice, rooms, first)
    return Plan(tuple(rooms), tuple(doors), (stairs[0], stairs[1]) if floors == 2 else None)


def _deck(dice: Dice, letters: str) -> list[str]:
    return dice.shuffled(letters)


def _strip(floor: int, floors: int, width: float, y0: float, y1: float) -> list[Room]:
    """The middle of a floor from west to east: stairs if there are any, the hall, an entry on the ground floor."""
    west = _STAIRS_LENGTH if floors == 2 else 0.0
    east = width - (2.4 if floor == 0 else 0.0)
    strip = [Room("h", floor, west, y0, east, y1)]
    if floors == 2:
        strip.append(Room("s", floor, 0.0, y0, west, y1))
    if floor == 0:
        strip.append(Room("e", floor, east, y0, width, y1))
    return strip


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
        decks[letters] = _deck(dice, letters)
    return replace(room, kind=decks[letters].pop())


def _doors(dice: Dice, rooms: Sequence[Room], first: int) -> list[Door]:
    """Doors of the floor whose rooms begin at `first`: as chance has it, then more until all rooms are joined."""
    walls = [
        (a, b, *found)
        for a in range(first, len(rooms))
        for b in range(a + 1, len(rooms))
        if (found := _shared(rooms[a], rooms[b])) is not None
    ]
    group = {room: room for room in range(first, len(rooms))}
    doors = []
    order = dice.shuffled(walls)
    wanted = [wall for wall in order if dice.chance(_likely(rooms[wall[0]].kind, rooms[wall[1]].kind))]
    for a, b, wall, across, low, high in wanted + [wall for wall in order if wall not in wanted]:
        joined = group[a] == group[b]
        if (a, b, wall, across, low, high) not in wanted and joined:
            continue
        doors.append(_door(dice, (a, b), rooms, wall, across, low, high))
        group = {room: group[a] if g == group[b] else g for room, g in group.items()}
    return doors


def _likely(a: str, b: str) -> float:
    """How likely two rooms with a common wall have a door."""
    if "s" in (a, b):
        return 1.0 if "h" in (a, b) else 0.0
    if "e" in (a, b):
        return 1.0 if "h" in (a, b) else 0.2
    return 0.85 if "h" in (a, b) else 0.4


def _shared(a: Room, b: Room) -> tuple[str, float, float, float] | None:
    """The wall two rooms share: its direction, its place across, and its two ends along; None if too short."""
    for wall, (a0, a1, b0, b1), (low_a, high_a, low_b, high_b) in (
        ("x", (a.y0, a.y1, b.y0, b.y1), (a.x0, a.x1, b.x0, b.x1)),
        ("y", (a.x0, a.x1, b.x0, b.x1), (a.y0, a.y1, b.y0, b.y1)),
    ):
        low, high = max(low_a, low_b), min(high_a, high_b)
        for across, other in ((a1, b0), (a0, b1)):
            if abs(across - other) < 1e-9 and high - low >= _SHARED_WALL:
                return wall, across, low, high
    return None


def _door(
    dice: Dice, pair: tuple[int, int], rooms: Sequence[Room], wall: str, across: float, low: float, high: float
) -> Door:
    """A door somewhere in a shared wall; the stairs are open to the hall over most of its width."""
    if "s" in (rooms[pair[0]].kind, rooms[pair[1]].kind):
        along, width = (low + high) / 2, 1.7
    else:
        along, width = dice.uniform(low + 0.65, high - 0.65), 1.1
    x, y = (along, across) if wall == "x" else (across, along)
    return Door(pair, x, y, wall, width)
