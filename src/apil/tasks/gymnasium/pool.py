"""The environments behind a task: one for each episode of each run, kept open from one iteration to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray
from torch import Tensor

from apil.errors import ApilError
from apil.tasks.gymnasium.actions import Actions
from apil.tasks.gymnasium.episode import Episode, Frame
from apil.tasks.gymnasium.in_processes import InProcesses
from apil.tasks.gymnasium.layout import element

Vectorise = Literal["sync", "async"]


class InTurn:
    """Environments that step one after the other in this process, and what they showed last.

    Does what `gymnasium.vector.SyncVectorEnv` does, without what a task does not read (rewards, infos), which takes as
    long as a step of a small environment; and passes over episodes that are over.
    """

    clock = 0
    """Counts resets and steps: what was observed before the last one is gone."""
    seen: Any
    """A batch of observations, overwritten by the next step."""
    records: NDArray[np.float32]
    """[count, 2 + A]: the records of the episodes, overwritten too."""

    def __init__(self, make: Callable[[], Episode], count: int) -> None:
        self._envs = [make() for _ in range(count)]
        first = self._envs[0]
        self._space = first.env.observation_space
        self.seen = create_empty_array(self._space, count)
        self._joined: NDArray[Any] | None = None
        """The same memory as one long observation, where that can be: joining costs a fifth of stacking."""
        if isinstance(self._space, spaces.Box) and self._space.shape:
            self._joined = np.asarray(self.seen).reshape(-1, *self._space.shape[1:])
        self.records = np.ones((count, len(first.record)), np.float32)
        for env, row in zip(self._envs, self.records, strict=True):
            env.record = row
            if env.env.observation_space != self._space or env.action_space != first.action_space:
                raise ApilError("make_env made environments of different spaces: they must all have the same.")

    def reset(self, seeds: list[int]) -> None:
        self.clock += 1
        for env, seed in zip(self._envs, seeds, strict=True):
            env.reset(seed=seed)
        self._gather()

    def step(self, actions: Any) -> None:
        self.clock += 1
        for env, action in zip(self._envs, actions, strict=True):
            env.step(action)
        self._gather()

    def _gather(self) -> None:
        observations = [env.observation for env in self._envs]
        if self._joined is None:
            self.seen = concatenate(self._space, observations, self.seen)
        else:
            np.concatenate(observations, out=self._joined)

    def environment(self, place: int) -> Episode:
        return self._envs[place]

    def frame(self, place: int) -> Frame:
        return self._envs[place].frame()

    def close(self) -> None:
        self.clock += 1
        for env in self._envs:
            env.close()


Pool = InTurn | InProcesses


@dataclass(frozen=True)
class PoolSituations:
    """The environments of the episodes at one step: `apil.types.Situations`."""

    pool: Pool
    clock: int
    """Of the pool at this step."""
    places: Tensor
    """[runs, episodes] long: each episode's environment."""
    actions: Actions
    space: spaces.Space[Any]

    def now(self) -> Pool:
        """The environments, refused once they have moved on."""
        if self.pool.clock != self.clock:
            raise ApilError(
                "This state of a Gymnasium environment is gone: the environments have moved on and cannot go back. "
                "Look at a state before the next step is taken."
            )
        return self.pool

    def observation(self, run: int, episode: int) -> Any:
        return element(self.now().seen, self.space, int(self.places[run, episode]))

    def environment(self, run: int, episode: int) -> Episode:
        return self.now().environment(int(self.places[run, episode]))

    def action(self, action: Any) -> Tensor:
        return self.actions.learned(action)

    def of_runs(self, runs: slice | Tensor) -> PoolSituations:
        return replace(self, places=self.places[runs])
