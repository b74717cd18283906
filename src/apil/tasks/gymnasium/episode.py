"""One environment with the account of its episode, and distances that can be read off the account."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from apil.errors import ApilError, in_one_line, one_line
from apil.tasks.gymnasium.layout import fits, misfit

Distance = Callable[["Episode"], float]
Derived = Literal["success", "steps", "return"]
Frame = NDArray[np.uint8] | str | None
"""A picture of an environment, or its text; None where it shows nothing."""
ValidActions = Callable[["Episode"], ArrayLike]
DISTANCE, DONE, VALID = 0, 1, 2
"""Places in the record of an episode; the valid actions are the last ones."""


class Episode(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that keeps account of its episode and stands still once it has ended.

    Functions for the distance or the valid actions are given this: the environment is `unwrapped` as usual, and the
    fields below are the account. A vector environment never hears of an end, so it resets nothing by itself.

    Environments are other people's code. Whatever they or these functions raise, and what is no observation, reward or
    distance, becomes one `ApilError` that names the step and the seed of the episode.
    """

    observation: Any
    info: dict[str, Any]
    """Its `info`."""
    reward: float
    """The last reward; 0 at the start."""
    total: float
    """The return so far, undiscounted."""
    steps: int
    terminated: bool
    truncated: bool
    over: bool
    """Terminated or truncated."""
    record: NDArray[np.float32]
    """[2 + A]: distance, whether it is over, and which actions are valid; may be a row of a larger array."""

    def __init__(
        self, env: gymnasium.Env[Any, Any], name: str, distance: Distance, valid: ValidActions | None, actions: int
    ) -> None:
        """`actions` is the number of discrete ones; 0 where they are continuous."""
        super().__init__(env)
        self._name, self._distance, self._valid = name, distance, valid
        self._space = env.observation_space
        self._shape = self._space.shape if isinstance(self._space, spaces.Box) else None
        self.record = np.ones(VALID + actions, np.float32)
        own = spaces.Box(-np.inf, np.inf, self.record.shape, np.float32)
        self.observation_space = spaces.Tuple((self._space, own))
        self._masked = bool(actions)
        self._to_check = 10

    @property
    def unwrapped(self) -> Any:
        return self.env.unwrapped

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._seed, self.steps = seed, 0
        try:
            found: Any = self.env.reset(seed=seed, options=options)
        except Exception as error:
            raise self._raised("reset", error) from error
        if not isinstance(found, tuple) or len(found) != 2:
            raise self._wrong("reset returned", found, "the tuple (observation, info)")
        self.observation, self.info = found
        self.reward, self.total = 0.0, 0.0
        self.terminated = self.truncated = self.over = False
        self.record[DONE] = 0.0
        self._account()
        return (self.observation, self.record), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step of an unfinished episode; a finished one stays where it is."""
        if not self.over:
            self.steps += 1
            try:
                found: Any = self.env.step(action)
            except Exception as error:
                raise self._raised("step", error) from error
            if not isinstance(found, tuple) or len(found) != 5:
                expected = "the tuple (observation, reward, terminated, truncated, info)"
                raise self._wrong("step returned", found, expected)
            self.observation, reward, terminated, truncated, self.info = found
            self.reward = self._number(reward)
            self.total += self.reward
            try:
                self.terminated, self.truncated = bool(terminated), bool(truncated)
            except ValueError:
                raise self._wrong("its end is", (terminated, truncated), "two truth values") from None
            self.over = self.terminated or self.truncated
            self._account()
        return (self.observation, self.record), 0.0, False, False, {}

    def frame(self) -> Frame:
        if self.render_mode not in ("ansi", "rgb_array"):
            return None
        try:
            shown: Any = self.env.render()
            return shown if isinstance(shown, str) else np.asarray(shown, dtype=np.uint8)
        except Exception as error:
            raise self._raised("render", error) from error

    def close(self) -> None:
        """Closes the environment. One that cannot be closed is no reason to fail: there is nothing left to do."""
        try:
            super().close()
        except Exception as error:
            print(f"apil: warning: {self._raised('close', error)}", file=sys.stderr)

    def _account(self) -> None:
        # The first observations are checked in full; later ones as a batch, which costs less, except for their shape.
        observation, record = self.observation, self.record
        quick = not self._to_check and (self._shape is None or getattr(observation, "shape", None) == self._shape)
        if not quick:
            self._to_check = max(0, self._to_check - 1)
            if not fits(observation, self._space):
                raise misfit(self._name, observation, self._space)
        if not isinstance(self.info, dict):
            raise self._wrong("info is", self.info, "a dict")
        try:
            reported = self._distance(self)
        except Exception as error:
            raise self._raised("the function given as distance", error) from error
        record[DISTANCE] = reported if type(reported) is float and reported >= 0.0 else self._checked_distance(reported)
        if self.over:
            record[DONE] = 1.0
        if self._masked:
            mask = self._mask()
            if mask is not None:
                record[VALID:] = self._checked_mask(mask)

    def _mask(self) -> ArrayLike | None:
        if self._valid is None:
            return self.info.get("action_mask")
        try:
            return self._valid(self)
        except Exception as error:
            raise self._raised("the function given as valid_actions", error) from error

    def _number(self, reward: Any) -> float:
        # An infinite or missing reward would make any return the best one.
        try:
            number = float(reward)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise self._wrong("the reward is", reward, "a finite number")
        return number

    def _raised(self, where: str, error: Exception) -> ApilError:
        if isinstance(error, ApilError):
            return error
        return ApilError(f"Environment '{self._name}' raised {in_one_line(error)} in {where}, at {self._place()}.")

    def _wrong(self, what: str, found: Any, expected: str) -> ApilError:
        shown = one_line(f"{found!r:.80}")
        return ApilError(f"Environment '{self._name}': {what} {shown}, expected {expected}, at {self._place()}.")

    def _place(self) -> str:
        return f"step {self.steps} of the episode that reset(seed={self._seed}) begins"

    def _checked_distance(self, reported: Any) -> float:
        try:
            distance = float(reported)
        except (TypeError, ValueError):
            distance = math.nan
        if not distance >= 0:
            raise ApilError(
                f"The distance of the environment '{self._name}' is {reported!r:.80} at step {self.steps}: expected a "
                "number from 0 up, 0 at the goal; correct the function given as distance."
            )
        return distance

    def _checked_mask(self, mask: ArrayLike) -> NDArray[np.bool_]:
        try:
            flags = np.asarray(mask, bool)
        except ValueError:  # rows of different lengths
            flags = np.zeros(0, bool)
        actions = len(self.record) - VALID
        if flags.shape != (actions,) or not (self.over or flags.any()):
            raise ApilError(
                f"The valid actions of the environment '{self._name}' are {mask!r:.80} at step {self.steps}: "
                f"expected {actions} truth values, at least one of them true."
            )
        return flags if flags.any() else np.ones(actions, bool)


# Distances that need no knowledge of the task. All of them tell whether an episode ended well; each docstring says what
# they tell on the way, where APIL looks for progress.


def success(env: Episode) -> float:
    """0 once the episode has succeeded, else 1: info['is_success'] or info['success'] is true, or it terminated with a
    positive reward. Nothing on the way counts as progress: every step of a failed episode is labelled *query*.
    """
    reported = env.info.get("is_success", env.info.get("success"))
    reached = env.terminated and env.reward > 0 if reported is None else bool(reported)
    return 0.0 if reached else 1.0


def steps(env: Episode, horizon: int) -> float:
    """Steps still to survive, for tasks that are about not ending early; 0 for an episode that was truncated.

    It falls by 1 a step whatever the agent does: early in an episode it does not tell good steps from bad ones.
    """
    return 0.0 if env.truncated and not env.terminated else float(max(0, horizon - env.steps))


def return_gap(env: Episode, best: float) -> float:
    """What the return so far lacks of the best known one, 0 from there on.

    Rewards that come late make it large until then; negative ones make it grow, and no step counts as progress.
    """
    return max(0.0, best - env.total)


def derived(name: str, horizon: int, best_return: float | None) -> Distance:
    if name == "success":
        return success
    if name == "steps":
        return partial(steps, horizon=horizon)
    if name != "return":
        raise ApilError(
            f"Unknown distance '{name}': give success, steps, return (with best_return), or a function of the "
            "environment."
        )
    if best_return is None or not math.isfinite(best_return):
        raise ApilError(
            f"The distance 'return' needs best_return, the return of a perfect episode, which is {best_return}: give "
            "a finite number."
        )
    return partial(return_gap, best=best_return)
