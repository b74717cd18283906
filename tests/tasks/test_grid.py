"""GRID: every walk succeeds in 8 steps, and the oracle knows the way."""

from __future__ import annotations

import torch

from apil.rng import Streams, race
from apil.tasks.grid import Grid

_SIZE = 5
_RIGHT, _DOWN = 0, 1


def _start(grid: Grid, episodes: int, runs: int = 1) -> torch.Tensor:
    return grid.reset(Streams(list(range(runs))).draws("task", 0), episodes)


def test_every_walk_of_valid_moves_reaches_the_goal_in_eight_steps() -> None:
    grid = Grid()
    runs, episodes = 2, 500
    state = _start(grid, episodes, runs)
    arrival = Streams([0, 1]).draws("moves", 0).exponential(grid.horizon, episodes, grid.actions)
    assert grid.horizon == 8
    row = torch.zeros(runs, episodes, dtype=torch.long)
    column = row.clone()
    for t in range(grid.horizon):
        assert not bool(grid.done(state).any())
        valid = grid.observe(state).valid
        # Down leads out of the grid from the bottom row, right from the right column.
        assert torch.equal(valid[..., _RIGHT], column < _SIZE - 1)
        assert torch.equal(valid[..., _DOWN], row < _SIZE - 1)
        assert torch.equal(grid.distance(state), (2.0 * (_SIZE - 1) - row - column))
        action = race(valid.float(), arrival[:, t])
        row += action == _DOWN
        column += action == _RIGHT
        state = grid.step(state, action)
        assert torch.equal(state, row * _SIZE + column)
    assert bool((grid.distance(state) == 0).all())


def test_all_walks_start_in_the_top_left_cell() -> None:
    assert torch.equal(_start(Grid(), 3, runs=2), torch.zeros(2, 3, dtype=torch.long))


def test_the_oracle_names_right_before_down_as_far_as_they_are_valid() -> None:
    grid = Grid()
    cells = torch.arange(_SIZE * _SIZE - 1).view(1, -1)
    reference = grid.reference(cells)
    for cell in range(_SIZE * _SIZE - 1):
        row, column = divmod(cell, _SIZE)
        expected = [_RIGHT] * (column < _SIZE - 1) + [_DOWN] * (row < _SIZE - 1)
        count = int(reference.count[0, cell])
        assert reference.actions[0, cell, :count].tolist() == expected
        assert float(reference.distance[0, cell]) == 2 * (_SIZE - 1) - row - column


def test_the_state_vector_is_the_grid_with_three_kinds_of_cells() -> None:
    grid = Grid()
    cells = torch.arange(_SIZE * _SIZE - 1).view(1, -1)
    features = grid.observe(cells).features[0]
    assert features.shape == (_SIZE * _SIZE - 1, grid.state_size)
    empty, goal, agent = 0.0, float(features[0, -1]), float(features[0, 0])
    assert len({empty, goal, agent}) == 3
    assert 0 < goal <= 1
    assert 0 < agent <= 1
    for cell, vector in enumerate(features.tolist()):
        expected = [empty] * grid.state_size
        expected[-1] = goal
        expected[cell] = agent
        assert vector == expected


def test_contested_are_the_cells_with_two_ways() -> None:
    grid = Grid()
    contested = grid.contested()
    assert contested.features.shape[:2] == (1, 16)
    assert bool(contested.valid.all())
    inner = torch.tensor([[row * _SIZE + column for row in range(4) for column in range(4)]])
    assert torch.equal(contested.features, grid.observe(inner).features)


def test_a_grid_of_another_size_is_a_grid() -> None:
    grid = Grid(3)
    state = _start(grid, 1)
    for _ in range(grid.horizon):
        state = grid.step(state, grid.reference(state).actions[..., 0])
    assert grid.horizon == 4
    assert float(grid.distance(state)) == 0


def test_a_picture_and_a_sentence_show_where_the_agent_is() -> None:
    grid = Grid()
    state = torch.tensor([[0, 7]])
    assert grid.picture(state, 0, 1).cells == (".....", "..A..", ".....", ".....", "....G")
    assert grid.describe(state, 0, 1) == "agent at row 1, column 2"
