"""MAZE: its walls, its moves and its oracle against an independent search."""

from __future__ import annotations

import math
from collections import deque

import pytest
import torch

from apil.errors import ApilError
from apil.rng import Streams, race
from apil.tasks.maze import Maze, MazeState

_MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


@pytest.fixture(scope="module", params=[0, 3])
def maze(request: pytest.FixtureRequest) -> Maze:
    return Maze(size=7, walls=10, wall_seed=request.param)


def _open_cells(maze: Maze) -> set[tuple[int, int]]:
    return {(row, column) for row, cells in enumerate(maze.free.tolist()) for column, free in enumerate(cells) if free}


def _steps_to(goal: tuple[int, int], cells: set[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Breadth-first search from the goal."""
    steps = {goal: 0}
    queue = deque([goal])
    while queue:
        row, column = queue.popleft()
        for down, right in _MOVES:
            there = (row + down, column + right)
            if there in cells and there not in steps:
                steps[there] = steps[(row, column)] + 1
                queue.append(there)
    return steps


def _all_pairs(maze: Maze) -> MazeState:
    """[1, n]: every free cell with every other free cell as its goal."""
    cells = maze.free.flatten().nonzero().flatten()
    first, second = torch.meshgrid(cells, cells, indexing="ij")
    apart = first != second
    return MazeState(first[apart].view(1, -1), second[apart].view(1, -1))


def test_a_maze_has_its_walls_and_its_free_cells_hang_together(maze: Maze) -> None:
    cells = _open_cells(maze)
    assert len(cells) == 7 * 7 - 10
    assert set(_steps_to(min(cells), cells)) == cells


def test_the_walls_are_a_matter_of_the_seed() -> None:
    assert torch.equal(Maze(wall_seed=4).free, Maze(wall_seed=4).free)
    assert not torch.equal(Maze(wall_seed=4).free, Maze(wall_seed=5).free)


@pytest.mark.parametrize("walls", [8, 9, 10])
def test_a_maze_without_room_for_its_walls_a_start_and_a_goal_is_refused(walls: int) -> None:
    with pytest.raises(ApilError, match=f"no room for {walls} walls"):
        Maze(size=3, walls=walls)


def test_a_maze_with_room_for_just_a_start_and_a_goal_is_a_maze() -> None:
    maze = Maze(size=3, walls=7)
    state = maze.reset(Streams([0]).draws("task", 0), 20)
    assert bool((maze.distance(state) == 1).all())


def test_the_oracle_names_exactly_the_moves_that_come_nearer_by_one(maze: Maze) -> None:
    cells = _open_cells(maze)
    size = maze.free.shape[1]
    pairs = _all_pairs(maze)
    reference, distance = maze.reference(pairs), maze.distance(pairs)
    valid = maze.observe(pairs).valid[0].tolist()
    actions, counts = reference.actions[0].tolist(), reference.count[0].tolist()
    steps = {goal: _steps_to(goal, cells) for goal in cells}
    for place, (cell, goal) in enumerate(zip(pairs.cell[0].tolist(), pairs.goal[0].tolist(), strict=True)):
        row, column = divmod(cell, size)
        to_goal = steps[divmod(goal, size)]
        after = [to_goal.get((row + down, column + right)) for down, right in _MOVES]
        assert valid[place] == [there is not None for there in after]
        nearer = [move for move, there in enumerate(after) if there == to_goal[(row, column)] - 1]
        assert actions[place][: counts[place]] == nearer
        assert float(distance[0, place]) == float(reference.distance[0, place]) == to_goal[(row, column)]


def test_starts_and_goals_are_different_free_cells_drawn_uniformly(maze: Maze) -> None:
    episodes = 40_000
    state = maze.reset(Streams([1]).draws("task", 0), episodes)
    assert not bool((state.cell == state.goal).any())
    free = maze.free.flatten()
    places = int(free.sum())
    for drawn in (state.cell, state.goal):
        frequency = torch.bincount(drawn.flatten(), minlength=free.numel()) / episodes
        assert bool((frequency[~free] == 0).all())
        # Five standard errors of a frequency.
        tolerance = 5 * math.sqrt((1 / places) * (1 - 1 / places) / episodes)
        assert float((frequency[free] - 1 / places).abs().max()) < tolerance


def test_moves_go_one_cell_never_into_walls_and_stop_at_the_goal(maze: Maze) -> None:
    episodes = 300
    state = maze.reset(Streams([2]).draws("task", 0), episodes)
    arrival = Streams([2]).draws("moves", 0).exponential(60, episodes, maze.actions)
    arrived = torch.zeros(1, episodes, dtype=torch.bool)
    downs, rights = torch.tensor(_MOVES).T
    size = maze.free.shape[1]
    for t in range(60):
        assert torch.equal(maze.done(state), arrived)
        action = race(maze.observe(state).valid.float(), arrival[:, t])
        moved = maze.step(state, action)
        expected = state.cell + downs[action] * size + rights[action]
        assert torch.equal(moved.cell, torch.where(arrived, state.cell, expected))
        assert torch.equal(moved.goal, state.goal)
        assert bool(maze.free.flatten()[moved.cell].all())
        arrived |= moved.cell == moved.goal
        state = moved
    assert 0 < int(arrived.sum()) < episodes, "some random walks arrive, some do not"
    assert torch.equal(maze.distance(state) == 0, arrived)


def test_every_pair_of_cell_and_goal_looks_different(maze: Maze) -> None:
    pairs = _all_pairs(maze)
    features = maze.observe(pairs).features[0]
    assert features.shape == (pairs.cell.shape[1], maze.state_size)
    assert len({tuple(vector) for vector in features.tolist()}) == len(features)


def test_contested_are_the_pairs_with_several_ways(maze: Maze) -> None:
    pairs = _all_pairs(maze)
    several = maze.reference(pairs).count > 1
    expected = maze.observe(MazeState(pairs.cell[several].view(1, -1), pairs.goal[several].view(1, -1)))
    contested = maze.contested()
    assert {tuple(v) for v in contested.features[0].tolist()} == {tuple(v) for v in expected.features[0].tolist()}
    assert contested.features.shape == expected.features.shape
    assert bool((contested.valid.sum(-1) >= 2).all())


def test_a_picture_shows_walls_agent_and_goal(maze: Maze) -> None:
    state = maze.reset(Streams([5]).draws("task", 0), 1)
    cells = "".join(maze.picture(state, 0, 0).cells)
    assert cells.index("A") == int(state.cell)
    assert cells.index("G") == int(state.goal)
    assert [mark != "#" for mark in cells] == maze.free.flatten().tolist()
