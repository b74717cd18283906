"""Instructions in English for a path: turns, landmarks, rooms and where to stop, in several ways of speaking."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from apil.r2r.houses_dice import Dice
from apil.r2r.houses_paths import End, Leg
from apil.r2r.houses_plan import ROOM_NAMES, WORDS
from apil.r2r.houses_things import Thing

STRAIGHT, SLIGHT, SHARP, AROUND = (math.radians(angle) for angle in (30, 60, 125, 150))
"""A turn is called slight from the first angle on, a plain turn from the second, sharp from the third, around from
the fourth."""


@dataclass(frozen=True)
class Style:
    """The probabilities that a speaker mentions a detail where there is one; `houses.toml` says which each is."""

    turns: float
    rooms: float
    landmarks: float
    straight: float
    sides: float


STYLES = tuple(Style(**style) for style in WORDS["styles"])
"""One who gives directions, one who points at things, one who tells it all."""
PLAIN = Style(turns=1.0, rooms=0.0, landmarks=0.0, straight=1.0, sides=0.0)
"""Every turn and nothing else, a sentence for each step."""


def instruct(dice: Dice, legs: Sequence[Leg], end: End, style: Style) -> str:
    """An instruction for the path. What it says is true of the path; what it leaves out is up to the style."""
    clauses = [_first(dice, legs[0], style)]
    for before, leg in pairwise(legs):
        if not _on_stairs(leg):
            clauses.append(_later(dice, leg, style))
        elif not _on_stairs(before):
            clauses.append(_stairs(dice, leg))
    clauses.append(_stop(dice, end, style))
    return _sentences(dice, [clause for clause in clauses if clause], style)


def turn_words(dice: Dice, turn: float, on: bool) -> str:
    """A turn of `turn` radians clockwise in words; `on`: the walker is under way."""
    kind = bisect_left((STRAIGHT, SLIGHT, SHARP, AROUND), abs(turn))
    words: list[str] = WORDS["turns"][kind] if kind or on else WORDS["set_out"]
    return dice.choose(words).format(side="right" if turn > 0 else "left")


def _first(dice: Dice, leg: Leg, style: Style) -> str:
    """Never without a direction: a turn, or something that can be seen on one side alone."""
    if _on_stairs(leg):
        return f"{turn_words(dice, leg.turn, on=False)} and {_stairs(dice, leg)}"
    mark = leg.towards if leg.towards and dice.chance(style.landmarks) else None
    turn = "" if mark and not dice.chance(style.turns * 0.6) else turn_words(dice, leg.turn, on=False)
    parts = [turn, _towards(dice, mark) if mark else ""]
    if leg.enters and dice.chance(style.rooms):
        parts.append(_enter(dice, leg, leaving=True))
    elif not mark and dice.chance(style.landmarks):
        parts.append(_past(dice, leg, style))
    return " and ".join(filter(None, parts))


def _later(dice: Dice, leg: Leg, style: Style) -> str:
    """The clause for a step under way; '' for none."""
    straight = abs(leg.turn) <= STRAIGHT
    room = leg.enters if leg.enters and dice.chance(style.rooms) else None
    if straight and not room and not dice.chance(style.straight):
        return ""
    if not straight and leg.choices > 1 and room and dice.chance(style.sides) and abs(leg.turn) <= SHARP:
        side = "right" if leg.turn > 0 else "left"
        name = _room(dice, room)
        return dice.choose((f"enter the {name} on the {side}", f"take the door on the {side} into the {name}"))
    mark = leg.towards if leg.towards and dice.chance(style.landmarks) else None
    turn = "" if straight and (room or mark) else turn_words(dice, leg.turn, on=True)
    if not straight and not dice.chance(style.turns) and (room or mark):
        turn = ""
    if room:
        move = _enter(dice, leg, leaving=False)
    elif mark:
        move = _towards(dice, mark)
    else:
        move = _past(dice, leg, style) if dice.chance(style.landmarks) else ""
    if straight and move and not room:
        turn = ""
    return " and ".join(filter(None, (turn, move)))


def _enter(dice: Dice, leg: Leg, leaving: bool) -> str:
    assert leg.enters is not None
    name = _room(dice, leg.enters)
    if leg.enters == "s":
        return dice.choose((f"go to the {name}", f"walk to the {name}"))
    if leaving and leg.room != leg.enters and dice.chance(0.4):
        return dice.choose(("leave", "exit", "walk out of")) + f" the {_room(dice, leg.room)} into the {name}"
    verb = dice.choose(("enter", "go into", "walk into", "step into", "go through the door into", "head into"))
    return f"{verb} the {name}"


def _towards(dice: Dice, thing: Thing) -> str:
    return f"{dice.choose(('walk towards', 'head for', 'go towards', 'walk up to'))} the {_thing(dice, thing)}"


def _past(dice: Dice, leg: Leg, style: Style) -> str:
    if not leg.passed:
        return ""
    thing, side = leg.passed
    where = f" on your {side}" if dice.chance(style.sides) else ""
    return f"{dice.choose(('walk past', 'go past', 'pass', 'walk by'))} the {_thing(dice, thing)}{where}"


def _on_stairs(leg: Leg) -> bool:
    return abs(leg.climb) > 0.5


def _stairs(dice: Dice, leg: Leg) -> str:
    way = "up" if leg.climb > 0 else "down"
    return f"{dice.choose(('go', 'walk', 'head'))} {way} the {dice.choose(('stairs', 'steps'))}"


def _stop(dice: Dice, end: End, style: Style) -> str:
    """Where to stop: a thing nearby, the doorway or the room."""
    verb = dice.choose(("stop", "wait", "stop and wait"))
    room = _room(dice, end.room)
    if end.in_door and dice.chance(0.6):
        return dice.choose((f"{verb} in the doorway of the {room}", f"{verb} at the door to the {room}"))
    if not end.near or not dice.chance(0.55 + 0.4 * style.landmarks):
        return f"{verb} at the {room}" if end.room == "s" else f"{verb} in the {room}"
    thing = _thing(dice, end.near)
    by = dice.choose(("next to", "by", "near", "beside", "in front of"))
    if end.in_door or end.room == "s" or not dice.chance(style.rooms * 0.5):
        return f"{verb} {by} the {thing}"
    return dice.choose((f"{verb} {by} the {thing} in the {room}", f"in the {room} {verb} {by} the {thing}"))


def _thing(dice: Dice, thing: Thing) -> str:
    """A thing in one of its names, mostly with its look."""
    noun = _name(dice, thing.noun)
    return f"{thing.look} {noun}" if thing.look and dice.chance(0.7) else noun


def _room(dice: Dice, kind: str) -> str:
    return _name(dice, ROOM_NAMES[kind])


def _name(dice: Dice, noun: str) -> str:
    names: list[str] = WORDS["synonyms"].get(noun, [noun])
    return dice.choose(names)


def _sentences(dice: Dice, clauses: Sequence[str], style: Style) -> str:
    """Clauses as sentences: one each, or strung together by commas and 'then'."""
    text = clauses[0].capitalize() if dice.chance(0.8) else clauses[0]
    for clause in clauses[1:]:
        link = ". " if style is PLAIN or dice.chance(0.5) else dice.choose((", then ", ", ", " and then "))
        text += link + (clause.capitalize() if link == ". " and dice.chance(0.8) else clause)
    return text + ("." if dice.chance(0.85) else "")
