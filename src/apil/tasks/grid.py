"""GRID of the paper: from the top-left to the bottom-right cell of a 5 x 5 grid by moves right and down."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from apil.rng import Draws
from apil.tasks.cells import DOWN, RIGHT, board, place, ways
from apil.types import ActionBox, Observation, Picture, Reference

_EMPTY, _GOAL, _AGENT = 0.0, 0.5, 1.0


class Grid:
    """Every walk reaches the goal in exactly 8 steps: the best query policy never asks.

    The state vector is the raw grid: empty, goal and agent cells as three different floats in [0, 1]. `State` is the
    agent's cell, [runs, episodes] long.
    """

    name = "grid"
    batch = 1
    success_distance = 0.0
    action_names: tuple[str, ...] = ("right", "down")
    box: ActionBox | None = None
    encoder: Callable[[], nn.Module] | None = None

    def __init__(self, size: int = 5) -> None:
        self._size = size
        self.horizon = 2 * (size - 1)
        self.actions = 2
        self.state_size = size * size
        self._goal = size * size - 1
        self._free = torch.ones(size, size, dtype=torch.bool)
        to = ways(self._free, (RIGHT, DOWN))
        self._next = to.after
        self._distance, self._order, self._count = (part[:, self._goal] for part in (to.distance, to.order, to.count))
        self._features = torch.full((size * size, size * size), _EMPTY)
        self._features[:, self._goal] = _GOAL
        self._features.fill_diagonal_(_AGENT)
        self._valid = self._next >= 0
        # No agent moves on from the goal (T is the walk's length), but a row of a distribution must not be empty.
        self._valid[self._goal] = True

    def reset(self, draws: Draws, episodes: int) -> Tensor:
        """All episodes start in the top-left cell; nothing is drawn."""
        return torch.zeros(draws.runs, episodes, dtype=torch.long)

    def observe(self, state: Tensor) -> Observation:
        """The raw grid and the moves that stay inside it."""
        return Observation(self._features[state], self._valid[state], state)

    def states(self) -> Observation:
        """All cells, row by row."""
        return self.observe(torch.arange(self.state_size).unsqueeze(0))

    def reference(self, state: Tensor) -> Reference:
        """Right before down, as far as they are valid; the Manhattan distance."""
        return Reference(self._order[state], self._count.take(state), self._distance.take(state))

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        return self._next[state, action]

    def distance(self, state: Tensor) -> Tensor:
        return self._distance[state]

    def done(self, state: Tensor) -> Tensor:
        return torch.zeros_like(state, dtype=torch.bool)

    def describe(self, state: Tensor, run: int, episode: int) -> str:
        return f"agent at {place(state[run, episode], self._size)}"

    def picture(self, state: Tensor, run: int, episode: int) -> Picture:
        return board(self._free, int(state[run, episode]), self._goal)

    def contested(self) -> Observation:
        """The 16 inner cells, where both moves are valid."""
        return self.observe((self._count > 1).nonzero().view(1, -1))
