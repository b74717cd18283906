"""Made-up houses in the public formats of R2R: to try, to test and to teach an agent where there are no data.

A house is a pure function of (seed, its number); what is written depends on (houses, seed) alone.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from apil.errors import ApilError
from apil.r2r.houses_captions import Sight, captions, object_list, sights
from apil.r2r.houses_dice import Dice
from apil.r2r.houses_graph import EYE, Graph, draw_graph
from apil.r2r.houses_language import STYLES, instruct
from apil.r2r.houses_paths import describe_path, draw_paths
from apil.r2r.houses_plan import ROOM_NAMES, draw_plan
from apil.r2r.houses_things import Thing, place_things

SPLITS = ("train", "val_seen", "val_unseen")
_UNSEEN_SHARE = 0.2
_TRAIN_PATHS, _SEEN_PATHS, _UNSEEN_PATHS = 120, 15, 70


@dataclass(frozen=True)
class House:
    """A house and all that can be seen in it."""

    name: str
    """The name of its scan."""
    ids: tuple[str, ...]
    """32 hexadecimal digits for each viewpoint."""
    graph: Graph
    things: tuple[Thing, ...]
    seen: tuple[tuple[Sight, ...], ...]
    """What is in sight of each viewpoint, nearest first."""


def build_house(seed: int, number: int) -> House:
    """House `number` of a seed."""
    dice = Dice(seed, f"house {number}")
    plan = draw_plan(dice)
    graph = draw_graph(dice, plan)
    things = place_things(dice, plan)
    name = f"house{number:04}"
    ids = tuple(_digits(f"{seed}/{name}/{i}") for i in range(len(graph.points)))
    return House(name, ids, graph, things, tuple(tuple(sights(graph, things, i)) for i in range(len(ids))))


def raw_files(houses: int, seed: int, tell: Callable[[int], None]) -> Iterator[tuple[str, bytes]]:
    """The files of the raw layout one by one, by their path in it; `tell` hears how many houses are done."""
    if houses < 2:
        raise ApilError(f"houses is {houses}: give at least 2, since one is kept unseen for evaluation.")
    return _raw_files(houses, seed, tell)


def _raw_files(houses: int, seed: int, tell: Callable[[int], None]) -> Iterator[tuple[str, bytes]]:
    unseen = max(1, round(houses * _UNSEEN_SHARE))
    splits: dict[str, list[dict[str, Any]]] = {split: [] for split in SPLITS}
    rooms = {}
    for number in range(houses):
        house = build_house(seed, number)
        rooms[house.name] = _rooms(house)
        yield f"connectivity/{house.name}_connectivity.json", _json(_connectivity(house))
        yield from _sight_files(house, seed)
        for split, entries in _annotations(house, seed, number >= houses - unseen).items():
            splits[split] += entries
        tell(number + 1)
    yield "connectivity/scans.txt", "".join(f"{name}\n" for name in rooms).encode()
    yield "derived/rooms.json", _json(rooms)
    yield "rooms/region_label.txt", "".join(f"{letter},{name}\n" for letter, name in ROOM_NAMES.items()).encode()
    for split, entries in splits.items():
        numbered = [{**entry, "path_id": i} for i, entry in enumerate(entries)]
        yield f"annotations/R2R_{split}.json", _json(numbered)


def _digits(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _connectivity(house: House) -> list[dict[str, Any]]:
    """The navigation graph, an entry for each viewpoint."""
    graph = house.graph
    count = len(graph.points)
    entries = []
    for i, point in enumerate(graph.points):
        walkable = set(graph.neighbours[i])
        # Camera axes: x to the east, y down, looking north.
        pose = [1, 0, 0, round(point.x, 5), 0, 0, 1, round(point.y, 5), 0, -1, 0, round(point.z, 5), 0, 0, 0, 1]
        entries.append(
            {
                "image_id": house.ids[i],
                "pose": pose,
                "included": True,
                "visible": [
                    j != i and (j in walkable or any(graph.sees(i, other.x, other.y, room) for room in other.rooms))
                    for j, other in enumerate(graph.points)
                ],
                "unobstructed": [j in walkable for j in range(count)],
                "height": EYE,
            }
        )
    return entries


def _sight_files(house: House, seed: int) -> Iterator[tuple[str, bytes]]:
    """Captions, their summaries and the things nearby, by viewpoint."""
    dice = Dice(seed, f"captions of {house.name}")
    texts = [captions(dice, house.graph, seen, i) for i, seen in enumerate(house.seen)]
    file = f"{house.name}.json"
    yield f"captions/blip2_24view/{file}", _json({vp: text[0] for vp, text in zip(house.ids, texts, strict=True)})
    yield f"captions/gpt35_8dir_summary/{file}", _json({vp: text[1] for vp, text in zip(house.ids, texts, strict=True)})
    nearby = {vp: object_list(seen) for vp, seen in zip(house.ids, house.seen, strict=True)}
    yield f"objects/navgpt_objects_list/{file}", _json(nearby)


def _rooms(house: House) -> dict[str, list[str | int]]:
    """The letter and the number of the room of each viewpoint."""
    labels = [point.rooms[0] for point in house.graph.points]
    return {vp: [house.graph.plan.rooms[room].kind, room] for vp, room in zip(house.ids, labels, strict=True)}


def _annotations(house: House, seed: int, unseen: bool) -> dict[str, list[dict[str, Any]]]:
    """Paths with three instructions each, by split."""
    dice = Dice(seed, f"paths of {house.name}")
    if unseen:
        return {"val_unseen": [_annotation(dice, house, path) for path in draw_paths(dice, house.graph, _UNSEEN_PATHS)]}
    paths = draw_paths(dice, house.graph, _TRAIN_PATHS + _SEEN_PATHS)
    # A small house has fewer paths than wanted; the same share of them is held out.
    held_out = len(paths) * _SEEN_PATHS // (_TRAIN_PATHS + _SEEN_PATHS)
    entries = [_annotation(dice, house, path) for path in paths]
    return {"val_seen": entries[:held_out], "train": entries[held_out:]}


def _annotation(dice: Dice, house: House, path: tuple[int, ...]) -> dict[str, Any]:
    heading = round(dice.uniform(0, 2 * math.pi), 3)
    legs, end = describe_path(house.graph, house.seen, path, heading)
    lengths = [house.graph.length(a, b) for a, b in pairwise(path)]
    return {
        "distance": round(sum(lengths), 2),
        "scan": house.name,
        "path_id": 0,
        "path": [house.ids[i] for i in path],
        "heading": heading,
        "instructions": [instruct(dice, legs, end, style) for style in STYLES],
    }
