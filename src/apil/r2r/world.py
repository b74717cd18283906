"""A compiled world: the graphs, the episodes and what can be seen, as tensors."""

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
from apil.r2r.checksum import tables_checksum
from apil.r2r.layout import REQUIRED_SPLITS
from apil.r2r.scenes import Readings
from apil.r2r.soundness import check_world
from apil.settings.record import FromList, Says, Text, Whole, record, shown

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
    tables: Text = ""
    """The checksum of the file; empty in one of an older apil."""

    def __post_init__(self) -> None:
        for split in REQUIRED_SPLITS:
            if split not in self.names:
                raise ApilError(f"the split {split} is missing")


@dataclass(frozen=True)
class Split:
    """The episodes of a split, one for each instruction: E of them, of at most T = 80 words and P viewpoints."""

    start: Annotated[Tensor, "long E"]
    """The viewpoint."""
    goal: Annotated[Tensor, "long E"]
    """The viewpoint; -1 in the test split, whose goals are not public."""
    heading: Annotated[Tensor, "float E"]
    """At the start, radians clockwise from +y."""
    tokens: Annotated[Tensor, "long E T"]
    """Word ids, <eos> at the end, then 0."""
    tokens_length: Annotated[Tensor, "long E"]
    """With <eos>."""
    path: Annotated[Tensor, "long E P"]
    """The annotated path, from the start to the goal; then -1. In the test split the start alone."""
    path_index: Annotated[Tensor, "long E"]
    """Which annotated path; the instructions of a path share it."""
    names: tuple[str, ...]
    """E of "<path_id>_<k>", k the number of the instruction of its path."""

    def one_per_path(self) -> Tensor:
        """[paths] long: the first episode of each annotated path."""
        steps = self.path_index.diff(prepend=torch.tensor([-1]))
        return steps.nonzero().squeeze(-1)


@dataclass(frozen=True)
class World:
    """V included viewpoints of all scans, numbered scan after scan; D exits at most; W words; S scans; 8 directions.

    Direction i of a panorama is centred on heading 45 i degrees. Headings are in radians, clockwise from +y.
    Annotations give the type (byte: signed, of 8 bits) and the shape of a table."""

    scans: tuple[str, ...]
    viewpoints: tuple[str, ...]
    """V ids."""
    features: tuple[str, ...]
    """Which of captions, objects, rooms, glove, images and readings there are; the tables of others hold padding."""
    excluded: int
    """Viewpoints in the graph files that are not included."""
    unread: tuple[str, ...]
    """Annotations of no known split, of which nothing was made."""

    scan: Annotated[Tensor, "long V"]
    """Index into `scans`."""
    position: Annotated[Tensor, "float V 3"]
    """Metres, z up."""
    neighbours: Annotated[Tensor, "long V D"]
    """The viewpoint that each exit leads to, in the order of the graph file; -1 where there is no exit."""
    heading: Annotated[Tensor, "float V D"]
    """Of each exit, from 0 to below 2 pi."""
    elevation: Annotated[Tensor, "float V D"]
    """Of each exit, radians above the horizon."""
    length: Annotated[Tensor, "float V D"]
    """Of each exit, metres in space; 0 where there is no exit."""
    similar: Annotated[Tensor, "bool V D D"]
    """Two exits at most 60 degrees apart in space; an exit is similar to itself."""

    local: Annotated[Tensor, "long V"]
    """Number of a viewpoint in its scan."""
    size: Annotated[Tensor, "long S"]
    """Viewpoints of each scan."""
    offset: Annotated[Tensor, "long S"]
    """Where the scan's block begins in `distances` and `next_slots`."""
    distances: Annotated[Tensor, "float N"]
    """For each scan a square of metres along the shortest path, row by row from, column by column to."""
    next_slots: Annotated[Tensor, "byte N"]
    """The exit that begins this path; -1 at the goal or where there is no path."""

    vocabulary: tuple[str, ...]
    """W words; <pad>, <unk>, <eos> first. Shared by instructions, captions and objects."""
    glove: Annotated[Tensor, "float W G"]
    """Word vectors, zero where there is none."""
    has_glove: Annotated[Tensor, "bool W"]
    captions: Annotated[Tensor, "short V 8 C"]
    """Distinct content words of the captions of each direction; 0 is padding."""
    objects: Annotated[Tensor, "short V 8 O"]
    """Distinct words of the objects of each direction, the nearest first; 0 is padding."""
    object_distance: Annotated[Tensor, "half V 8 O"]
    """Metres, NaN where unknown."""
    room_names: tuple[str, ...]
    """The first is unknown."""
    room: Annotated[Tensor, "long V"]
    """Index into `room_names`."""
    images: Annotated[Tensor | None, "half V 8 F"]
    """Image features of each direction."""
    read: Readings | None
    """What a language model made of the instructions, in the order of the splits."""

    splits: Mapping[str, Split]
    """train, val_seen, val_unseen and, where it was compiled, test."""
    sha256: Mapping[str, str]
    """Of each raw file that this was compiled from."""
    tables: str
    """The checksum of the file: see `tables_checksum`."""
    vouched: bool
    """The file has noted its checksum, and it fits; one of an older apil has none."""

    @classmethod
    def open(cls, path: Path) -> World:
        """A compiled file, or the folder that holds it."""
        file = path / FILE if path.is_dir() else path
        if not file.is_file():
            raise ApilError(f"{file} does not exist: {_AGAIN}.")
        try:
            with safe_open(file, framework="pt") as opened:
                about = json.loads((opened.metadata() or {})[METADATA])
                other = about["schema"] != SCHEMA
                tensors = {} if other else {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            if not other:
                header, tables = Header(**about), tables_checksum(about, {n: t.numpy() for n, t in tensors.items()})
                if header.tables not in ("", tables):
                    raise ValueError("it was changed since it was compiled: its checksum does not fit")
                world = cls(**_fields(header, tensors), tables=tables, vouched=bool(header.tables))
                check_world(world)
        except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
            why = (str(error).splitlines() or [type(error).__name__])[0]
            raise ApilError(f"{file} is damaged or no compiled R2R file ({why[:300]}): {_AGAIN} again.") from error
        if other:
            version = shown(about["schema"])
            raise ApilError(f"{file} has schema {version}, this version reads {SCHEMA}: {_AGAIN} again.")
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
        same, index = self._pair(a, b)
        return torch.where(same, self.distances[index], torch.inf)

    def next_slot(self, a: Tensor, goal: Tensor) -> Tensor:
        """Long: the exit of `a` that begins the shortest path to `goal`; -1 at the goal or without a path."""
        same, index = self._pair(a, goal)
        return torch.where(same, self.next_slots[index].long(), -1)

    def _pair(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Whether viewpoints are in one scan, and where the pair stands in `distances` if they are."""
        same = self.scan[a] == self.scan[b]
        return same, self._row[a] + torch.where(same, self.local[b], 0)

    @cached_property
    def _row(self) -> Tensor:
        """[V] long: where the row of a viewpoint begins in `distances`."""
        return self.offset[self.scan] + self.local * self.size[self.scan]


def _fields(about: Header, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The fields of a `World`."""
    parts: dict[str, dict[str, Any]] = {split: {"names": names} for split, names in about.names.items()}
    for name in [name for name in tensors if "/" in name]:
        split, _, field = name.partition("/")
        table = tensors.pop(name)
        parts[split][field] = table.long() if field == "tokens" and table.dtype == torch.int16 else table
    names = ("rows", "scale", "start", "mirrored") if "read_rows" in tensors else ()
    read = {name: tensors.pop(f"read_{name}") for name in names}
    lists = {name: value for name, value in vars(about).items() if name not in ("schema", "names", "tables")}
    return {
        **({} if "images" in about.features else {"images": None}),
        "read": Readings(**read) if read else None,
        **tensors,
        **lists,
        "splits": {split: Split(**fields) for split, fields in parts.items()},
    }
