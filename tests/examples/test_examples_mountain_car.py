"""The worked example "two controllers of a mountain car", in small."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from example_parts import imported, lines_of_task, tiny_study

import apil


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    with imported("mountain_car") as module:
        yield module


def test_both_controllers_reach_the_top_with_different_forces(example: ModuleType) -> None:
    forces = {}
    for member in example.controllers().people:
        for seed in range(10):
            env = example.make_env()
            seen, _ = env.reset(seed=seed)
            arrived = False
            taken: list[Any] = []
            while not arrived and len(taken) < example.HORIZON:
                taken.append(member.policy(seen, np.random.default_rng(0)))
                seen, _, arrived, _, _ = env.step(taken[-1])
            assert arrived
            forces[member.name] = {round(abs(float(action[0])), 3) for action in taken}
    assert forces == {"full": {1.0}, "gentle": {0.6}}


def test_an_action_is_held_for_eight_steps(example: ModuleType) -> None:
    held, plain = example.make_env(), example.make_env().env
    held.reset(seed=0)
    plain.reset(seed=0)
    push = np.array([1.0], np.float32)
    for _ in range(8):
        after = plain.step(push)[0]
    assert held.step(push)[0] == pytest.approx(after)


def test_its_parts_are_sound_and_short(example: ModuleType) -> None:
    task = example.task()
    apil.check_task(task)
    apil.check_teacher(example.controllers(), task)
    assert lines_of_task("mountain_car") <= 60


def test_its_study_compares_the_rules(example: ModuleType, tmp_path: Path) -> None:
    out = tiny_study("mountain_car", tmp_path)
    found = json.loads((out / "mountain-car" / "interactions.json").read_text())
    assert [entry["query"].split("@")[0] for entry in found["entries"]] == ["dagger", "apil", "random", "behvun"]
    assert set(found["entries"][0]["answers"]) == {"full", "gentle"}
