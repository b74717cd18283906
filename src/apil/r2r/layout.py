"""The public files of Room-to-Room (docs/guide/r2r.md), read into plain records, each file checked by itself."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apil.errors import ApilError
from apil.r2r.sources import Source

REQUIRED_SPLITS = ("train", "val_seen", "val_unseen")
SPLITS = (*REQUIRED_SPLITS, "test")
DIRECTIONS = 8
"""Direction i of a panorama is centred on heading 45 i degrees."""
_LARGEST = float(np.finfo(np.float32).max)
"""Angles are kept in single precision."""
BLIP, SUMMARY = "captions/blip2_24view", "captions/gpt35_8dir_summary"
BOXES, LISTS = "objects/reverie_bbox", "objects/navgpt_objects_list"

Tell = Callable[[str, int, int], None]
"""What is being done, how many of how many are done."""


@dataclass(frozen=True)
class Graph:
    """The navigation graph of a scan, included viewpoints only."""

    file: str
    """Where it was read."""
    viewpoints: tuple[str, ...]
    """Their ids, in the order of the file; n of them."""
    position: NDArray[np.float64]
    """[n, 3] metres."""
    open: NDArray[np.bool_]
    """[n, n]: an open edge; symmetric."""
    excluded: frozenset[str]
    """Viewpoints of the file that do not exist for us."""


@dataclass(frozen=True)
class Annotation:
    """An annotated path and its instructions."""

    path_id: str
    scan: str
    path: tuple[str, ...]
    """Viewpoints; the last is the goal, except in the test split."""
    heading: float
    """Radians, clockwise from +y."""
    instructions: tuple[str, ...]


@dataclass(frozen=True)
class Sight:
    """What can be seen from a viewpoint, by direction. Where a source is missing all 8 are empty."""

    captions: Sequence[Mapping[str, str]]
    """8 of {"middle" | "down" | "top": caption}."""
    summaries: Sequence[str]
    """8 sentences."""
    boxes: Sequence[Mapping[str, float]]
    """8 of {object name: area of its boxes in the views nearest to this direction}."""
    nearby: Sequence[Mapping[str, float]]
    """8 of {object name: metres}."""


@dataclass(frozen=True)
class Raw:
    """The raw files as records."""

    graphs: Mapping[str, Graph]
    """By scan, sorted."""
    splits: Mapping[str, tuple[Annotation, ...]]
    sights: Mapping[str, tuple[Sight, ...]]
    """By scan, in the order of its viewpoints."""
    rooms: Mapping[str, tuple[str, ...]]
    """Letter of each viewpoint, by scan; empty without room labels."""
    room_names: Mapping[str, str]
    """By letter."""
    glove: Mapping[str, NDArray[np.float32]]
    """[300] of each word; empty without embeddings."""


def read_layout(source: Source, tell: Tell) -> Raw:
    """Reads everything; the first problem is an error that names the file, the item and the remedy."""
    names = _scan_names(source)
    graphs = {scan: _graph(source, f"connectivity/{scan}_connectivity.json") for scan in names}
    there = [split for split in SPLITS if split in REQUIRED_SPLITS or f"annotations/R2R_{split}.json" in source]
    splits = {split: _annotations(source, split) for split in there}
    sights = {}
    for done, (scan, graph) in enumerate(graphs.items()):
        tell("reading", done, len(graphs))
        sights[scan] = _sights(source, scan, graph)
    rooms, room_names = _rooms(source, graphs)
    return Raw(graphs, splits, sights, rooms, room_names, _glove(source))


def _scan_names(source: Source) -> list[str]:
    """Every scan with a graph; those that scans.txt lists must be among them."""
    end = "_connectivity.json"
    found = [name.rpartition("/")[2].removesuffix(end) for name in source.under("connectivity") if name.endswith(end)]
    if "connectivity/scans.txt" in source:
        for scan in source.text("connectivity/scans.txt").split():
            if scan not in found:
                raise source.bad(f"connectivity/{scan}{end}", f"it is missing, but scans.txt lists scan '{scan}'")
    if not found:
        raise ApilError(f"{source.folder} has no connectivity/*{end}: download the graphs (docs/guide/r2r.md).")
    return found


def _graph(source: Source, file: str) -> Graph:
    entries = source.json(file, list)
    count = len(entries)
    with source.reading(file, "an entry"):
        ids = [str(entry["image_id"]) for entry in entries]
        pose = np.array([entry["pose"] for entry in entries], dtype=np.float64).reshape(count, 16)
        kept = np.flatnonzero([bool(entry["included"]) for entry in entries])
        unobstructed = np.array([entry["unobstructed"] for entry in entries], dtype=bool).reshape(count, count)
    if len(set(ids)) < count:
        raise source.bad(file, f"viewpoint {Counter(ids).most_common(1)[0][0]} is there twice")
    position = pose[kept][:, [3, 7, 11]]
    edges = unobstructed[np.ix_(kept, kept)]
    viewpoints = tuple(ids[k] for k in kept)
    if len(odd := np.argwhere((edges != edges.T) | np.diag(np.diag(edges)))):
        a, b = (viewpoints[k] for k in odd[0])
        raise source.bad(file, f"the edge {a} to {b} is open one way only" if a != b else f"{a} has an edge to itself")
    if len(lost := np.argwhere(~np.isfinite(position))):
        raise source.bad(file, f"viewpoint {viewpoints[lost[0, 0]]} has no place")
    return Graph(file, viewpoints, position, edges, frozenset(ids) - set(viewpoints))


def _annotations(source: Source, split: str) -> tuple[Annotation, ...]:
    file = f"annotations/R2R_{split}.json"
    found: dict[str, Annotation] = {}
    for entry in source.json(file, list):
        with source.reading(file, f"entry {len(found)}"):
            annotation = Annotation(
                path_id=str(entry["path_id"]),
                scan=str(entry["scan"]),
                path=tuple(map(str, entry["path"])),
                heading=float(entry["heading"]),
                instructions=tuple(map(str, entry["instructions"])),
            )
        item = f"path {annotation.path_id}"
        if annotation.path_id in found:
            raise source.bad(file, f"{item} is there twice")
        if len(annotation.path) < (1 if split == "test" else 2):
            raise source.bad(file, f"{item} has {len(annotation.path)} viewpoints, too few for a start and a goal")
        if not annotation.instructions or not all(text.strip() for text in annotation.instructions):
            raise source.bad(file, f"{item} lacks an instruction")
        if not abs(annotation.heading) <= _LARGEST:
            raise source.bad(file, f"{item} has heading {annotation.heading}")
        found[annotation.path_id] = annotation
    if not found:
        raise source.bad(file, "it has no paths")
    return tuple(found.values())


def _sights(source: Source, scan: str, graph: Graph) -> tuple[Sight, ...]:
    """What the optional folders say of each viewpoint of a scan."""
    parts: list[list[Any]] = []
    for folder, (parse, nothing) in _PARSERS.items():
        if not source.under(folder):
            parts.append([[nothing] * DIRECTIONS] * len(graph.viewpoints))
            continue
        file = f"{folder}/{scan}.json"
        entries = source.json(file, dict)
        check_covers(f"{file} in {source.folder}", graph.viewpoints, entries)
        parts.append([])
        for viewpoint in graph.viewpoints:
            with source.reading(file, f"viewpoint {viewpoint}"):
                parts[-1].append(parse(entries[viewpoint]))
    return tuple(map(Sight, *parts))


def check_covers(what: str, viewpoints: Sequence[str], there: Container[str]) -> None:
    """Refuses a file that lacks viewpoints: names one, and how many."""
    lacking = [viewpoint for viewpoint in viewpoints if viewpoint not in there]
    if lacking:
        raise ApilError(
            f"{what} lacks {len(lacking)} of {len(viewpoints)} viewpoints, for example {lacking[0]}: "
            "use the file that belongs to these graphs, or leave it out."
        )


def _eight(entry: Any) -> list[Any]:
    if not isinstance(entry, list) or len(entry) != DIRECTIONS:
        raise ValueError(f"a list of {DIRECTIONS} directions is expected")
    return entry


def _captions(entry: Any) -> list[dict[str, str]]:
    lines = [[line.partition(":") for line in text.splitlines()] for text in _eight(entry)]
    return [{row.strip(): caption.strip() for row, _, caption in direction} for direction in lines]


def _boxes(entry: Any) -> list[dict[str, float]]:
    """An object belongs to the direction nearest to the heading of each view that shows it."""
    found: list[dict[str, float]] = [defaultdict(float) for _ in range(DIRECTIONS)]
    for thing in entry.values():
        name = str(thing["name"]).replace("#", " ").strip()
        for view, box in zip(thing["visible_pos"], thing["bbox2d"], strict=True):
            found[direction_of_view(int(view))][name] += float(box[2]) * float(box[3])
    return found


def _nearby(entry: Any) -> list[dict[str, float]]:
    return [{name.strip(): float(at["distance"]) for name, at in there.items()} for there in _eight(entry)]


_PARSERS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    BLIP: (_captions, {}),
    SUMMARY: (lambda entry: [str(text) for text in _eight(entry)], ""),
    BOXES: (_boxes, {}),
    LISTS: (_nearby, {}),
}
"""By folder, in the order of the fields of `Sight`: what reads an entry, and what a direction has without it."""


def direction_of_view(view: int) -> int:
    """The direction nearest to the heading of one of the 36 views, 30 (view mod 12) degrees; each has just one."""
    if not 0 <= view < 36:
        raise ValueError(f"view {view} is not one of 0 to 35")
    return round((view % 12) * 30 / 45) % DIRECTIONS


def _rooms(source: Source, graphs: Mapping[str, Graph]) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """The letter of each viewpoint, by scan, and the name of each letter."""
    file, names_file = "derived/rooms.json", "rooms/region_label.txt"
    if file not in source:
        return {}, {}
    lines = [line.partition(",") for line in source.text(names_file).splitlines() if line.strip()]
    names = {letter: name.strip() for letter, _, name in lines}
    entries = source.json(file, dict)
    check_covers(f"{file} in {source.folder}, among scans,", list(graphs), entries)
    rooms = {}
    for scan, graph in graphs.items():
        with source.reading(file, f"scan {scan}"):
            if not isinstance(entries[scan], dict):
                raise TypeError("a dict of viewpoints")
            check_covers(f"{file} in {source.folder}, scan {scan},", graph.viewpoints, entries[scan])
            rooms[scan] = tuple(str(entries[scan][viewpoint][0]) for viewpoint in graph.viewpoints)
        for letter in rooms[scan]:
            if letter not in names:
                raise source.bad(file, f"scan {scan} has the label '{letter}', which {names_file} does not name")
    return rooms, names


def _glove(source: Source) -> dict[str, NDArray[np.float32]]:
    """The vector of each word."""
    file, words_file = "embeddings/trainval_glove.npy", "embeddings/trainval_vocab.txt"
    if file not in source:
        return {}
    # One entry is ". .": a line is a word, whatever blanks it has.
    words = source.text(words_file).removesuffix("\n").split("\n")
    with source.reading(file, "the array"):
        rows = np.asarray(np.load(io.BytesIO(source.read(file)), allow_pickle=False), dtype=np.float32)
    if rows.ndim != 2 or len(rows) != len(words):
        raise source.bad(file, f"its shape {rows.shape} does not fit the {len(words)} lines of {words_file}")
    if len(odd := np.flatnonzero(~np.isfinite(rows).all(1))):
        raise source.bad(file, f"row {odd[0]}, of '{words[odd[0]]}', has a number that is not finite")
    return dict(zip(words, rows, strict=True))
