"""The navigation graphs as tables: exits with their geometry, distances, the way to every goal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apil.errors import ApilError
from apil.r2r.layout import Graph

Arrays = dict[str, NDArray[Any]]

TIE = 1e-6
"""Metres: ways whose lengths differ by less are equally short."""
SIMILAR = np.cos(np.radians(60.0)) - 1e-9
"""Two exits lead the same way if the cosine of the angle between them, in space, is at least this: 60 degrees."""


def padded(rows: Sequence[Sequence[float]], width: int, fill: float, dtype: type) -> NDArray[Any]:
    """[rows, width]: rows of different lengths, filled up at the end."""
    filled = [[*row, *[fill] * (width - len(row))] for row in rows]
    return np.array(filled, dtype=dtype).reshape(len(rows), width)


def graph_tables(graphs: list[Graph]) -> Arrays:
    """The tables of all graphs; viewpoints are numbered scan after scan, in the order of the files."""
    degree = max(1, *(int(graph.open.sum(1).max(initial=0)) for graph in graphs))
    sizes = np.array([len(graph.viewpoints) for graph in graphs], dtype=np.int64)
    first = np.cumsum(sizes) - sizes
    parts = [_tables(graph, degree, start) for graph, start in zip(graphs, first, strict=True)]
    return {
        **{name: np.concatenate([part[name] for part in parts]) for name in parts[0]},
        "scan": np.repeat(np.arange(len(graphs)), sizes),
        "local": np.concatenate([np.arange(size) for size in sizes]),
        "size": sizes,
        "offset": np.cumsum(sizes**2) - sizes**2,
    }


def _tables(graph: Graph, degree: int, first: int) -> Arrays:
    """The tables of one scan, whose viewpoints are numbered from `first`; their shapes are in `World`."""
    from scipy.sparse.csgraph import dijkstra

    neighbours = padded([np.flatnonzero(row).tolist() for row in graph.open], degree, -1, np.int64)
    there = neighbours >= 0
    away = np.where(there[..., None], graph.position[neighbours] - graph.position[:, None], 0.0)
    length = np.linalg.norm(away, axis=-1)
    if len(same := np.argwhere(there & (length < TIE))):
        at, slot = same[0]
        pair = f"{graph.viewpoints[at]} and {graph.viewpoints[neighbours[at, slot]]}"
        raise ApilError(f"{graph.file}: the neighbours {pair} are at the same place: download the file again.")
    unit = away / np.maximum(length, TIE)[..., None]
    cosine = np.einsum("nix,njx->nij", unit, unit)
    edges = np.zeros(graph.open.shape)
    edges[graph.open] = length[there]
    distance = dijkstra(edges)
    # From 0 to below 2 pi: rounding to single precision may reach it.
    heading = np.mod(np.arctan2(away[..., 0], away[..., 1]), 2 * np.pi).astype(np.float32)
    return {
        "position": graph.position.astype(np.float32),
        "neighbours": np.where(there, neighbours + first, -1),
        "heading": np.where(heading >= np.float32(2 * np.pi), np.float32(0.0), heading),
        "elevation": np.arctan2(away[..., 2], np.hypot(away[..., 0], away[..., 1])).astype(np.float32),
        "length": length.astype(np.float32),
        "similar": (cosine >= SIMILAR) & there[:, :, None] & there[:, None, :],
        "distances": distance.astype(np.float32).reshape(-1),
        "next_slots": _next_slots(neighbours, length, distance).reshape(-1),
    }


def _next_slots(
    neighbours: NDArray[np.int64], length: NDArray[np.float64], distance: NDArray[np.float64]
) -> NDArray[np.int8]:
    """[n, n]: the exit that begins the shortest path from row to column, the first of equals; -1: none, or there."""
    via = np.where((neighbours >= 0)[..., None], length[..., None] + distance[neighbours], np.inf)
    shortest = via <= via.min(axis=1, keepdims=True) + TIE
    slot: NDArray[np.int8] = shortest.argmax(axis=1).astype(np.int8)
    slot[~np.isfinite(distance)] = -1
    np.fill_diagonal(slot, -1)
    return slot
