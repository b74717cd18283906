"""Whether a compiled file can be used: shapes, types and bounds of all tables, checked when it is opened."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, get_type_hints

import torch
from torch import Tensor

if TYPE_CHECKING:
    from apil.r2r.scenes import Readings
    from apil.r2r.world import Split, World

_FAR = 1e9
"""Metres: no house is larger, and the square of it is still a number."""


def check_world(world: World) -> None:
    """Raises a ValueError that names the table and what is wrong with it."""
    known = {"V": len(world.viewpoints), "S": len(world.scans), "W": len(world.vocabulary)}
    _shapes(world, known)
    for name, split in world.splits.items():
        sizes = {"E": len(split.names), "T": known.get("T")}
        _shapes(split, sizes, f"{name}/")
        known["T"] = int(split.tokens.shape[1])
    _graph(world)
    for name, split in world.splits.items():
        _episodes(world, split, f"{name}/")
    if (read := world.read) is not None:
        every, goals = (
            torch.cat([getattr(split, name) for split in world.splits.values()]) for name in ("tokens_length", "goal")
        )
        _shapes(read, {"A": len(every)}, "read_")
        _between("read_scale", read.scale, 0, _FAR)
        _agree("read_start", (read.start >= 0) | (goals < 0))
        for name, first in (("read_start", read.start), ("read_mirrored", read.mirrored)):
            _between(name, first, -1, len(read.rows))
            _agree(name, (first < 0) | (first + every <= len(read.rows)))


def _shapes(tables: World | Split | Readings, sizes: dict[str, Any], prefix: str = "") -> None:
    """Types and shapes, as annotated; a size that is not known yet is that of the first table that has it."""
    for name, hint in get_type_hints(type(tables), include_extras=True).items():
        table = getattr(tables, name)
        if not isinstance(table, Tensor):
            continue
        kind, *letters = hint.__metadata__[0].split()
        dtype = torch.int8 if kind == "byte" else getattr(torch, kind)
        if len(letters) == table.dim():
            for letter, size in zip(letters, table.shape, strict=True):
                if sizes.get(letter) is None:
                    sizes[letter] = int(letter) if letter.isdigit() else size
        shape = [sizes.get(letter) for letter in letters]
        if table.dtype != dtype or list(table.shape) != shape or not table.numel():
            what = f"{prefix}{name} is {str(table.dtype).removeprefix('torch.')} {list(table.shape)}"
            raise ValueError(f"{what}, not {kind} [{', '.join(letters)}] of {shape}")


def _graph(world: World) -> None:
    count, exits = world.neighbours.shape
    _between("scan", world.scan, 0, len(world.scans) - 1)
    size = torch.bincount(world.scan, minlength=len(world.scans))
    square = size.square()
    _agree("scan", world.scan.diff() >= 0)
    _agree("size", world.size == size)
    _agree("offset", world.offset == square.cumsum(0) - square)
    _agree("local", world.local == torch.arange(count) - (size.cumsum(0) - size)[world.scan])
    if len(world.distances) != int(square.sum()):
        raise ValueError(f"distances has {len(world.distances)} numbers, not {int(square.sum())}")
    _between("position", world.position, -_FAR, _FAR)
    _between("heading", world.heading, 0, 2 * math.pi + 1e-3)
    _between("elevation", world.elevation, -math.pi, math.pi)
    _between("length", world.length, 0, _FAR)
    _between("distances", world.distances, 0, math.inf)
    _between("neighbours", world.neighbours, -1, count - 1)
    there = world.neighbours >= 0
    _agree("neighbours", ~there | (world.scan[world.neighbours.clamp_min(0)] == world.scan.unsqueeze(1)))
    _agree("similar", ~world.similar | (there.unsqueeze(1) & there.unsqueeze(2)))
    _agree("neighbours", there[:, :-1] | ~there[:, 1:])
    _between("next_slots", world.next_slots, -1, exits - 1)
    _agree("next_slots", world.next_slots < there.sum(1).char().repeat_interleave(size[world.scan]))
    _between("glove", world.glove, -_FAR, _FAR)
    _between("captions", world.captions, 0, len(world.vocabulary) - 1)
    _between("objects", world.objects, 0, len(world.vocabulary) - 1)
    _between("room", world.room, 0, len(world.room_names) - 1)


def _episodes(world: World, split: Split, prefix: str) -> None:
    most = len(world.viewpoints) - 1
    _between(f"{prefix}start", split.start, 0, most)
    _between(f"{prefix}goal", split.goal, -1, most)
    _between(f"{prefix}path", split.path, -1, most)
    _between(f"{prefix}heading", split.heading, -torch.finfo().max, torch.finfo().max)
    _between(f"{prefix}tokens", split.tokens, 0, len(world.vocabulary) - 1)
    _between(f"{prefix}tokens_length", split.tokens_length, 1, split.tokens.shape[1])
    here, there = split.path[:, :-1], split.path[:, 1:]
    along = (world.neighbours[here.clamp_min(0)] == there.unsqueeze(-1)).any(-1) & (here >= 0)
    _agree(f"{prefix}path", torch.cat([split.path[:, :1] == split.start.unsqueeze(1), (there < 0) | along], 1))
    last = (split.path >= 0).sum(1, keepdim=True) - 1
    _agree(f"{prefix}goal", (split.goal < 0) | (split.goal == split.path.gather(1, last).squeeze(1)))
    words = torch.arange(split.tokens.shape[1]) < split.tokens_length.unsqueeze(1)
    _agree(f"{prefix}tokens", (split.tokens > 0) == words)
    steps = split.path_index.diff(prepend=torch.tensor([-1]))
    _agree(f"{prefix}path_index", (steps == 1) | ((steps == 0) & (torch.arange(len(steps)) > 0)))


def _between(name: str, table: Tensor, low: float, high: float) -> None:
    least, most = (part.item() for part in table.aminmax())
    if not (low <= least and most <= high):
        raise ValueError(f"{name} has {least:g} to {most:g}, not {low:g} to {high:g}")


def _agree(name: str, right: Tensor) -> None:
    if not bool(right.all()):
        raise ValueError(f"{name} does not agree with the other tables")
