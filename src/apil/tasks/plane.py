"""Where a state lies on a plane, for pictures of where a rule asked: the facet `plane` of a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Plane:
    """A map of the states of a task."""

    place: Callable[[NDArray[np.float32]], Floats]
    """From what the agent saw, [n, F], to x and y, [n, 2]."""
    x: str
    """The label of the axis."""
    y: str
    cells: tuple[int, int] = (24, 24)
    """Columns and rows of the heat map."""
    bounds: tuple[float, float, float, float] | None = None
    """x from and to, y from and to; those of the states themselves if not given."""
    downwards: bool = False
    """y grows downwards, as the rows of a grid do."""


MakePlane = Callable[[Mapping[str, Any]], Plane]
"""The facet itself: from the options of a task to its plane."""


def grid_plane(columns: int, rows: int, place: Callable[[NDArray[np.float32]], Floats]) -> Plane:
    """That of a grid world, a cell of the map for each of its own; `place` gives column and row, from 0."""
    return Plane(place, "column", "row", (columns, rows), (-0.5, columns - 0.5, -0.5, rows - 0.5), downwards=True)


def maze_plane(options: Mapping[str, Any]) -> Plane:
    """Where the agent stands."""
    size = int(options.get("size", 7))

    def place(features: NDArray[np.float32]) -> Floats:
        cell = features[:, : size * size].argmax(1)
        return np.stack([cell % size, cell // size], 1).astype(np.float64)

    return grid_plane(size, size, place)
