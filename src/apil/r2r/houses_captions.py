"""What a camera would say of each direction: things, doorways and rooms in sight, with omissions and mistakes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from apil.r2r.houses_dice import Dice
from apil.r2r.houses_graph import Graph
from apil.r2r.houses_plan import ROOM_NAMES
from apil.r2r.houses_things import HEIGHTS, LOOKS, Thing

DIRECTIONS = 8
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
    here = graph.points[viewpoint]
    plan = graph.plan
    floor = plan.rooms[here.rooms[0]].floor
    found = []
    for thing in things:
        if plan.rooms[thing.room].floor == floor and graph.sees(viewpoint, thing.x, thing.y, thing.room):
            found.append(_sight(here.x, here.y, thing.x, thing.y, thing, plan.rooms[thing.room].kind))
    for room in here.rooms:
        for door in plan.doors_of(room):
            if set(door.rooms) != set(here.rooms):
                found.append(_sight(here.x, here.y, door.x, door.y, None, plan.rooms[door.beyond(room)].kind))
    return sorted((s for s in found if s.distance <= _FAR), key=lambda s: s.distance)


def _sight(x: float, y: float, to_x: float, to_y: float, thing: Thing | None, room: str) -> Sight:
    return Sight(thing, room, math.atan2(to_x - x, to_y - y), math.dist((x, y), (to_x, to_y)))


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
    name = _room_name(dice, room)
    a_room = article(name)
    bare = {
        "down": dice.choose(("a wooden floor", "a tiled floor", "a floor with a carpet", "the floor of a room")),
        "middle": dice.choose((f"a wall in {a_room}", f"the wall of {a_room}", f"part of {a_room}")),
        "top": dice.choose(("a white ceiling", "a ceiling with a light", "the upper part of a wall")),
    }
    return "\n".join(f"{row}: {_row(dice, by_row[row][:4], name, bare[row])}" for row in by_row)


def _row(dice: Dice, phrases: list[str], room: str, bare: str) -> str:
    if not phrases:
        return bare
    listed = enumerated(phrases)
    return dice.choose((f"{article(room)} with {listed}", f"{listed} in {article(room)}", listed))


def _summary(dice: Dice, inside: Sequence[Sight], room: str) -> str:
    name = article(_room_name(dice, room))
    phrases = [_phrase(dice, s) for s in inside if not dice.chance(_OMITTED)][:5]
    if not phrases:
        return dice.choose((f"A plain wall of {name}.", f"An empty corner of {name}."))
    return _capital(dice.choose((f"{name} with {enumerated(phrases)}.", f"{enumerated(phrases)} in {name}.")))


def _phrase(dice: Dice, s: Sight) -> str:
    """A sight in words, now and then mistaken."""
    if s.thing is None:
        room = article(_room_name(dice, s.room)) if s.room != "s" else "stairs"
        return dice.choose((f"a doorway to {room}", f"an open door leading to {room}", f"a door with {room} behind it"))
    look = dice.choose(LOOKS[s.thing.noun]) if dice.chance(_WRONG_LOOK) else s.thing.look
    return article(f"{look} {s.thing.noun}".strip())


def _room_name(dice: Dice, kind: str) -> str:
    if dice.chance(_WRONG_ROOM):
        kind = dice.choose(sorted(ROOM_NAMES))
    return "staircase" if kind == "s" else ROOM_NAMES[kind]


def article(noun: str) -> str:
    """The noun with 'a' or 'an'; 'weights' goes without."""
    return noun if noun == "weights" else f"{'an' if noun[0] in 'aeio' else 'a'} {noun}"


def enumerated(phrases: Sequence[str]) -> str:
    """'x', 'x and y', 'x, y and z'."""
    return " and ".join([", ".join(phrases[:-1]), phrases[-1]] if len(phrases) > 1 else phrases)


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
