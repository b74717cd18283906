"""An answer as a row of bytes: everything that is needed to learn from it again."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apil.errors import ApilError
from apil.tasks.protocol import Compact, Task

Kind = Literal["floats", "bytes", "bits"]
Rows = NDArray[Any]
"""[n] records of a `RowFormat`."""

ANSWERED, EXECUTED, VALIDATION, CORRECTION = 1, 2, 4, 8
"""Flags of a row: a teacher answered; its action was executed; it is not learned from; it takes the place of an earlier
row of the same step by the same teacher (of the same episode, where whole ones are kept)."""
_BYTE = np.float32(1.0 / 255.0)


class RowFormat:
    """How the steps of a task are written.

    A row has a checksum, when it was (iteration, episode, step), `version`, the number of gradient steps that the agent
    had made when it asked, who answered, the action and the distance, the features and the valid actions. Features that
    are known to be bits or bytes take as much.
    """

    def __init__(self, kinds: Sequence[tuple[int, Kind]], actions: int, continuous: bool) -> None:
        """`kinds` are how many features of which kind follow each other."""
        self.kinds, self.actions, self.continuous = tuple(kinds), actions, continuous
        self.features = sum(count for count, _ in kinds)
        packed = [(f"features{place}", *_stored(count, kind)) for place, (count, kind) in enumerate(kinds)]
        action = ("action", "<f4", (actions,)) if continuous else ("action", "<i4")
        self.dtype = np.dtype(
            [
                ("checksum", "<u4"),
                ("iteration", "<u4"),
                ("episode", "<u4"),
                ("step", "<u4"),
                ("version", "<u4"),
                ("identity", "<u4"),
                ("distance", "<f4"),
                action,
                ("flags", "u1"),
                ("valid", "u1", ((actions + 7) // 8,)),
                *packed,
            ]
        )

    @staticmethod
    def of(task: Task[Any]) -> RowFormat:
        """The format for a task; features are floats unless it says more of them."""
        kinds = task.feature_kinds if isinstance(task, Compact) else ((task.state_size, "floats"),)
        return RowFormat(kinds, task.actions, task.box is not None)

    def to_json(self) -> dict[str, Any]:
        return {"features": [list(kind) for kind in self.kinds], "actions": self.actions, "continuous": self.continuous}

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> RowFormat:
        """The format back from `to_json`; `ValueError` for anything else."""
        kinds, actions, continuous = (values.get(name) for name in ("features", "actions", "continuous"))
        whole = isinstance(kinds, list) and all(
            isinstance(kind, list) and len(kind) == 2 and _is_size(kind[0]) and kind[1] in ("floats", "bytes", "bits")
            for kind in kinds
        )
        if not whole or not kinds or not _is_size(actions) or not isinstance(continuous, bool):
            raise ValueError("it does not describe its rows")
        return RowFormat([(count, kind) for count, kind in kinds], int(actions), continuous)  # type: ignore[arg-type]

    def write(
        self, columns: Mapping[str, Tensor | int], features: Tensor, valid: Tensor, *, sealed: bool = True
    ) -> Rows:
        """Rows of n steps from their `columns` (by name, each [n, ...] or one number), features and valid actions.

        Rows that are not `sealed` have no checksum.
        """
        rows = np.zeros(len(features), self.dtype)
        for name, value in columns.items():
            rows[name] = value.numpy() if isinstance(value, Tensor) else value
        if not self.continuous:
            rows["valid"] = np.packbits(valid.numpy(), axis=-1)
        start, table = 0, features.numpy()
        for place, (count, kind) in enumerate(self.kinds):
            part = table[:, start : start + count]
            packed = _pack(part, kind)
            if kind != "floats" and not np.array_equal(_unpack(packed, count, kind), part):
                raise ApilError(f"Features {start} to {start + count - 1} are no {kind}, as the task says they are.")
            rows[f"features{place}"] = packed
            start += count
        if sealed:
            self.seal(rows)
        return rows

    def seal(self, rows: Rows) -> None:
        """Writes the checksums."""
        rows["checksum"] = self._checksums(rows)

    def sound(self, rows: Rows) -> NDArray[np.bool_]:
        """[n] bool: the checksum fits."""
        return np.asarray(rows["checksum"] == self._checksums(rows), bool)

    def _checksums(self, rows: Rows) -> NDArray[np.uint32]:
        """[n]: of all that follows the checksum in each row."""
        size = self.dtype.itemsize
        content = memoryview(np.ascontiguousarray(rows).view(np.uint8))  # type: ignore[arg-type]
        parts = (content[at + 4 : at + size] for at in range(0, len(content), size))
        return np.fromiter(map(zlib.crc32, parts), np.uint32, len(rows))

    def read_features(self, rows: Rows) -> Tensor:
        """[..., F] float32"""
        parts = [_unpack(rows[f"features{at}"], count, kind) for at, (count, kind) in enumerate(self.kinds)]
        return torch.from_numpy(parts[0] if len(parts) == 1 else np.concatenate(parts, -1))

    def read_valid(self, rows: Rows) -> Tensor:
        """[..., A] bool"""
        if self.continuous:
            return torch.ones(*rows.shape, self.actions, dtype=torch.bool)
        return torch.from_numpy(np.unpackbits(rows["valid"], axis=-1, count=self.actions).astype(bool))

    def read_action(self, rows: Rows) -> Tensor:
        """[...] long, or [..., n] float32"""
        return torch.from_numpy(rows["action"].astype(np.float32 if self.continuous else np.int64))


def _is_size(value: Any) -> bool:
    return type(value) is int and 1 <= value <= 10_000_000


def _stored(count: int, kind: Kind) -> tuple[str, tuple[int]]:
    return {"floats": ("<f4", (count,)), "bytes": ("u1", (count,)), "bits": ("u1", ((count + 7) // 8,))}[kind]


def _pack(values: NDArray[np.float32], kind: Kind) -> NDArray[Any]:
    if kind == "floats":
        return values
    if kind == "bits":
        return np.packbits(values != 0, axis=-1)
    packed: NDArray[Any] = np.rint(values * np.float32(255.0)).clip(0, 255).astype(np.uint8)
    return packed


def _unpack(stored: NDArray[Any], count: int, kind: Kind) -> NDArray[np.float32]:
    """[..., count] float32, a copy: exactly what was packed."""
    if kind == "bits":
        return np.unpackbits(stored, axis=-1, count=count).astype(np.float32)
    found = stored.astype(np.float32)
    return found * _BYTE if kind == "bytes" else found
