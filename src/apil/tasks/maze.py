"""MAZE: a grid world in which an agent can fail, so that APIL has something to learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from scipy.ndimage import label
from torch import Tensor, nn
from torch.nn.functional import one_hot

from apil.errors import ApilError
from apil.rng import Draws, Streams
from apil.tasks.cells import DOWN, LEFT, RIGHT, UP, board, place, ways
from apil.types import ActionBox, Observation, Picture, Reference

_MOVES = (UP, RIGHT, DOWN, LEFT)


@dataclass(frozen=True)
class MazeState:
    """Where the agents stand and where they want to go, both [runs, episodes] long."""

    cell: Tensor
    goal: Tensor


class Maze:
    """A fixed maze (walls from a seed), a random start and another random goal each episode, 20 steps.

    The state vector marks the agent's cell, row and column, the goal's, and the rows and columns between them: dropout
    hides a fifth of it. The walls are not in it. A move into a wall is masked. An episode stops at the goal.
    """

    name = "maze"
    batch = 16
    success_distance = 0.0
    action_names: tuple[str, ...] = ("up", "right", "down", "left")
    box: ActionBox | None = None
    encoder: Callable[[], nn.Module] | None = None

    def __init__(self, size: int = 7, walls: int = 6, wall_seed: int = 0, horizon: int = 20) -> None:
        self.horizon = horizon
        self.actions = len(_MOVES)
        self.free = _dig(size, walls, wall_seed)
        self._open = self.free.flatten().nonzero().flatten()
        self._ways = ways(self.free, _MOVES)
        self._place, self._towards = _features(size)
        self.state_size = 2 * self._place.shape[-1] + self._towards.shape[-1]

    @property
    def feature_kinds(self) -> tuple[tuple[int, Literal["floats", "bytes", "bits"]], ...]:
        return ((self.state_size, "bits"),)

    def reset(self, draws: Draws, episodes: int) -> MazeState:
        """Start and goal: two different free cells, uniformly."""
        places = self._open.numel()
        u = draws.uniform(2, episodes)
        start = (u[:, 0] * places).long()
        # The goal is any of the other places: skip the start.
        goal = (u[:, 1] * (places - 1)).long()
        goal += goal >= start
        return MazeState(self._open[start], self._open[goal])

    def observe(self, state: MazeState) -> Observation:
        """Where the agent and the goal are; the moves that are not walls."""
        towards = self._towards[state.cell, state.goal]
        features = torch.cat([self._place[state.cell], self._place[state.goal], towards], dim=-1)
        return Observation(features, self._ways.after[state.cell] >= 0)

    def reference(self, state: MazeState) -> Reference:
        """All moves on a shortest path in the order up, right, down, left; its length."""
        at = (state.cell, state.goal)
        return Reference(self._ways.order[at], self._ways.count[at], self._ways.distance[at])

    def step(self, state: MazeState, action: Tensor) -> MazeState:
        """One cell; at the goal the episode has ended and nothing moves."""
        moved = self._ways.after[state.cell, action]
        return MazeState(torch.where(self.done(state), state.cell, moved), state.goal)

    def distance(self, state: MazeState) -> Tensor:
        return self._ways.distance[state.cell, state.goal]

    def done(self, state: MazeState) -> Tensor:
        return state.cell == state.goal

    def describe(self, state: MazeState, run: int, episode: int) -> str:
        cell, goal = (place(cells[run, episode], len(self.free)) for cells in (state.cell, state.goal))
        return f"agent at {cell}, goal at {goal}"

    def picture(self, state: MazeState, run: int, episode: int) -> Picture:
        return board(self.free, int(state.cell[run, episode]), int(state.goal[run, episode]))

    def contested(self) -> Observation:
        pairs = (self._ways.count > 1).nonzero()
        return self.observe(MazeState(pairs[:, 0].view(1, -1), pairs[:, 1].view(1, -1)))


def _features(size: int) -> tuple[Tensor, Tensor]:
    """One-hot codes: of a cell, its row and its column, [cells, size² + 2 size]; and of the rows and columns from a
    cell to a goal, [cells, goals, 2 (2 size - 1)].
    """
    cells = torch.arange(size * size)
    axes = [cells // size, cells % size]
    place = torch.cat([torch.eye(size * size), *[one_hot(axis, size) for axis in axes]], dim=-1)
    towards = [one_hot(axis - axis.unsqueeze(1) + size - 1, 2 * size - 1) for axis in axes]
    return place, torch.cat(towards, dim=-1).float()


def _dig(size: int, walls: int, seed: int) -> Tensor:
    """[size, size] bool, true where free: `walls` cells filled one by one, never cutting the free cells apart."""
    order = Streams([seed]).draws("walls", 0).uniform(size * size)[0].argsort()
    free = torch.ones(size * size, dtype=torch.bool)
    for cell in order.tolist():
        if int((~free).sum()) == walls:
            break
        free[cell] = False
        if label(free.view(size, size))[1] > 1:
            free[cell] = True
    if int((~free).sum()) != walls or walls > size * size - 2:
        raise ApilError(f"A {size} x {size} maze has no room for {walls} walls, a start and a goal: use fewer.")
    return free.view(size, size)
