"""Observations of any space as one row of features, and back into their structure for an encoder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from apil.errors import ApilError

Structured = Tensor | dict[str, Tensor]
"""[n, ...] of each field by name, or the one tensor where the observation space is no Dict."""

_WIDE = 1e3
"""A bound beyond this says nothing about where values lie, and counts as none."""
_ROUNDING = 1e-4
"""By how much a code of 0 and 1 may differ from it."""
_BEYOND = 2.0
"""The largest scaled value of a bounded number: half the width of its Box beyond a bound."""
_LARGEST = float(np.log1p(np.finfo(np.float32).max))

Convert = Callable[[Any], NDArray[np.float32]]


@dataclass(frozen=True)
class Field:
    """One part of an observation inside the row of features."""

    name: str
    """The keys of the Dict spaces that lead to it, joined by '.'; '' where there is no Dict."""
    space: spaces.Space[Any]
    start: int
    """Its first feature."""
    shape: tuple[int, ...]
    """As an encoder gets it: [length], or [channels, height, width] of an image."""
    kind: Literal["vector", "image"]
    convert: Convert
    """[n, *space.shape] -> [n, length] features."""
    limit: NDArray[np.float32]
    """[length]: no feature of an observation that can be used is larger than this, up to its sign."""

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def stored(self) -> Literal["floats", "bytes", "bits"]:
        """What its features are: bytes divided by 255, 0 and 1, or any numbers."""
        if self.kind == "image":
            return "bytes"
        return "floats" if isinstance(self.space, spaces.Box) else "bits"


class Layout:
    """Where each part of an observation lies in the features.

    Bounded numbers are scaled to -1 to 1, unbounded ones become sign(x) log(1 + |x|), a choice of N its one-hot code,
    and the bytes of an image lie between 0 and 1.

    Many environments leave their own bounds now and then (LunarLander's angle, any velocity), which is no reason to
    stop. A number outside its Box is scaled like the others, and clipped where it is more than half a width outside.
    """

    def __init__(self, space: spaces.Space[Any], owner: str) -> None:
        """Reads `space`; `owner` names the environment in messages."""
        self.space = space
        self._owner = owner
        fields: list[Field] = []
        for name, part in _leaves(space, ""):
            start = fields[-1].start + fields[-1].size if fields else 0
            fields.append(_field(name, part, start, owner))
        self.fields = tuple(fields)
        self.size = sum(field.size for field in fields)
        if not self.size:
            raise ApilError(f"The observation space {space} of the environment '{owner}' is empty: nothing to see.")
        self._limit = np.concatenate([field.limit for field in fields])
        self._warned = False

    def features(self, batch: Any) -> NDArray[np.float32]:
        """[n, F] from a batch of observations as a vector environment gives it."""
        parts = [field.convert(_at(batch, field.name)) for field in self.fields]
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        # One comparison finds what is too large, infinite or NaN; counting costs less than all().
        if np.count_nonzero(np.abs(rows) <= self._limit) != rows.size:
            self._clip(rows, batch)
        return rows

    def _clip(self, rows: NDArray[np.float32], batch: Any) -> None:
        """Brings numbers far outside their Box back in, in place; refuses what cannot be an observation."""
        for place, feature in np.argwhere(~(np.abs(rows) <= self._limit)):
            field = next(field for field in self.fields if field.start <= feature < field.start + field.size)
            value = np.asarray(_at(batch, field.name))[place]
            if field.stored != "floats" or not np.isfinite(rows[place, feature]):
                raise misfit(self._owner, value, field.space, field.name)
            rows[place, feature] = np.copysign(self._limit[feature], rows[place, feature])
            if not self._warned:
                self._warned = True
                print(
                    f"apil: warning: The environment '{self._owner}' gave the observation {_shown(value, field.name)}, "
                    f"far outside its space {field.space}: such numbers are clipped. Correct its observation_space.",
                    file=sys.stderr,
                )

    def read(self, observation: Any) -> tuple[NDArray[np.float32], bool]:
        """[n, F] from a batch of observations or [1, F] from one alone, and whether it was one alone."""
        alone = self._alone(observation)
        return self.features(_unsqueezed(observation) if alone else observation), alone

    def _alone(self, observation: Any) -> bool:
        """Whether every part has the shape of one observation; an error unless all have, or all are n of them."""
        expected, shapes = [field.space.shape for field in self.fields], []
        for field in self.fields:
            try:
                shapes.append(np.shape(_at(observation, field.name)))
            except (KeyError, IndexError, TypeError, ValueError):
                raise self._unlike(f"{type(observation).__name__} without '{field.name}'") from None
        if shapes == expected:
            return True
        if len({shape[:1] for shape in shapes}) != 1 or [shape[1:] for shape in shapes] != expected:
            raise self._unlike(f"shape {', '.join(map(str, shapes))}")
        return False

    def _unlike(self, shown: str) -> ApilError:
        return ApilError(
            f"The observation ({shown}) does not fit '{self._owner}': give an element of {self.space}, or a batch of n."
        )

    def structured(self, features: Tensor) -> Structured:
        """[n, F] features -> the parts, as an encoder reads them."""
        parts = {
            field.name: features[:, field.start : field.start + field.size].reshape(-1, *field.shape)
            for field in self.fields
        }
        return parts if isinstance(self.space, spaces.Dict) else parts[""]


def misfit(owner: str, value: Any, space: spaces.Space[Any], name: str = "") -> ApilError:
    return ApilError(
        f"The environment '{owner}' gave the observation {_shown(value, name)}, which is not in its space {space}: "
        "correct the environment or its observation_space."
    )


def _shown(value: Any, name: str) -> str:
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        array = np.asarray(repr(value)[:80])
    numbers = " ".join(np.array2string(array, threshold=8, edgeitems=3, precision=4).split())
    key = f" under '{name}'" if name else ""
    return f"{numbers} ({array.dtype}, shape {array.shape}){key}"


def fits(observation: Any, space: spaces.Space[Any]) -> bool:
    """Whether an observation has the form of a space: its keys, shapes and types, and no value that has no feature.

    Numbers may be outside their Box.
    """
    if isinstance(space, spaces.Dict):
        same = isinstance(observation, Mapping) and observation.keys() == space.spaces.keys()
        return same and all(fits(observation[name], part) for name, part in space.items())
    try:
        if not isinstance(space, spaces.Box):
            return space.contains(observation)
        array = np.asarray(observation, None if isinstance(observation, np.ndarray) else space.dtype)
    except (TypeError, ValueError, OverflowError):  # spaces compare with whatever they are given
        return False
    return array.shape == space.shape and np.can_cast(array.dtype, space.dtype)


def element(batch: Any, space: spaces.Space[Any], place: int) -> Any:
    """The observation at one place of a batch: a copy, an element of `space`."""
    if isinstance(space, spaces.Dict):
        return {name: element(batch[name], part, place) for name, part in space.items()}
    return np.array(batch[place]) if space.shape else batch[place]


def _leaves(space: spaces.Space[Any], prefix: str) -> list[tuple[str, spaces.Space[Any]]]:
    if not isinstance(space, spaces.Dict):
        return [(prefix, space)]
    return [leaf for name, part in space.items() for leaf in _leaves(part, f"{prefix}.{name}" if prefix else name)]


def _unsqueezed(observation: Any) -> Any:
    if isinstance(observation, Mapping):
        return {name: _unsqueezed(part) for name, part in observation.items()}
    return np.asarray(observation)[None]


def _at(batch: Any, name: str) -> Any:
    for key in name.split(".") if name else ():
        batch = batch[key]
    return batch


def _field(name: str, space: spaces.Space[Any], start: int, owner: str) -> Field:
    if isinstance(space, spaces.Box):
        if space.dtype == np.uint8 and len(space.shape) == 3 and space.shape[-1] in (1, 3, 4):
            height, width, channels = space.shape
            limit = np.ones(height * width * channels, np.float32)
            return Field(name, space, start, (channels, height, width), "image", _image, limit)
        convert, limit = _scaled(space)
        return Field(name, space, start, limit.shape, "vector", convert, limit)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        counts = np.atleast_1d(space.n if isinstance(space, spaces.Discrete) else space.nvec).flatten()
        convert, size = _one_hot(counts, np.atleast_1d(space.start).flatten()), int(counts.sum())
        return Field(name, space, start, (size,), "vector", convert, np.full(size, 1 + _ROUNDING, np.float32))
    if isinstance(space, spaces.MultiBinary):
        size = int(np.prod(space.shape))
        return Field(name, space, start, (size,), "vector", _flat, np.full(size, 1 + _ROUNDING, np.float32))
    key = f" under '{name}'" if name else ""
    raise ApilError(
        f"The environment '{owner}' has the observation space {space}{key}: known are Box, Discrete, MultiDiscrete, "
        "MultiBinary, images (uint8, height x width x channels) and Dict of these; wrap the environment, for example "
        "with gymnasium.wrappers.FilterObservation or TransformObservation."
    )


def _image(batch: Any) -> NDArray[np.float32]:
    rows = np.asarray(batch).transpose(0, 3, 1, 2).reshape(len(batch), -1).astype(np.float32)
    rows *= np.float32(1.0 / 255.0)
    return rows


def _flat(batch: Any) -> NDArray[np.float32]:
    """A copy."""
    return np.array(batch, np.float32).reshape(len(batch), -1)


def _scaled(space: spaces.Box) -> tuple[Convert, NDArray[np.float32]]:
    """How vectors of a Box become features, and their limit."""
    low, high = (np.asarray(bound, dtype=np.float64).flatten() for bound in (space.low, space.high))
    bounded = (np.abs(low) <= _WIDE) & (np.abs(high) <= _WIDE) & (high > low)
    low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
    middle, factor = ((low + high) / 2).astype(np.float32), (2.0 / (high - low)).astype(np.float32)
    everywhere = bool(bounded.all())

    def convert(batch: Any) -> NDArray[np.float32]:
        rows = _flat(batch)
        rows -= middle
        rows *= factor
        return rows if everywhere else np.where(bounded, rows, np.copysign(np.log1p(np.abs(rows)), rows))

    return convert, np.where(bounded, _BEYOND, _LARGEST).astype(np.float32)


def _one_hot(counts: NDArray[Any], first: NDArray[Any]) -> Convert:
    """The codes of several choices side by side."""
    offsets = np.concatenate([[0], np.cumsum(counts)[:-1]])
    size = int(counts.sum())

    def convert(batch: Any) -> NDArray[np.float32]:
        chosen = np.asarray(batch).reshape(len(batch), -1) - first
        outside = (chosen < 0) | (chosen >= counts)
        rows = np.zeros((len(chosen), size), np.float32)
        np.put_along_axis(rows, np.clip(chosen, 0, counts - 1) + offsets, 1.0, axis=1)
        rows[outside.any(1)] = np.nan  # the caller tells which observation it was
        return rows

    return convert
