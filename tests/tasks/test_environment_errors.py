"""Environments are other people's code: what they do wrong is one line, or does not matter."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pytest
import torch
from gymnasium import spaces
from toy_environments import Corridor, Shows

import apil
from apil.errors import ApilError
from apil.rng import Streams
from apil.tasks import from_gymnasium
from apil.tasks.gymnasium import GymnasiumTask
from apil.teachers import Member, Team


def _walk(task: GymnasiumTask, steps: int = 3) -> Any:
    try:
        state = task.reset(Streams([0]).draws("task", 0), 2)
        for _ in range(steps):
            state = task.step(state, torch.ones(1, 2, dtype=torch.long))
        return state
    finally:
        task.close()


class TwoPartError(Exception):
    """Cannot be unpickled: it is made of two parts and keeps one."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)


class Faulty(Corridor):
    """Does one thing wrong at its second step, or when it is reset."""

    def __init__(self, fault: str) -> None:
        super().__init__(length=5)
        self.fault = fault

    def reset(self, **given: Any) -> Any:
        seen, info = super().reset(**given)
        if self.fault == "reset raises":
            raise TwoPartError(7, "no robot\nin sight")
        return {"reset is no tuple": seen, "reset has no info": (seen, None)}.get(self.fault, (seen, info))

    def step(self, action: Any) -> Any:
        seen, reward, terminated, truncated, info = super().step(action)
        if self.steps < 2:
            return seen, reward, terminated, truncated, info
        if self.fault == "step raises":
            raise TwoPartError(7, "a wire is loose")
        return {
            "four values": (seen, reward, terminated, info),
            "no info": (seen, reward, terminated, truncated, None),
            "a word as reward": (seen, "much", terminated, truncated, info),
            "no reward": (seen, None, terminated, truncated, info),
            "a missing reward": (seen, math.nan, terminated, truncated, info),
            "an infinite reward": (seen, math.inf, terminated, truncated, info),
            "two ends": (seen, reward, np.array([True, False]), truncated, info),
        }[self.fault]


FAULTS = {
    "reset raises": "raised TwoPartError: no robot in reset, at step 0",
    "reset is no tuple": r"reset returned array.*, expected the tuple \(observation, info\)",
    "reset has no info": "info is None, expected a dict, at step 0",
    "step raises": "raised TwoPartError: a wire is loose in step, at step 2",
    "four values": "step returned .*, expected the tuple",
    "no info": "info is None, expected a dict, at step 2",
    "a word as reward": "the reward is 'much', expected a finite number, at step 2",
    "no reward": "the reward is None, expected a finite number",
    "a missing reward": "the reward is nan, expected a finite number",
    "an infinite reward": "the reward is inf, expected a finite number",
    "two ends": "its end is .*, expected two truth values",
}


@pytest.mark.parametrize(
    ("fault", "vectorise"),
    [*((fault, "sync") for fault in FAULTS), ("reset raises", "async"), ("step raises", "async")],
)
def test_what_an_environment_does_wrong_is_one_line(fault: str, vectorise: Literal["sync", "async"]) -> None:
    task = from_gymnasium(
        lambda: Faulty(fault), distance="return", best_return=1.0, horizon=5, name="hall", vectorise=vectorise
    )
    with pytest.raises(ApilError, match=rf"^Environment 'hall'.*{FAULTS[fault]}.*reset\(seed=\d+\)") as caught:
        _walk(task)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", ["distance", "valid_actions"])
def test_a_function_that_raises_is_named(given: str) -> None:
    def broken(env: Any) -> Any:
        raise KeyError("lidar")

    functions: dict[str, Any] = {"distance": "success", given: broken}
    task = from_gymnasium(Corridor, horizon=3, name="hall", **functions)
    with pytest.raises(ApilError, match=f"raised KeyError: 'lidar' in the function given as {given}, at step 0"):
        _walk(task)


def test_an_environment_that_cannot_be_closed_is_a_warning(capfd: pytest.CaptureFixture[str]) -> None:
    class Stuck(Corridor):
        def close(self) -> None:
            raise RuntimeError("jammed")

    _walk(from_gymnasium(Stuck, distance="success", horizon=3, name="hall"))
    warned = capfd.readouterr().err.splitlines()
    assert len(warned) == 2  # there are two episodes
    assert warned[0].startswith("apil: warning: Environment 'hall' raised RuntimeError: jammed in close")


def test_numbers_outside_their_box_are_scaled_on_and_clipped_far_outside(capfd: pytest.CaptureFixture[str]) -> None:
    box = spaces.Box(-2.0, 2.0, (2,), np.float32)
    shown = [[0.0, 1.0], [2.5, -3.9], [2.0, 400.0], [-400.0, 0.0]]
    task = from_gymnasium(
        lambda: Shows(box, lambda env: np.array(shown[env.steps], np.float32)), distance=lambda env: 1.0, horizon=5
    )
    state = task.reset(Streams([0]).draws("task", 0), 1)
    seen = [state.features[0, 0].tolist()]
    for _ in range(3):
        if len(seen) == 2:
            assert capfd.readouterr().err == ""
        state = task.step(state, torch.zeros(1, 1, dtype=torch.long))
        seen.append(state.features[0, 0].tolist())
    assert np.array(seen) == pytest.approx(np.array([[0, 0.5], [1.25, -1.95], [1, 2], [-2, 0]]))
    warned = capfd.readouterr().err
    assert "far outside its space" in warned
    assert warned.count("\n") == 1
    assert state.situations.observation(0, 0).tolist() == [-400.0, 0.0]  # teachers see what was shown


def test_an_agent_of_a_masked_environment_needs_the_mask() -> None:
    task = from_gymnasium(
        Corridor, distance="success", horizon=4, valid_actions=lambda env: [env.unwrapped.place > 0, True]
    )
    teacher = Team([Member("walker", lambda observation, rng: 2)])
    agent = apil.train(task, teacher, "dagger", iterations=2, batch=2, progress=False).agent
    seen = np.zeros(1, np.float32)
    with pytest.raises(ApilError, match=r"trained with a mask of valid actions: give valid .* 2 truth values"):
        agent.act(seen)
    with pytest.raises(ApilError, match="action_masks"):
        agent.predict(seen)
    assert agent.act(seen, valid=[False, True]).action == 2
    assert agent.predict(seen, action_masks=[False, True])[0] == 2
    assert agent.features(seen).shape == (1,)
