"""What grid worlds share: cells, four moves, shortest ways."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path
from torch import Tensor
from torch.nn.functional import pad

from apil.types import Picture

UP, RIGHT, DOWN, LEFT = (-1, 0), (0, 1), (1, 0), (0, -1)


@dataclass(frozen=True)
class Ways:
    """The shortest ways between all cells of a grid world, which are numbered row by row."""

    after: Tensor
    """[cells, moves] long: the cell each move leads to, -1 where it is a wall or outside."""
    distance: Tensor
    """[cells, goals] float: steps; infinite where there is no way."""
    order: Tensor
    """[cells, goals, moves] long: the moves on a shortest way in the order of the moves, then the others."""
    count: Tensor
    """[cells, goals] long: how many moves are on a shortest way; 1 at the goal itself, where no move is asked for."""


def ways(free: Tensor, moves: tuple[tuple[int, int], ...]) -> Ways:
    """The ways through `free` [rows, columns] by moves (down, right)."""
    rows, columns = free.shape
    cells = pad(torch.where(free, torch.arange(free.numel()).view(rows, columns), -1), (1, 1, 1, 1), value=-1)
    there = [cells[1 + down : 1 + down + rows, 1 + right : 1 + right + columns] for down, right in moves]
    after = torch.where(free.unsqueeze(-1), torch.stack(there, dim=-1), -1).flatten(0, 1)
    start, move = (after >= 0).nonzero(as_tuple=True)
    graph = csr_array((np.ones(len(start)), (start, after[start, move])), shape=(free.numel(), free.numel()))
    distance = torch.from_numpy(shortest_path(graph, unweighted=True)).float()
    beyond = torch.where((after >= 0).unsqueeze(-1), distance[after.clamp_min(0)], torch.inf)
    nearer = ((beyond + 1.0 == distance.unsqueeze(1)) & distance.isfinite().unsqueeze(1)).transpose(1, 2)
    order = torch.sort((~nearer).long(), dim=-1, stable=True).indices
    return Ways(after, distance, order, nearer.sum(-1).clamp_min(1))


def place(cell: Tensor, columns: int) -> str:
    return f"row {int(cell) // columns}, column {int(cell) % columns}"


def board(free: Tensor, agent: int, goal: int) -> Picture:
    """The board of a grid world; the agent is drawn over the goal."""
    marks = np.where(free.numpy(), ".", "#")
    marks.flat[goal] = "G"
    marks.flat[agent] = "A"
    return Picture(tuple("".join(row) for row in marks))
