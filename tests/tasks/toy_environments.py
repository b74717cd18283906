"""Small environments with known answers, for the tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Corridor(gymnasium.Env[Any, Any]):
    """Walk from 0 to `length` by steps of 0 or 1 (named 1 and 2); `ends` may end an episode early by its number of
    steps, whatever was done. Complains when it is stepped after its end, or before a reset.
    """

    def __init__(self, length: int = 3, ends: int | None = None) -> None:
        self.observation_space = spaces.Box(0.0, float(length), (1,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Discrete(2, start=1)
        self.length, self.ends = length, ends
        self.place = self.steps = 0
        self.over = True
        self.actions: list[int] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.steps = 0
        self.over = False
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert not self.over, "stepped after the end"
        assert int(action) in (1, 2)
        self.actions.append(int(action))
        self.place += int(action) - 1
        self.steps += 1
        reached = self.place >= self.length
        truncated = self.ends is not None and self.steps >= self.ends
        self.over = reached or truncated
        return self.seen(), float(reached), reached, truncated, {}

    def seen(self) -> Any:
        return np.array([self.place], np.float32)


class Shows(gymnasium.Env[Any, Any]):
    """Shows what it is told to, in a space that it is told; two actions, or those of a given space."""

    def __init__(
        self,
        space: spaces.Space[Any],
        show: Callable[[Shows], Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
    ) -> None:
        self.observation_space = space
        self.action_space = action_space or spaces.Discrete(2)
        self.steps = 0
        self.show = show or (lambda env: env.drawn())
        self.taken: list[Any] = []

    def drawn(self) -> Any:
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.show(self), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.taken.append(action)
        return self.show(self), 0.0, False, False, {}

    def render(self) -> Any:
        return np.full((4, 5, 3), self.steps, np.uint8)
