"""The runs of a stack that share a part."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

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


def take(record: Any, runs: Places) -> Any:
    """The same record of some runs only."""
    if isinstance(record, Tensor):
        return record[runs]
    if record is None or isinstance(record, int):
        return record
    if hasattr(record, "of_runs"):
        return record.of_runs(runs)
    kind = type(record)
    if kind not in _NAMES:
        _NAMES[kind] = tuple(field.name for field in fields(kind))
    return kind(*[take(getattr(record, name), runs) for name in _NAMES[kind]])


_NAMES: dict[type, tuple[str, ...]] = {}
"""The fields of the records, looked up once: `take` is called at every step."""
