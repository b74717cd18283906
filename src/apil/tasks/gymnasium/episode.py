"""One environment with the account of its episode."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from apil.errors import ApilError
from apil.tasks.gymnasium.distances import Distance
from apil.tasks.gymnasium.layout import misfit

ValidActions = Callable[["Episode"], ArrayLike]

_CHECKED = 10
"""Observations of an environment that are checked in full."""
_NOTHING: dict[str, Any] = {}
DISTANCE, DONE, VALID = 0, 1, 2
"""Places in the record of an episode; the valid actions are the last ones."""


class Episode(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that keeps account of its episode and stands still once it has ended.

    Functions that tell the distance or the valid actions are given this: the environment is `unwrapped` as usual, and
    the fields below tell what happened so far. A vector environment never hears of an end, so it starts nothing anew by
    itself: no step of a new episode can be taken for one of the old.
    """

    observation: Any
    """The last observation."""
    info: dict[str, Any]
    """What came with it."""
    reward: float
    """The last reward; 0 at the start."""
    total: float
    """The return so far, undiscounted."""
    steps: int
    """Steps taken."""
    terminated: bool
    truncated: bool
    over: bool
    """Terminated or truncated."""
    record: NDArray[np.float32]
    """[2 + A]: distance, whether it is over, and which actions are valid; a row of a larger array where many are
    gathered."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *,
        name: str,
        distance: Distance,
        valid_actions: ValidActions | None,
        actions: int,
    ) -> None:
        """`actions` is the number of discrete ones; 0 where they are continuous."""
        super().__init__(env)
        self._name, self._distance, self._valid = name, distance, valid_actions
        self._space = env.observation_space
        self._shape = self._space.shape if isinstance(self._space, spaces.Box) else None
        self.record = np.ones(VALID + actions, np.float32)
        record = spaces.Box(-np.inf, np.inf, self.record.shape, np.float32)
        self.observation_space = spaces.Tuple((self._space, record))
        self._masked = bool(actions)
        self._to_check = _CHECKED

    @property
    def unwrapped(self) -> Any:
        """The environment itself, of whatever class it is."""
        return self.env.unwrapped

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        self.observation, self.info = self.env.reset(seed=seed, options=options)
        self.reward, self.total, self.steps = 0.0, 0.0, 0
        self.terminated = self.truncated = self.over = False
        self.record[DONE] = 0.0
        self._account()
        return (self.observation, self.record), _NOTHING

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step of an episode that is going on; one that is over stays where it is."""
        if not self.over:
            self.move(action)
        return (self.observation, self.record), 0.0, False, False, _NOTHING

    def move(self, action: Any) -> None:
        """One step of an episode that is going on."""
        self.observation, reward, terminated, truncated, self.info = self.env.step(action)
        self.reward = reward = float(reward)
        self.total += reward
        self.steps += 1
        self.terminated, self.truncated = terminated, truncated = bool(terminated), bool(truncated)
        self.over = terminated or truncated
        self._account()

    def _account(self) -> None:
        # The first observations are checked in full; later ones as a batch, which costs less, but for their shape.
        observation, record = self.observation, self.record
        if self._to_check:
            self._to_check -= 1
            fits = self._space.contains(observation)
        else:
            fits = self._shape is None or getattr(observation, "shape", None) == self._shape
        if not fits:
            raise misfit(self._name, observation, self._space)
        told = self._distance(self)
        record[DISTANCE] = told if type(told) is float and told >= 0.0 else self._checked_distance(told)
        if self.over:
            record[DONE] = 1.0
        if self._masked:
            mask = self.info.get("action_mask") if self._valid is None else self._valid(self)
            if mask is not None:
                record[VALID:] = self._checked_mask(mask)

    def _checked_distance(self, told: Any) -> float:
        try:
            distance = float(told)
        except (TypeError, ValueError):
            distance = math.nan
        if not distance >= 0:
            raise ApilError(
                f"The distance of the environment '{self._name}' is {told!r} at step {self.steps}: expected a number "
                "from 0 up, 0 at the goal; mend the function given as distance."
            )
        return distance

    def _checked_mask(self, mask: ArrayLike) -> NDArray[np.bool_]:
        flags = np.asarray(mask)
        actions = len(self.record) - VALID
        if flags.shape != (actions,) or not (self.over or flags.any()):
            raise ApilError(
                f"The valid actions of the environment '{self._name}' are {flags.tolist()} at step {self.steps}: "
                f"expected {actions} truth values, at least one of them true."
            )
        return flags.astype(bool) if flags.any() else np.ones(actions, bool)
