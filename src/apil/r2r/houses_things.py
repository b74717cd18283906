"""What stands in the rooms: furniture by kind of room, each piece with a colour or a material and a place."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from apil.r2r.houses_dice import Dice
from apil.r2r.houses_plan import WORDS, Plan, Room

LOOKS: dict[str, list[str]] = {noun: kind["looks"] for kind in WORDS["things"] for noun in kind["nouns"]}
"""The colours, materials or sizes a thing comes in; '' alone if there is nothing to say."""
HEIGHTS = {noun: row for row, nouns in WORDS["heights"].items() for noun in nouns}
"""In which of the three captions of a direction a thing appears; 'middle' if not given."""


@dataclass(frozen=True)
class Thing:
    """A piece of furniture in its place."""

    noun: str
    """What it is, as in `LOOKS`."""
    look: str
    """Its colour, material or size; '' if there is nothing to say."""
    room: int
    """Index of its room."""
    x: float
    y: float
    """Metres."""


def place_things(dice: Dice, plan: Plan) -> tuple[Thing, ...]:
    """Furniture for every room, about one piece for two square metres, clear of doors and of each other."""
    return tuple(thing for index, room in enumerate(plan.rooms) for thing in _furnish(dice, plan, index, room))


def _furnish(dice: Dice, plan: Plan, index: int, room: Room) -> Iterator[Thing]:
    own = dice.shuffled(WORDS["furniture"][room.kind])
    count = min(max(3, round(room.area / 2.2)), 13 if room.kind == "h" else 8)
    # Two thirds of it says what the room is for, the rest could stand anywhere.
    nouns = own[: max(2, round(count * 0.66))]
    nouns += [noun for noun in dice.shuffled(WORDS["furniture"]["anywhere"]) if noun not in nouns][: count - len(nouns)]
    taken = [(door.x, door.y) for door in plan.doors_of(index)]
    for noun in nouns:
        if spot := _spot(dice, room, taken):
            taken.append(spot)
            yield Thing(noun, dice.choose(LOOKS[noun]), index, *spot)


def _spot(dice: Dice, room: Room, taken: list[tuple[float, float]]) -> tuple[float, float] | None:
    """A free place, along a wall three times out of four; None if chance finds none."""
    for _ in range(8):
        x, y = dice.uniform(room.x0 + 0.3, room.x1 - 0.3), dice.uniform(room.y0 + 0.3, room.y1 - 0.3)
        if dice.chance(0.75):
            side = dice.below(4)
            x = (x, x, room.x0 + 0.3, room.x1 - 0.3)[side]
            y = (room.y0 + 0.3, room.y1 - 0.3, y, y)[side]
        if all(math.dist((x, y), other) >= 0.85 for other in taken):
            return x, y
    return None
