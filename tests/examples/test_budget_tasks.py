"""The tasks of the benchmark at equal answers: sound parts, teachers who arrive, differ and vary."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from example_parts import imported

import apil
from apil.tasks import TASKS
from apil.teachers import TEACHERS
from apil.teachers.policies import Scripted, as_policy

# Box2D's bindings warn while they are imported, and crash the interpreter where a warning is an error.
pytestmark = pytest.mark.filterwarnings("ignore:builtin type .* has no __module__ attribute:DeprecationWarning")


@dataclass(frozen=True)
class Family:
    """A file of the benchmark."""

    needs: str
    teachers: str
    """What the names of its teachers begin with."""
    tasks: tuple[str, ...]
    least: float = 1.0
    """Success of each teacher when it is followed."""


FAMILIES = {
    "minigrid_experts": Family("minigrid", "room", ("room",)),
    "mountain_car": Family("gymnasium", "car", ("mountain-car",)),
    "budget/minigrid_levels": Family("minigrid", "way", ("lava-gap", "lava-crossing", "dist-shift", "door-key")),
    "budget/babyai_level": Family("minigrid", "bot", ("go-to-local",), least=0.8),  # the bot forgets what it saw before
    "budget/lunar_lander": Family("Box2D", "pilot", ("lander",), least=0.7),
    "budget/reacher": Family("mujoco", "arm", ("reacher",), least=0.9),
}


@pytest.fixture(scope="module", params=FAMILIES)
def example(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    if importlib.util.find_spec(FAMILIES[request.param].needs) is None:
        pytest.skip(f"needs the module {FAMILIES[request.param].needs}")
    with imported(request.param) as module:
        yield module


def _family(example: ModuleType) -> Family:
    return next(family for name, family in FAMILIES.items() if name.rpartition("/")[2] == example.__name__)


def _ask(policy: Any, env: Any, rng: np.random.Generator) -> Any:
    assert isinstance(policy, Scripted)
    return policy.script(env if policy.privileged else env.observation, rng)


def test_parts_are_sound(example: ModuleType) -> None:
    family = _family(example)
    for name in family.tasks:
        task = TASKS.load(name)()
        apil.check_task(task)
        apil.check_teacher(TEACHERS.load(f"{family.teachers}-three")(), task)
        task.close()


def test_teachers_arrive(example: ModuleType) -> None:
    family = _family(example)
    for name in family.tasks:
        task = TASKS.load(name)()
        env = task.make()
        for person in TEACHERS.load(f"{family.teachers}-three")().people:
            policy, reached = as_policy(person.policy), 0
            for seed in range(12):
                env.reset(seed=seed)
                rng = np.random.default_rng(seed)
                while not env.over and env.steps < task.horizon:
                    env.step(_ask(policy, env, rng))
                reached += float(env.record[0]) <= task.success_distance
            assert reached >= 12 * family.least, (name, person.name)


def test_two_differ_and_one_varies(example: ModuleType) -> None:
    """On the ways of the others; a task has states where they agree, too."""
    family = _family(example)
    for name in family.tasks:
        task = TASKS.load(name)()
        env = task.make()
        one, other = (as_policy(person.policy) for person in TEACHERS.load(f"{family.teachers}-twodif")().people)
        (varying,) = (as_policy(person.policy) for person in TEACHERS.load(f"{family.teachers}-rand")().people)
        (steady,) = (as_policy(person.policy) for person in TEACHERS.load(f"{family.teachers}-detm")().people)
        differ = varies = same = 0
        for seed in range(20):
            env.reset(seed=seed)
            rng = np.random.default_rng(seed)
            while not env.over and env.steps < task.horizon:
                answers = [np.asarray(_ask(policy, env, rng)) for policy in (one, other, varying, varying)]
                differ += not np.array_equal(answers[0], answers[1])
                varies += not np.array_equal(answers[2], answers[3])
                same += np.array_equal(_ask(steady, env, rng), _ask(steady, env, rng))
                env.step(answers[seed % 4])
        assert differ, name
        assert varies, name
        assert same >= differ, name


def test_a_step_into_the_lava_is_the_end_and_as_far_as_can_be() -> None:
    pytest.importorskip("minigrid", reason="needs the extra minigrid")
    with imported("budget/minigrid_levels") as example:
        task = example.lava_gap()
        env = task.make()
        env.reset(seed=0)
        while not env.over:
            near = float(env.record[0])
            ahead = example.HEADINGS[env.unwrapped.agent_dir]
            x, y = env.unwrapped.agent_pos
            thing = env.unwrapped.grid.get(int(x) + ahead[0], int(y) + ahead[1])
            env.step(2 if thing is None or thing.type == "lava" else 1)  # walks on, and turns at a wall
        assert env.terminated
        assert near < float(env.record[0]) == task.horizon


def test_distances_fall_by_one_on_the_way_through_the_door() -> None:
    pytest.importorskip("minigrid", reason="needs the extra minigrid")
    with imported("budget/minigrid_levels") as example:
        env = example.door_key().make()
        for seed in range(5):
            env.reset(seed=seed)
            far = [float(env.record[0])]
            while not env.over:
                env.step(env.env.right()[0])
                far.append(float(env.record[0]))
            assert far == list(range(int(far[0]), -1, -1))
        # A door that was closed again costs one more action, and what carries no key cannot be dropped.
        env.reset(seed=0)
        while env.env.door.is_locked:
            env.step(env.env.right()[0])
        open_far = float(env.record[0])
        env.step(4)
        assert not env.env.door.is_open
        assert float(env.record[0]) == open_far + 1


def test_babyai_is_reached_before_the_object_that_the_mission_names() -> None:
    pytest.importorskip("minigrid", reason="needs the extra minigrid")
    with imported("budget/babyai_level") as example:
        env = example.go_to_local().make()
        for seed in range(10):
            env.reset(seed=seed)
            while not env.over:
                env.step(env.env.right()[-1])
            thing = env.unwrapped.grid.get(*env.unwrapped.front_pos)
            assert thing.color in env.unwrapped.mission
            assert thing.type in env.unwrapped.mission
            assert float(env.record[0]) == 0
