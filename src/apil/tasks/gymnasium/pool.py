"""The environments behind a task: one for each episode of each run, kept open from one iteration to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray
from torch import Tensor

from apil.errors import ApilError
from apil.tasks.gymnasium.actions import Actions
from apil.tasks.gymnasium.episode import Episode
from apil.tasks.gymnasium.layout import element

Vectorise = Literal["sync", "async"]


class Pool:
    """`count` environments that take their steps together."""

    def __init__(self, make: Callable[[], Episode], count: int, vectorise: Vectorise) -> None:
        self.count = count
        self.clock = 0
        """Counts resets and steps: what was observed before the last one is gone."""
        makers = [make] * count
        # The episodes never report an end, so nothing would start anew; DISABLED says so.
        self._vector: SyncVectorEnv[Any, Any] | AsyncVectorEnv[Any, Any] = (
            SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.DISABLED)
            if vectorise == "sync"
            else AsyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.DISABLED)
        )
        self._seen: Any = None

    def reset(self, seeds: Sequence[int]) -> tuple[Any, NDArray[np.float64]]:
        """New episodes; a batch of observations and the records of the episodes, [count, 2 + A]."""
        self.clock += 1
        self._seen, records = self._vector.reset(seed=list(seeds))[0]
        return self._seen, records

    def step(self, actions: Any) -> tuple[Any, NDArray[np.float64]]:
        """One step of every episode that is going on."""
        self.clock += 1
        self._seen, records = self._vector.step(actions)[0]
        return self._seen, records

    def observation(self, place: int) -> Any:
        """What one environment showed last: a copy."""
        space = self._vector.single_observation_space
        assert isinstance(space, spaces.Tuple)
        return element(self._seen, space.spaces[0], place)

    def environment(self, place: int) -> Episode:
        """One environment, where they live in this process."""
        if isinstance(self._vector, AsyncVectorEnv):
            raise ApilError(
                "An environment of an asynchronous task lives in another process and cannot be looked at: use "
                "vectorise='sync', or a teacher that needs the observation alone."
            )
        env: Any = self._vector.envs[place]
        assert isinstance(env, Episode)
        return env

    def frame(self, place: int) -> NDArray[np.uint8] | None:
        """A picture of one environment; None where it draws none."""
        if self._vector.render_mode != "rgb_array":
            return None
        frames = self._vector.render()
        return None if frames is None else np.asarray(frames[place], dtype=np.uint8)

    def close(self) -> None:
        """Closes all environments."""
        if not self._vector.closed:
            self._vector.close()


@dataclass(frozen=True)
class PoolSituations:
    """The environments of the episodes at one step: `apil.types.Situations`."""

    pool: Pool
    clock: int
    """Of the pool at this step."""
    places: Tensor
    """[runs, episodes] long: each episode's environment."""
    actions: Actions

    def observation(self, run: int, episode: int) -> Any:
        """The observation as the environment gave it."""
        return self._now().observation(int(self.places[run, episode]))

    def environment(self, run: int, episode: int) -> Episode:
        """The environment of the episode."""
        return self._now().environment(int(self.places[run, episode]))

    def frame(self, run: int, episode: int) -> NDArray[np.uint8] | None:
        """A picture of the episode; None where the environment draws none."""
        return self._now().frame(int(self.places[run, episode]))

    def action(self, action: Any) -> Tensor:
        """An element of the action space as the learner has it."""
        return self.actions.learned(action)

    def of_runs(self, runs: slice | Tensor) -> PoolSituations:
        """Those of some runs only."""
        return PoolSituations(self.pool, self.clock, self.places[runs], self.actions)

    def _now(self) -> Pool:
        if self.pool.clock != self.clock:
            raise ApilError(
                "This state of a Gymnasium environment is gone: the environments have moved on and cannot go back. "
                "Look at a state before the next step is taken."
            )
        return self.pool

    def stepped(self, action: Tensor) -> tuple[PoolSituations, Any, NDArray[np.float64]]:
        """The situations after `action`, what is observed and the records."""
        seen, records = self._now().step(self.actions.taken(action.flatten(0, 1)))
        return PoolSituations(self.pool, self.pool.clock, self.places, self.actions), seen, records


def begun(pool: Pool, seeds: Tensor, actions: Actions) -> tuple[PoolSituations, Any, NDArray[np.float64]]:
    """New episodes from `seeds` [runs, episodes]: the situations, what is observed and the records."""
    seen, records = pool.reset(seeds.flatten().tolist())
    return PoolSituations(pool, pool.clock, torch.arange(pool.count).view(seeds.shape), actions), seen, records


def name_of(env: gymnasium.Env[Any, Any]) -> str:
    """The registered name of an environment, else its class."""
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__
