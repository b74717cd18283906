"""The environments of `benchmarks/defaults.py`: their experts reach the goal, and the yardstick learns from them."""

from __future__ import annotations

import numpy as np
import pytest

from expert_grids import right_in_minigrid
from experts import DEVELOPMENT, REPORTED, Bench, expert_success, success
from supervised import learn

# Box2D's bindings warn while they are imported, and crash the interpreter where a warning is an error.
pytestmark = pytest.mark.filterwarnings("ignore:builtin type .* has no __module__ attribute:DeprecationWarning")

LEAST = {"lander": 0.75}
"""Success of the weaker expert in 20 episodes; a heuristic lands most of the time, the others always arrive."""


def _needed(bench: Bench) -> None:
    if not bench.available:
        pytest.skip(f"needs the module {bench.needs}")


@pytest.mark.parametrize("bench", [*DEVELOPMENT, *REPORTED], ids=lambda bench: bench.name)
def test_the_experts_reach_the_goal(bench: Bench) -> None:
    _needed(bench)
    assert min(expert_success(bench, episodes=20).values()) >= LEAST.get(bench.name, 1.0)


@pytest.mark.parametrize("bench", [*DEVELOPMENT, *REPORTED], ids=lambda bench: bench.name)
def test_the_experts_differ_somewhere(bench: Bench) -> None:
    """On states that random actions lead to, or one of them."""
    _needed(bench)
    rng, env = np.random.default_rng(0), bench.task().make()
    one, other = bench.experts.values()
    for seed in range(20):
        env.reset(seed=seed)
        while not env.over and env.steps < bench.horizon:
            if one(env) != other(env):
                return
            env.step(one(env) if seed % 2 else rng.integers(env.action_space.n))  # type: ignore[attr-defined]
    pytest.fail("the same answer everywhere")


def test_the_planner_finds_its_way_back_from_blunders() -> None:
    """A key dropped elsewhere, a door closed again: there is always a right action, and it still arrives."""
    pytest.importorskip("minigrid", reason="needs the extra minigrid")
    bench = next(bench for bench in REPORTED if bench.name == "door-key")
    rng, env = np.random.default_rng(0), bench.task().make()
    for seed in range(10):
        env.reset(seed=seed)
        for _ in range(40):
            if not env.over:
                env.step(rng.integers(7) if rng.random() < 0.5 else right_in_minigrid(env)[0])
        while not env.over:
            env.step(right_in_minigrid(env)[0])
        assert env.terminated


def test_the_yardstick_learns_from_demonstrations() -> None:
    bench = next(bench for bench in DEVELOPMENT if bench.name == "cart-pole")
    task, expert, rows, answers = bench.task(), bench.experts["calm"], [], []
    env = task.make()
    for seed in range(5):
        env.reset(seed=seed)
        for _ in range(task.horizon):
            rows.append(env.observation)
            answers.append(expert(env))
            env.step(answers[-1])
    policy = learn(np.stack(rows), np.array(answers), task.actions, seed=0)
    learned = success(task, lambda envs: policy(np.stack([env.observation for env in envs])), episodes=20, seed=0)
    idle = success(task, lambda envs: [0] * len(envs), episodes=20, seed=0)
    assert idle == 0.0
    assert learned >= 0.9
