"""What a camera would say of each direction: things, doorways and rooms in sight, with omissions and mistakes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from apil.r2r.houses_dice import Dice
from apil.r2r.houses_graph import Graph
from apil.r2r.houses_plan import ROOM_NAMES, WORDS
from apil.r2r.houses_things import HEIGHTS, LOOKS, Thing
from apil.r2r.layout import DIRECTIONS

_FAR = 7.0
_NEAR = 3.0
_OMITTED = 0.12
_WRONG_LOOK = 0.06
_WRONG_ROOM = 0.04


@dataclass(frozen=True)
class Sight:
    """Something seen from a viewpoint."""

    thing: Thing | None
    """A thing, or None for a doorway."""
    room: str
    """The kind of room the thing stands in, or that lies behind the doorway."""
    heading: float
    """Radians clockwise from +y."""
    distance: float
    """Metres."""


def sights(graph: Graph, things: Sequence[Thing], viewpoint: int) -> list[Sight]:
    """All that is in sight of a viewpoint, nearest first."""
    here, plan = graph.points[viewpoint], graph.plan
    floor = plan.rooms[here.rooms[0]].floor
    found: list[tuple[float, float, Thing | None, int]] = [
        (thing.x, thing.y, thing, thing.room)
        for thing in things
        if plan.rooms[thing.room].floor == floor and graph.sees(viewpoint, thing.x, thing.y, thing.room)
    ]
    for room in here.rooms:
        doors = [door for door in plan.doors_of(room) if set(door.rooms) != set(here.rooms)]
        found += [(door.x, door.y, None, door.beyond(room)) for door in doors]
    seen = [
        Sight(thing, plan.rooms[room].kind, math.atan2(x - here.x, y - here.y), math.dist((here.x, here.y), (x, y)))
        for x, y, thing, room in found
    ]
    return sorted((s for s in seen if s.distance <= _FAR), key=lambda s: s.distance)


def turned(heading: float) -> float:
    """The same angle between -pi and pi."""
    return math.remainder(heading, 2 * math.pi)


def captions(dice: Dice, graph: Graph, seen: Sequence[Sight], viewpoint: int) -> tuple[list[str], list[str]]:
    """Two texts for each direction: the captions of its three rows, and a sentence that sums them up."""
    rows, sums = [], []
    for direction in range(DIRECTIONS):
        centre = direction * 2 * math.pi / DIRECTIONS
        inside = [s for s in seen if abs(turned(s.heading - centre)) <= math.pi / DIRECTIONS]
        room = _room_towards(graph, viewpoint, centre)
        rows.append(_three_rows(dice, inside, room))
        sums.append(_summary(dice, inside, room))
    return rows, sums


def object_list(seen: Sequence[Sight]) -> list[dict[str, dict[str, float]]]:
    """For each direction the things within three metres: name to heading in degrees and distance in metres."""
    directions: list[dict[str, dict[str, float]]] = [{} for _ in range(DIRECTIONS)]
    for s in seen:
        for direction, listed in enumerate(directions):
            off = turned(s.heading - direction * 2 * math.pi / DIRECTIONS)
            if s.thing is not None and s.distance <= _NEAR and abs(off) <= math.pi / 6:
                degrees = 360 / DIRECTIONS * direction + math.degrees(off)
                listed.setdefault(s.thing.noun, {"heading": round(degrees, 2), "distance": round(s.distance, 2)})
    return directions


def _room_towards(graph: Graph, viewpoint: int, heading: float) -> str:
    """The kind of room one looks into; from a door it depends on the side."""
    here = graph.points[viewpoint]
    x, y = here.x + 0.6 * math.sin(heading), here.y + 0.6 * math.cos(heading)
    rooms = [graph.plan.rooms[room] for room in here.rooms]
    return next((room.kind for room in rooms if room.holds(x, y)), rooms[0].kind)


def _three_rows(dice: Dice, inside: Sequence[Sight], room: str) -> str:
    by_row: dict[str, list[str]] = {"down": [], "middle": [], "top": []}
    for s in inside:
        if not dice.chance(_OMITTED):
            by_row["middle" if s.thing is None else HEIGHTS.get(s.thing.noun, "middle")].append(_phrase(dice, s))
    a_room = _article(_room_name(dice, room))
    bare = {row: dice.choose(bare_words).format(room=a_room) for row, bare_words in WORDS["bare"].items()}
    for row, phrases in by_row.items():
        if phrases:
            listed = _enumerated(phrases[:4])
            bare[row] = dice.choose((f"{a_room} with {listed}", f"{listed} in {a_room}", listed))
    return "\n".join(f"{row}: {text}" for row, text in bare.items())


def _summary(dice: Dice, inside: Sequence[Sight], room: str) -> str:
    name = _article(_room_name(dice, room))
    phrases = [_phrase(dice, s) for s in inside if not dice.chance(_OMITTED)][:5]
    if not phrases:
        return dice.choose((f"A plain wall of {name}.", f"An empty corner of {name}."))
    listed = _enumerated(phrases)
    return dice.choose((f"{name} with {listed}.", f"{listed} in {name}.")).capitalize()


def _phrase(dice: Dice, s: Sight) -> str:
    """A sight in words, now and then mistaken."""
    if s.thing is None:
        room = _article(_room_name(dice, s.room)) if s.room != "s" else "stairs"
        return dice.choose((f"a doorway to {room}", f"an open door leading to {room}", f"a door with {room} behind it"))
    look = dice.choose(LOOKS[s.thing.noun]) if dice.chance(_WRONG_LOOK) else s.thing.look
    return _article(f"{look} {s.thing.noun}".strip())


def _room_name(dice: Dice, kind: str) -> str:
    if dice.chance(_WRONG_ROOM):
        kind = dice.choose(sorted(ROOM_NAMES))
    return "staircase" if kind == "s" else ROOM_NAMES[kind]


def _article(noun: str) -> str:
    """The noun with 'a' or 'an'; 'weights' goes without."""
    return noun if noun == "weights" else f"{'an' if noun[0] in 'aeio' else 'a'} {noun}"


def _enumerated(phrases: Sequence[str]) -> str:
    """'x', 'x and y', 'x, y and z'."""
    return " and ".join([", ".join(phrases[:-1]), phrases[-1]] if len(phrases) > 1 else phrases)
