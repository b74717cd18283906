"""The worked example "two experts on MiniGrid", in small."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from example_parts import imported, lines_of_task, tiny_study

import apil

pytest.importorskip("minigrid", reason="needs the extra minigrid")


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    with imported("minigrid_experts") as module:
        yield module


def _steps(goal: tuple[int, int], x: int, y: int, heading: int) -> int:
    """Fewest steps to the goal in an empty room, by reckoning: the way, and the turns between its headings."""
    east, south = goal[0] - x, goal[1] - y
    needed = [0 if east > 0 else 2] * bool(east) + [1 if south > 0 else 3] * bool(south)
    if len(needed) == 2:
        turns = 1 if heading in needed else 2
    else:
        turns = min((heading - way) % 4 if (heading - way) % 4 < 3 else 1 for way in needed) if needed else 0
    return abs(east) + abs(south) + turns


def test_the_planner_finds_the_fewest_steps(example: ModuleType) -> None:
    for goal in ((1, 1), (3, 4), (6, 2)):
        found = example.plan(goal)
        assert len(found) == 36 * 4
        assert found == {place: _steps(goal, *place) for place in found}


def _walk(example: ModuleType, act: Any, seed: int) -> tuple[list[int], bool, float]:
    """The actions of an expert, whether it arrived, and how far it was at the start."""
    env = example.Room()
    env.reset(seed=seed)
    episode = SimpleNamespace(unwrapped=env)
    start = example.distance(episode)
    actions, arrived, over = [], False, False
    while not (arrived or over):
        actions.append(act(episode, np.random.default_rng(0)))
        _, _, arrived, over, _ = env.step(actions[-1])
    return actions, arrived, start


def test_both_experts_arrive_and_go_different_ways(example: ModuleType) -> None:
    scripts = [member.policy.script for member in example.experts().people]
    differ = 0
    for seed in range(40):
        walks = [_walk(example, script, seed) for script in scripts]
        assert all(arrived and len(actions) <= start + 2 for actions, arrived, start in walks)
        differ += walks[0][0] != walks[1][0]
    assert differ > 10, "only where start and goal share a row or a column there is one way"


def test_its_parts_are_sound_and_short(example: ModuleType) -> None:
    task = example.room()
    apil.check_task(task)
    apil.check_teacher(example.experts(), task)
    assert lines_of_task("minigrid_experts") <= 60


def test_its_study_compares_the_rules(example: ModuleType, tmp_path: Path) -> None:
    out = tiny_study("minigrid", tmp_path)
    found = json.loads((out / "room" / "interactions.json").read_text())
    assert [entry["query"].split("@")[0] for entry in found["entries"]] == [
        "dagger", "apil", "random", "entropy", "behvun",
    ]  # fmt: skip
    assert set(found["entries"][0]["answers"]) == {"row-first", "column-first"}
    assert (out / "room" / "figure_success_answers.png").is_file()
