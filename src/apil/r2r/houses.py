"""Made-up houses in the formats of R2R, for use without its data: a house is a pure function of (seed, number)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from apil.r2r.houses_captions import Sight, captions, object_list, sights
from apil.r2r.houses_dice import Dice
from apil.r2r.houses_graph import EYE, Graph, draw_graph
from apil.r2r.houses_language import STYLES, instruct
from apil.r2r.houses_paths import describe_path, draw_paths
from apil.r2r.houses_plan import ROOM_NAMES, draw_plan
from apil.r2r.houses_things import Thing, place_things
from apil.r2r.layout import BLIP, LISTS, REQUIRED_SPLITS, SUMMARY

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
    count = range(len(graph.points))
    ids = tuple(hashlib.blake2b(f"{seed}/{name}/{i}".encode(), digest_size=16).hexdigest() for i in count)
    return House(name, ids, graph, things, tuple(tuple(sights(graph, things, i)) for i in count))


def raw_files(houses: int, seed: int, tell: Callable[[int], None]) -> Iterator[tuple[str, bytes]]:
    """The files of the raw layout one by one, by their path in it; `tell` gets the number of houses that are done."""
    unseen = max(1, round(houses * _UNSEEN_SHARE))
    splits: dict[str, list[dict[str, Any]]] = {split: [] for split in REQUIRED_SPLITS}
    rooms = {}
    for number in range(houses):
        house = build_house(seed, number)
        labels = (point.rooms[0] for point in house.graph.points)
        kinds = [(house.graph.plan.rooms[room].kind, room) for room in labels]
        rooms[house.name] = dict(zip(house.ids, kinds, strict=True))
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


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _connectivity(house: House) -> list[dict[str, Any]]:
    """The navigation graph, an entry for each viewpoint."""
    graph, entries = house.graph, []
    for i, point in enumerate(graph.points):
        walkable = [j in graph.neighbours[i] for j in range(len(graph.points))]
        visible = [
            j != i and (walkable[j] or any(graph.sees(i, other.x, other.y, room) for room in other.rooms))
            for j, other in enumerate(graph.points)
        ]
        # Camera axes: x to the east, y down, looking north.
        pose = [1, 0, 0, round(point.x, 5), 0, 0, 1, round(point.y, 5), 0, -1, 0, round(point.z, 5), 0, 0, 0, 1]
        about = {"image_id": house.ids[i], "pose": pose, "included": True, "visible": visible}
        entries.append({**about, "unobstructed": walkable, "height": EYE})
    return entries


def _sight_files(house: House, seed: int) -> Iterator[tuple[str, bytes]]:
    """Captions, their summaries and the things nearby, by viewpoint."""
    dice = Dice(seed, f"captions of {house.name}")
    rows, sums = zip(*(captions(dice, house.graph, seen, i) for i, seen in enumerate(house.seen)), strict=True)
    tables = (rows, sums, map(object_list, house.seen))
    for folder, of_each in zip((BLIP, SUMMARY, LISTS), tables, strict=True):
        yield f"{folder}/{house.name}.json", _json(dict(zip(house.ids, of_each, strict=True)))


def _annotations(house: House, seed: int, unseen: bool) -> dict[str, list[dict[str, Any]]]:
    """Paths with three instructions each, by split."""
    dice = Dice(seed, f"paths of {house.name}")
    paths = draw_paths(dice, house.graph, _UNSEEN_PATHS if unseen else _TRAIN_PATHS + _SEEN_PATHS)
    entries = []
    for path in paths:
        heading = round(dice.uniform(0, 2 * math.pi), 3)
        legs, end = describe_path(house.graph, house.seen, path, heading)
        distance = round(sum(house.graph.length(a, b) for a, b in pairwise(path)), 2)
        about = {"distance": distance, "scan": house.name, "path_id": 0, "path": [house.ids[i] for i in path]}
        instructions = [instruct(dice, legs, end, style) for style in STYLES]
        entries.append({**about, "heading": heading, "instructions": instructions})
    if unseen:
        return {"val_unseen": entries}
    # A small house has fewer paths than wanted; the same share of them is held out.
    held_out = len(paths) * _SEEN_PATHS // (_TRAIN_PATHS + _SEEN_PATHS)
    return {"val_seen": entries[:held_out], "train": entries[held_out:]}
