"""The environments behind a task: one for each episode of each run, kept open from one iteration to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray
from torch import Tensor

from apil.errors import ApilError
from apil.tasks.gymnasium.actions import Actions
from apil.tasks.gymnasium.episode import Episode
from apil.tasks.gymnasium.layout import element

Vectorise = Literal["sync", "async"]


class Environments(Protocol):
    """Environments that take their steps together."""

    def reset(self, seeds: list[int]) -> tuple[Any, NDArray[np.float32]]:
        """New episodes; a batch of observations, and the records of the episodes [count, 2 + A]."""

    def step(self, actions: Any) -> tuple[Any, NDArray[np.float32]]:
        """One step of every episode that is going on."""

    def environment(self, place: int) -> Episode:
        """One environment, where they live in this process."""

    def frame(self, place: int) -> NDArray[np.uint8] | str | None:
        """A picture of one environment, or its text; None where it shows nothing."""

    def close(self) -> None:
        """Closes all of them."""


class InTurn:
    """One after the other in this process.

    Does what `gymnasium.vector.SyncVectorEnv` does, without what a task does not read (rewards, infos), which takes as
    long as a step of a small environment; and passes over episodes that are over.
    """

    def __init__(self, make: Callable[[], Episode], count: int) -> None:
        self._envs = [make() for _ in range(count)]
        first = self._envs[0]
        self._space = first.env.observation_space
        self._seen: Any = create_empty_array(self._space, count)
        self._joined: NDArray[Any] | None = None
        """The same memory as one long observation, where that can be: joining costs a fifth of stacking."""
        if isinstance(self._space, spaces.Box) and self._space.shape:
            self._joined = np.asarray(self._seen).reshape(-1, *self._space.shape[1:])
        self._records = np.ones((count, len(first.record)), np.float32)
        for env, row in zip(self._envs, self._records, strict=True):
            env.record = row
            if env.env.observation_space != self._space or env.action_space != first.action_space:
                raise ApilError("make_env made environments of different spaces: they must all have the same.")

    def reset(self, seeds: list[int]) -> tuple[Any, NDArray[np.float32]]:
        """New episodes."""
        for env, seed in zip(self._envs, seeds, strict=True):
            env.reset(seed=seed)
        return self._gathered()

    def step(self, actions: Any) -> tuple[Any, NDArray[np.float32]]:
        """One step of every episode that is going on."""
        for env, action in zip(self._envs, actions, strict=True):
            if not env.over:
                env.move(action)
        return self._gathered()

    def _gathered(self) -> tuple[Any, NDArray[np.float32]]:
        observations = [env.observation for env in self._envs]
        if self._joined is None:
            self._seen = concatenate(self._space, observations, self._seen)
        else:
            np.concatenate(observations, out=self._joined)
        return self._seen, self._records

    def environment(self, place: int) -> Episode:
        """One environment."""
        return self._envs[place]

    def frame(self, place: int) -> NDArray[np.uint8] | str | None:
        """A picture of one environment, or its text; None where it shows nothing."""
        env = self._envs[place]
        return _shown(env.render()) if env.render_mode in _SHOWN else None

    def close(self) -> None:
        """Closes all of them."""
        for env in self._envs:
            env.close()


class InProcesses:
    """Each in a process of its own, by `gymnasium.vector.AsyncVectorEnv`."""

    def __init__(self, make: Callable[[], Episode], count: int) -> None:
        # The episodes never report an end, so nothing would start anew; DISABLED says so.
        self._vector: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
            [make] * count, copy=False, autoreset_mode=AutoresetMode.DISABLED
        )

    def reset(self, seeds: list[int]) -> tuple[Any, NDArray[np.float32]]:
        """New episodes."""
        seen, records = self._vector.reset(seed=list(seeds))[0]
        return seen, records

    def step(self, actions: Any) -> tuple[Any, NDArray[np.float32]]:
        """One step of every episode that is going on."""
        seen, records = self._vector.step(actions)[0]
        return seen, records

    def environment(self, place: int) -> Episode:
        """Refused."""
        raise ApilError(
            "An environment of an asynchronous task lives in another process and cannot be looked at: use "
            "vectorise='sync', or a teacher that needs the observation alone."
        )

    def frame(self, place: int) -> NDArray[np.uint8] | str | None:
        """A picture of one environment, or its text; None where it shows nothing."""
        frames = self._vector.render() if self._vector.render_mode in _SHOWN else None
        return None if frames is None else _shown(frames[place])

    def close(self) -> None:
        """Ends the processes."""
        if not self._vector.closed:
            self._vector.close()


_SHOWN = ("ansi", "rgb_array")


def _shown(frame: Any) -> NDArray[np.uint8] | str:
    return frame if isinstance(frame, str) else np.asarray(frame, dtype=np.uint8)


class Pool:
    """`count` environments, and what they showed last."""

    def __init__(self, make: Callable[[], Episode], space: spaces.Space[Any], count: int, vectorise: Vectorise) -> None:
        """`space` is that of the observations."""
        self.count = count
        self.clock = 0
        """Counts resets and steps: what was observed before the last one is gone."""
        self.environments: Environments = InTurn(make, count) if vectorise == "sync" else InProcesses(make, count)
        self._space = space
        self._seen: Any = None

    def reset(self, seeds: list[int]) -> tuple[Any, NDArray[np.float32]]:
        """New episodes."""
        self.clock += 1
        self._seen, records = self.environments.reset(seeds)
        return self._seen, records

    def step(self, actions: Any) -> tuple[Any, NDArray[np.float32]]:
        """One step of every episode that is going on."""
        self.clock += 1
        self._seen, records = self.environments.step(actions)
        return self._seen, records

    def observation(self, place: int) -> Any:
        """What one environment showed last: a copy."""
        return element(self._seen, self._space, place)


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
        return self._now().environments.environment(int(self.places[run, episode]))

    def frame(self, run: int, episode: int) -> NDArray[np.uint8] | str | None:
        """A picture of the episode, or its text; None where the environment shows nothing."""
        return self._now().environments.frame(int(self.places[run, episode]))

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

    def stepped(self, action: Tensor) -> tuple[PoolSituations, Any, NDArray[np.float32]]:
        """The situations after `action`, what is observed and the records."""
        pool = self._now()
        seen, records = pool.step(self.actions.taken(action))
        return PoolSituations(pool, pool.clock, self.places, self.actions), seen, records


def begun(pool: Pool, seeds: NDArray[np.int64], actions: Actions) -> tuple[PoolSituations, Any, NDArray[np.float32]]:
    """New episodes from `seeds` [runs, episodes]: the situations, what is observed and the records."""
    seen, records = pool.reset(seeds.flatten().tolist())
    places = torch.from_numpy(np.arange(pool.count).reshape(seeds.shape))
    return PoolSituations(pool, pool.clock, places, actions), seen, records


def name_of(env: gymnasium.Env[Any, Any]) -> str:
    """The registered name of an environment, else its class."""
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__
