"""What grid worlds share: cells, four moves, shortest paths."""

from __future__ import annotations

import torch
from torch import Tensor

from apil.types import Picture

UP, RIGHT, DOWN, LEFT = (-1, 0), (0, 1), (1, 0), (0, -1)


def neighbours(free: Tensor, moves: tuple[tuple[int, int], ...]) -> Tensor:
    """[cells, moves] long: the cell each move leads to, -1 where it is a wall or outside. `free` is [rows, columns]."""
    rows, columns = free.shape
    table = torch.full((rows * columns, len(moves)), -1)
    for row in range(rows):
        for column in range(columns):
            for move, (down, right) in enumerate(moves):
                r, c = row + down, column + right
                inside = 0 <= r < rows and 0 <= c < columns
                if inside and bool(free[row, column]) and bool(free[r, c]):
                    table[row * columns + column, move] = r * columns + c
    return table


def all_distances(table: Tensor) -> Tensor:
    """[cells, cells] float: steps from row to column along `neighbours`; infinite where there is no way."""
    cells = table.shape[0]
    distance = torch.full((cells, cells), torch.inf)
    distance.fill_diagonal_(0.0)
    for _ in range(cells):
        via = torch.where((table >= 0).unsqueeze(-1), distance[table.clamp_min(0)], torch.inf)
        distance = torch.minimum(distance, via.amin(1) + 1.0)
    return distance


def ordered_references(table: Tensor, distance: Tensor) -> tuple[Tensor, Tensor]:
    """All moves on a shortest path, for every (cell, goal): actions [cells, goals, moves] in the order of the moves,
    and their count [cells, goals], at least 1 (at the goal itself, where no move is asked for, the first move).
    """
    after = torch.where((table >= 0).unsqueeze(-1), distance[table.clamp_min(0)], torch.inf)
    nearer = (after + 1.0 == distance.unsqueeze(1)) & distance.isfinite().unsqueeze(1)
    nearer = nearer.transpose(1, 2)
    order = torch.sort((~nearer).long(), dim=-1, stable=True).indices
    return order, nearer.sum(-1).clamp_min(1)


def place(cell: Tensor, columns: int) -> str:
    """A cell in words."""
    return f"row {int(cell) // columns}, column {int(cell) % columns}"


def board(free: Tensor, agent: int, goal: int) -> Picture:
    """The board of a grid world; the agent is drawn over the goal."""
    rows, columns = free.shape
    marks = ["." if open_ else "#" for open_ in free.flatten().tolist()]
    marks[goal] = "G"
    marks[agent] = "A"
    return Picture(tuple("".join(marks[row * columns : (row + 1) * columns]) for row in range(rows)))
