"""The reference actions, on a house small enough to work them out by hand (see made_up_r2r)."""

from __future__ import annotations

import pytest
import torch
from made_up_r2r import made_up_files, write_folder

from apil.r2r.compile import compile_world
from apil.r2r.oracle import reference_actions
from apil.r2r.world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("r2r")
    raw = write_folder(folder / "raw", made_up_files())
    return World.open(compile_world(raw, folder, lambda stage, done, total: None))


# Exits of a1: a0 (action 1), a2 (2), a4 (3), a5 (4). a2, a4 and a5 lie within 60 degrees of each other.
@pytest.mark.parametrize(
    ("at", "goal", "literal", "expected"),
    [
        ("a1", "a3", False, [2, 3]),  # two short ways; the dead end a5 leads away
        ("a1", "a3", True, [2, 3, 4]),
        ("a1", "a4", False, [3]),  # a2 is no closer to a4 than a1
        ("a1", "a4", True, [3, 2, 4]),  # the way first, then the order of the file
        ("a1", "a0", True, [1]),  # everything else is behind
        ("a1", "a1", False, [0]),  # at the goal
        ("a1", "a6", False, [0]),  # no way
        ("a6", "a1", True, [0]),
        ("b3", "b0", False, [1]),
    ],
)
def test_reference_actions(world: World, at: str, goal: str, literal: bool, expected: list[int]) -> None:
    a, g = (torch.tensor(world.viewpoints.index(name)) for name in (at, goal))
    actions, count = reference_actions(world, a, g, literal)
    assert actions[: int(count)].tolist() == expected


def test_a_batch_of_any_shape_is_its_single_cases(world: World) -> None:
    at, goal = torch.meshgrid(torch.arange(7), torch.arange(7), indexing="ij")
    actions, count = reference_actions(world, at, goal)
    assert actions.shape == (7, 7, 1 + world.neighbours.shape[1])
    for a in range(7):
        for g in range(7):
            one, n = reference_actions(world, torch.tensor([a]), torch.tensor([g]))
            assert int(n) == int(count[a, g])
            assert one[0].tolist() == actions[a, g].tolist()
