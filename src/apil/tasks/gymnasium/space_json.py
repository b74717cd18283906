"""Gymnasium spaces as JSON and back. Reading builds spaces from checked numbers and imports nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from apil.errors import ApilError

_LARGEST = 10**7
"""Numbers in a space."""


def space_to_json(space: spaces.Space[Any]) -> dict[str, Any]:
    """Box, Discrete, MultiDiscrete, MultiBinary, and Dict of these."""
    if isinstance(space, spaces.Dict):
        return {"kind": "Dict", "spaces": [[name, space_to_json(part)] for name, part in space.items()]}
    if isinstance(space, spaces.Box):
        bounds = {"low": _plain(space.low), "high": _plain(space.high)}
        return {"kind": "Box", "shape": list(space.shape), "dtype": str(space.dtype), **bounds}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": np.asarray(space.start).tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "shape": list(space.shape)}
    raise ApilError(f"The space {space} ({type(space).__name__}) cannot be written down: wrap the environment.")


def space_from_json(value: Any) -> spaces.Space[Any]:
    try:
        return _space(value)
    except (KeyError, TypeError, ValueError, OverflowError, AssertionError, RecursionError, MemoryError) as error:
        raise ApilError(f"{str(value)[:80]!r} is no space: restore the file it was read from.") from error


def _space(value: dict[str, Any]) -> spaces.Space[Any]:
    kind = value["kind"]
    if kind == "Dict":
        return spaces.Dict([(str(name), _space(part)) for name, part in value["spaces"]])
    if kind == "Box":
        shape, dtype = _shape(value["shape"]), np.dtype(str(value["dtype"]))
        if dtype.kind not in "fiub":
            raise TypeError(dtype)
        bounds = [np.array(value[bound], dtype) for bound in ("low", "high")]
        low, high = (bound.reshape(shape) if bound.ndim else np.full(shape, bound) for bound in bounds)
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(_whole(value["n"]), start=int(value["start"]))
    if kind == "MultiDiscrete":
        counts = np.asarray(value["nvec"], np.int64)
        _whole(int(counts.sum()))
        return spaces.MultiDiscrete(counts, start=np.asarray(value["start"], np.int64))
    if kind == "MultiBinary":
        return spaces.MultiBinary(_shape(value["shape"]))
    raise ValueError(kind)


def _plain(bounds: NDArray[Any]) -> Any:
    """One number where all are equal, else all of them in a row; 'inf' and '-inf' as words."""
    flat = [number if math.isfinite(number) else str(number) for number in bounds.flatten().tolist()]
    return flat[0] if flat and all(number == flat[0] for number in flat) else flat


def _shape(value: Any) -> tuple[int, ...]:
    shape = tuple(int(length) for length in value)
    _whole(math.prod(shape))
    return shape


def _whole(value: int) -> int:
    if not 0 <= int(value) <= _LARGEST:
        raise ValueError(value)
    return int(value)
