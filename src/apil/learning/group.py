"""The runs of a stack that share a part."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from apil.rng import Streams

Part_co = TypeVar("Part_co", covariant=True)
Places = slice | Tensor
"""Some runs of a stack: a slice where they stand side by side (a view, no copy), else their indices."""


@dataclass(frozen=True)
class Group(Generic[Part_co]):
    """The runs of a stack that share a part (a teacher, a query policy)."""

    runs: Places
    """Their places in the stack."""
    streams: Streams
    """Their random streams."""
    part: Part_co
    name: str
    """For messages and records: the query policy's name, the members of a teacher joined by '+'."""


class Groups(tuple[Group[Part_co], ...]):
    """Groups that share out all runs of a stack among them."""

    @cached_property
    def _order(self) -> Tensor | None:
        """Where the runs of a stack stand in the groups, end to end; None where that is their own order."""
        runs = [torch.arange(g.runs.start, g.runs.stop) if isinstance(g.runs, slice) else g.runs for g in self]
        places = torch.cat(runs)
        return None if bool((places.diff() > 0).all()) else places.argsort()

    def join(self, parts: list[Tensor]) -> Tensor:
        """[runs, ...] in the order of the stack, from what belongs to each group."""
        if len(parts) == 1:
            return parts[0]
        joined = torch.cat(parts)
        return joined if self._order is None else joined.index_select(0, self._order)


def take(record: Any, runs: Places) -> Any:
    """The same record of some runs only; its fields are taken when they are read, as most are not."""
    if isinstance(record, Tensor):
        return record if _is_all(runs, record) else record[runs]
    kind = type(record)
    if kind not in _VIEWS:
        if record is None or isinstance(record, int):
            return record
        if hasattr(record, "of_runs"):
            return record.of_runs(runs)
        names = [field.name for field in fields(record)]
        _VIEWS[kind] = names[0], type(kind.__name__, (kind,), {name: _TakenField(name) for name in names})
    lead, view_of = _VIEWS[kind]
    if _is_all(runs, getattr(record, lead)):
        return record
    view: Any = object.__new__(view_of)
    view.__dict__["_taken_from"] = record, runs
    return view


def _is_all(runs: Places, tensor: Tensor) -> bool:
    """Whether these are all runs of the stack that a tensor is of."""
    return isinstance(runs, slice) and runs.start == 0 and runs.stop == tensor.shape[0]


class _TakenField:
    """A field of a view: taken when it is first read, then an attribute like any other."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, view: Any, owner: type) -> Any:
        record, runs = view.__dict__["_taken_from"]
        found = view.__dict__[self._name] = take(getattr(record, self._name), runs)
        return found


_VIEWS: dict[type, tuple[str, type]] = {}
"""To a kind of record the name of its first field, a tensor or a record of tensors, and the subclass whose fields are
those of some runs of another record."""
