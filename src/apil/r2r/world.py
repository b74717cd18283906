"""A compiled world: the graphs, the episodes and what is to be seen, as tensors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from apil.errors import ApilError, unknown_name
from apil.r2r.layout import REQUIRED_SPLITS
from apil.r2r.scenes import Readings
from apil.r2r.soundness import check_world
from apil.settings.record import FromList, Says, Whole, record, shown

FILE = "r2r.safetensors"
METADATA = "r2r"
"""The one entry of the header's metadata: JSON."""
SCHEMA = 1
_AGAIN = "make it with `apil data r2r --from DIR --out DIR`"

_Names = Annotated[tuple[str, ...], FromList, Says("a list of names is expected")]


@record
class Header:
    """What the header of a compiled file says of its tables; see `World`."""

    schema: int
    scans: _Names
    viewpoints: _Names
    excluded: Whole
    vocabulary: _Names
    features: Annotated[tuple[Literal["captions", "objects", "rooms", "glove", "images", "readings"], ...], FromList]
    room_names: _Names
    names: Annotated[
        dict[Literal["train", "val_seen", "val_unseen", "test"], _Names], Says("names by split are expected")
    ]
    sha256: Annotated[dict[str, str], Says("checksums by file are expected")]
    unread: _Names = ()

    def __post_init__(self) -> None:
        for split in REQUIRED_SPLITS:
            if split not in self.names:
                raise ApilError(f"the split {split} is missing")


class _OtherSchemaError(ApilError):
    """A file of another version."""


@dataclass(frozen=True)
class Split:
    """The episodes of a split, one for each instruction; E of them."""

    start: Tensor
    """[E] long: the viewpoint."""
    goal: Tensor
    """[E] long: the viewpoint; -1 in the test split, whose goals are not public."""
    heading: Tensor
    """[E] float: at the start, radians clockwise from +y."""
    tokens: Tensor
    """[E, 80] long: word ids, <eos> at the end, then 0."""
    tokens_length: Tensor
    """[E] long: with <eos>."""
    path: Tensor
    """[E, P] long: the annotated path, from the start to the goal; then -1. In the test split the start alone."""
    path_index: Tensor
    """[E] long: which annotated path; the instructions of a path share it."""
    names: tuple[str, ...]
    """E of "<path_id>_<k>", k the number of the instruction of its path."""

    def one_per_path(self) -> Tensor:
        """[paths] long: the first episode of each annotated path."""
        first = torch.ones_like(self.path_index, dtype=torch.bool)
        first[1:] = self.path_index[1:] != self.path_index[:-1]
        return first.nonzero().squeeze(-1)


@dataclass(frozen=True)
class World:
    """V included viewpoints of all scans, numbered scan after scan; D exits at most; W words; 8 directions.

    Direction i of a panorama is centred on heading 45 i degrees. Headings are in radians, clockwise from +y.
    """

    scans: tuple[str, ...]
    viewpoints: tuple[str, ...]
    """V ids."""
    features: tuple[str, ...]
    """Which of captions, objects, rooms, glove, images and readings there are; the tables of others hold padding."""
    excluded: int
    """Viewpoints in the graph files that are not included."""
    unread: tuple[str, ...]
    """Annotations of no known split, of which nothing was made."""

    scan: Tensor
    """[V] long: index into `scans`."""
    position: Tensor
    """[V, 3] float: metres, z up."""
    neighbours: Tensor
    """[V, D] long: the viewpoint that each exit leads to, in the order of the graph file; -1 where there is no exit."""
    heading: Tensor
    """[V, D] float: of each exit, from 0 to below 2 pi."""
    elevation: Tensor
    """[V, D] float: of each exit, radians above the horizon."""
    length: Tensor
    """[V, D] float: of each exit, metres in space; 0 where there is no exit."""
    similar: Tensor
    """[V, D, D] bool: two exits at most 60 degrees apart in space; an exit is similar to itself."""

    local: Tensor
    """[V] long: number of a viewpoint in its scan."""
    size: Tensor
    """[scans] long: viewpoints of each scan."""
    offset: Tensor
    """[scans] long: where the scan's block begins in `distances` and `next_slots`."""
    distances: Tensor
    """[sum of size squared] float: metres along the shortest path, row by row from, column by column to."""
    next_slots: Tensor
    """[sum of size squared] int8: the exit that begins this path; -1 at the goal or where there is no path."""

    vocabulary: tuple[str, ...]
    """W words; <pad>, <unk>, <eos> first. Shared by instructions, captions and objects."""
    glove: Tensor
    """[W, 300] float: word vectors, zero where there is none."""
    has_glove: Tensor
    """[W] bool"""
    captions: Tensor
    """[V, 8, 24] int16: distinct content words of the captions of each direction; 0 is padding."""
    objects: Tensor
    """[V, 8, 12] int16: distinct words of the objects of each direction, the nearest first; 0 is padding."""
    object_distance: Tensor
    """[V, 8, 12] half: metres, NaN where unknown."""
    room_names: tuple[str, ...]
    """The first is unknown."""
    room: Tensor
    """[V] long: index into `room_names`."""
    images: Tensor | None
    """[V, 8, F] half: image features of each direction."""
    read: Readings | None
    """What a language model made of the instructions, in the order of the splits."""

    splits: Mapping[str, Split]
    """train, val_seen, val_unseen and, where it was compiled, test."""
    sha256: Mapping[str, str]
    """Of each raw file that this was compiled from."""

    @classmethod
    def open(cls, path: Path) -> World:
        """A compiled file, or the folder that holds it."""
        file = path / FILE if path.is_dir() else path
        if not file.is_file():
            raise ApilError(f"{file} does not exist: {_AGAIN}.")
        try:
            with safe_open(file, framework="pt") as opened:
                about = json.loads((opened.metadata() or {})[METADATA])
                if about["schema"] != SCHEMA:
                    raise _OtherSchemaError(
                        f"{file} has schema {shown(about['schema'])}, this version reads {SCHEMA}: {_AGAIN} again."
                    )
                tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a mapping)
            world = cls(**_fields(Header(**about), tensors))
            check_world(world)
        except _OtherSchemaError:
            raise
        except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
            why = (str(error).splitlines() or [type(error).__name__])[0]
            raise ApilError(f"{file} is damaged or no compiled R2R file ({why[:300]}): {_AGAIN} again.") from error
        return world

    @cached_property
    def digest(self) -> str:
        """A short name of the data: equal for files compiled from equal raw files into the same tables."""
        said = json.dumps([SCHEMA, self.features, self.vocabulary, dict(self.sha256)], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()[:12]

    def split(self, name: str) -> Split:
        """The episodes of a split."""
        if name not in self.splits:
            raise unknown_name("split", name, self.splits)
        return self.splits[name]

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        """Metres along the shortest path between viewpoints; `a` and `b` of one shape. Infinite without a path."""
        same = self.scan[a] == self.scan[b]
        index = self._row[a] + torch.where(same, self.local[b], 0)
        return torch.where(same, self.distances[index], torch.inf)

    def next_slot(self, a: Tensor, goal: Tensor) -> Tensor:
        """Long: the exit of `a` that begins the shortest path to `goal`; -1 at the goal or without a path."""
        same = self.scan[a] == self.scan[goal]
        index = self._row[a] + torch.where(same, self.local[goal], 0)
        return torch.where(same, self.next_slots[index].long(), -1)

    def distance_block(self, scan: int) -> Tensor:
        """[n, n] float: metres between all viewpoints of a scan, by their local numbers."""
        size, offset = int(self.size[scan]), int(self.offset[scan])
        return self.distances[offset : offset + size * size].view(size, size)

    @cached_property
    def _row(self) -> Tensor:
        """[V] long: where the row of a viewpoint begins in `distances`."""
        return self.offset[self.scan] + self.local * self.size[self.scan]


def _fields(about: Header, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The fields of a `World`."""
    read = (
        {name: tensors.pop(f"read_{name}") for name in ("rows", "scale", "start", "mirrored")}
        if "read_rows" in tensors
        else None
    )
    plain = {name: table for name, table in tensors.items() if "/" not in name}
    parts: dict[str, dict[str, Any]] = {split: {"names": names} for split, names in about.names.items()}
    for name, table in tensors.items():
        split, slash, field = name.partition("/")
        if slash:
            parts[split][field] = table.long() if field == "tokens" and table.dtype == torch.int16 else table
    lists = ("scans", "viewpoints", "features", "vocabulary", "room_names", "excluded", "unread", "sha256")
    return {
        **({} if "images" in about.features else {"images": None}),
        "read": None if read is None else Readings(**read),
        **plain,
        **{name: getattr(about, name) for name in lists},
        "splits": {split: Split(**fields) for split, fields in parts.items()},
    }
