"""Any Gymnasium environment as a task: B episodes of every run are as many environments, stepped together."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apil.errors import ApilError
from apil.rng import Draws
from apil.tasks.gymnasium.actions import Actions
from apil.tasks.gymnasium.distances import Derived, Distance, derived
from apil.tasks.gymnasium.encoders import Encoder, state_encoder
from apil.tasks.gymnasium.episode import DISTANCE, DONE, VALID, Episode, ValidActions
from apil.tasks.gymnasium.layout import Layout
from apil.tasks.gymnasium.pool import Pool, PoolSituations, Vectorise, begun, name_of
from apil.types import Observation, Picture, Reference

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]


@dataclass(frozen=True)
class GymnasiumState:
    """A token for the state that the environments keep to themselves, with what can be seen of it.

    It cannot be gone back to: only the state after the last step can be stepped, looked at or shown to a teacher.
    """

    features: Tensor
    """[runs, episodes, F]"""
    valid: Tensor
    """[runs, episodes, A] bool"""
    distance: Tensor
    """[runs, episodes] float"""
    done: Tensor
    """[runs, episodes] bool"""
    over: bool
    """All episodes are done."""
    situations: PoolSituations


class GymnasiumTask:
    """A task made of environments; see `from_gymnasium`.

    Every iteration begins with a reset of all environments with seeds drawn from the task's stream, so that a run of
    deterministic environments can be repeated and resumed exactly.
    """

    def __init__(
        self,
        make: Callable[[], Episode],
        *,
        name: str,
        horizon: int,
        actions: Actions,
        action_names: tuple[str, ...],
        layout: Layout,
        encoder: Callable[[], nn.Module] | None,
        vectorise: Vectorise,
        success_distance: float,
        batch: int,
    ) -> None:
        self.name, self.horizon, self.batch = name, horizon, batch
        self.success_distance = success_distance
        self.actions, self.action_names, self.box = actions.count, action_names, actions.box
        self.layout = layout
        self.observation_space, self.action_space = layout.space, actions.space
        self.to_environment = actions.taken
        """[n] long or [n, numbers] float -> a batch of actions of the environment."""
        self.state_size = layout.size
        self.encoder = encoder
        self._make, self._vectorise, self._actions = make, vectorise, actions
        self._pools: dict[int, Pool] = {}
        self._every = torch.ones(0, 0, 0, dtype=torch.bool)

    def reset(self, draws: Draws, episodes: int) -> GymnasiumState:
        """New episodes, each from a seed of its own."""
        # Two draws of 23 bits each make a seed.
        halves = (draws.uniform(2, episodes).numpy() * 2.0**23).astype(np.int64)
        seeds = halves[:, 0] * 2**23 + halves[:, 1]
        count = draws.runs * episodes
        if count not in self._pools:
            self._pools[count] = Pool(self._make, self.layout.space, count, self._vectorise)
        return self._state(*begun(self._pools[count], seeds, self._actions))

    def observe(self, state: GymnasiumState) -> Observation:
        """The observation as features, and the valid actions."""
        return Observation(state.features, state.valid)

    def reference(self, state: GymnasiumState) -> Reference:
        """No reference actions are known; the distance, and the environments for those who can read them."""
        none = torch.zeros(*state.done.shape, 0, dtype=torch.long)
        return Reference(none, torch.zeros_like(state.done, dtype=torch.long), state.distance, state.situations)

    def step(self, state: GymnasiumState, action: Tensor) -> GymnasiumState:
        """One step of every episode that is going on."""
        return state if state.over else self._state(*state.situations.stepped(action))

    def distance(self, state: GymnasiumState) -> Tensor:
        """As the given function tells it."""
        return state.distance

    def done(self, state: GymnasiumState) -> Tensor:
        """Terminated or truncated."""
        return state.done

    def describe(self, state: GymnasiumState, run: int, episode: int) -> str:
        """The distance and the first features."""
        features = ", ".join(f"{value:.3g}" for value in state.features[run, episode, :6].tolist())
        more = ", ..." if state.features.shape[-1] > 6 else ""
        return f"{self.name}, distance {float(state.distance[run, episode]):.3g}, features [{features}{more}]"

    def picture(self, state: GymnasiumState, run: int, episode: int) -> Picture:
        """What the environment draws (render_mode 'rgb_array') or writes ('ansi'), else a description."""
        shown = state.situations.frame(run, episode)
        if isinstance(shown, str):
            return Picture(text=shown)
        return Picture(text=self.describe(state, run, episode), pixels=shown)

    def contested(self) -> Observation:
        """None: without reference actions nobody knows where teachers can differ."""
        return Observation(torch.zeros(1, 0, self.state_size), torch.ones(1, 0, self.actions, dtype=torch.bool))

    def close(self) -> None:
        """Closes all environments; a later reset opens new ones."""
        for pool in self._pools.values():
            pool.environments.close()
        self._pools.clear()

    def _state(self, situations: PoolSituations, seen: Any, records: NDArray[np.float32]) -> GymnasiumState:
        # NumPy until the end: on a handful of numbers its operations cost less than torch's. What is kept is copied,
        # since the environments write over their records at the next step.
        runs, episodes = situations.places.shape
        features = torch.from_numpy(self.layout.features(seen).reshape(runs, episodes, -1))
        distance = torch.from_numpy(records[:, DISTANCE].copy().reshape(runs, episodes))
        ended = records[:, DONE] != 0
        done = torch.from_numpy(ended.reshape(runs, episodes))
        valid = records[:, VALID:]  # empty where actions are continuous
        if np.count_nonzero(valid) == valid.size:
            allowed = self._all(runs, episodes)
        else:
            allowed = torch.from_numpy((valid != 0).reshape(runs, episodes, -1))
        return GymnasiumState(features, allowed, distance, done, np.count_nonzero(ended) == len(ended), situations)

    def _all(self, runs: int, episodes: int) -> Tensor:
        """[runs, episodes, A]: all actions are valid; made once."""
        if self._every.shape[:2] != (runs, episodes):
            with torch.inference_mode(False):  # it outlives the mode it is made in
                self._every = torch.ones(runs, episodes, self.actions, dtype=torch.bool)
        return self._every


def from_gymnasium(
    make_env: MakeEnv | str,
    *,
    distance: Distance | Derived | None = None,
    horizon: int | None = None,
    valid_actions: ValidActions | None = None,
    encoder: Encoder = "auto",
    vectorise: Vectorise = "sync",
    best_return: float | None = None,
    success_distance: float = 0.0,
    batch: int = 16,
    name: str | None = None,
    action_names: Sequence[str] | None = None,
) -> GymnasiumTask:
    """A task from the id of an environment, or from a function that makes one.

        task = from_gymnasium("Taxi-v4", distance="success")

    Args:
        make_env: makes one environment; called once for each episode of a batch, in its own process if asynchronous. An
            id is made by `gymnasium.make`, so that it can be shown: as text if it can write itself, else as a picture.
        distance: d(s), a function of the environment (an `Episode`: the environment itself is `unwrapped`, and it tells
            `observation`, `info`, `reward`, `total`, `steps`), at least 0, and 0 at the goal; or the name of one that
            needs no knowledge of the task: 'success', 'steps' or 'return' (with `best_return`). Without one there is an
            error that offers these.
        horizon: T; the environment's own time limit if not given.
        valid_actions: a function of the environment that returns a truth value for each action; info['action_mask'] if
            not given, and all actions where there is none.
        encoder: 'raw' gives the features to the networks as they are, 'learned' puts a small network in front (an MLP
            for vectors, a CNN for images, one for each key of a Dict); 'auto' is raw unless there is an image. Or any
            module, or a function of the `Layout` that makes one, from the structured observation to [n, S].
        vectorise: all environments in this process, or each in one of its own.
        best_return: of a perfect episode, for the distance 'return'.
        success_distance: an episode that ends this close has succeeded; APIL's epsilon.
        batch: episodes in an iteration, unless told otherwise.
        name: for messages and tables; the environment's own if not given.
        action_names: a word for each action.
    """
    if isinstance(make_env, str):
        make_env = _by_id(make_env)
    if vectorise not in ("sync", "async"):
        raise ApilError(f"vectorise is {vectorise!r}: give sync or async.")
    _check_arguments(make_env, distance, valid_actions, horizon, batch, success_distance)
    probe = _made(make_env)
    try:
        name = name or name_of(probe)
        actions = Actions(probe.action_space, name)
        layout = Layout(probe.observation_space, name)
        horizon = horizon or _time_limit(probe, name)
    finally:
        probe.close()
    measure = distance if callable(distance) else derived(str(distance), horizon, best_return)
    discrete = actions.count if actions.box is None else 0

    def make() -> Episode:
        return Episode(make_env(), name=name, distance=measure, valid_actions=valid_actions, actions=discrete)

    return GymnasiumTask(
        make,
        name=name,
        horizon=horizon,
        actions=actions,
        action_names=_names(action_names, actions, name),
        layout=layout,
        encoder=state_encoder(copy.deepcopy(encoder) if isinstance(encoder, nn.Module) else encoder, layout),
        vectorise=vectorise,
        success_distance=success_distance,
        batch=batch,
    )


def _check_arguments(
    make_env: Any, distance: Any, valid_actions: Any, horizon: Any, batch: Any, success_distance: float
) -> None:
    """Refuses what cannot be meant, before an environment is made."""
    if not callable(make_env):
        raise ApilError(
            f"make_env is {make_env!r:.60}: give the id of an environment, for example CartPole-v1, or a function that "
            "makes one."
        )
    if not callable(distance) and not isinstance(distance, str):
        raise ApilError(
            f"distance is {distance!r:.60}: give a function of the environment, 0 at the goal, or one that needs no "
            "knowledge of the task: 'success' (APIL then learns where it fails, not where it gets stuck), 'steps' "
            "(for tasks that are about lasting), 'return' (with best_return)."
        )
    if valid_actions is not None and not callable(valid_actions):
        raise ApilError(f"valid_actions is {valid_actions!r:.60}: give a function of the environment.")
    for what, value in (("horizon", horizon), ("batch", batch)):
        if not (value is None and what == "horizon") and not (isinstance(value, int | np.integer) and value >= 1):
            raise ApilError(f"{what} is {value!r:.60}: give a whole number from 1 up.")
    if not success_distance >= 0:
        raise ApilError(f"success_distance is {success_distance!r}: give a distance from 0 up.")


def _by_id(name: str) -> MakeEnv:
    """Makes a registered environment that can be shown."""
    try:
        modes = gymnasium.spec(name).make().metadata.get("render_modes", [])
    except gymnasium.error.Error as error:
        raise ApilError(f"Gymnasium has no environment '{name[:60]}': {str(error).splitlines()[0]}") from error
    mode = next((mode for mode in ("ansi", "rgb_array") if mode in modes), None)
    return partial(gymnasium.make, name, render_mode=mode)


def _made(make_env: MakeEnv) -> gymnasium.Env[Any, Any]:
    """An environment; what goes wrong names the function."""
    try:
        env: Any = make_env()
    except Exception as error:
        told = str(error).splitlines()[0] if str(error) else "no message"
        raise ApilError(f"make_env raised {type(error).__name__}: {told}") from error
    if not isinstance(env, gymnasium.Env):
        raise ApilError(f"make_env returned {env!r:.60}: expected a gymnasium.Env.")
    return env


def _time_limit(env: gymnasium.Env[Any, Any], name: str) -> int:
    limit = env.spec.max_episode_steps if env.spec is not None else None
    if limit is None:
        raise ApilError(f"The environment '{name}' has no time limit: give horizon, the steps of the longest episode.")
    return limit


def _names(given: Sequence[str] | None, actions: Actions, name: str) -> tuple[str, ...]:
    if given is None:
        return tuple(f"{'action' if actions.box is None else 'number'} {i}" for i in range(actions.count))
    if len(given) != actions.count:
        raise ApilError(f"{len(given)} action names for the {actions.count} actions of '{name}': give one for each.")
    return tuple(given)
