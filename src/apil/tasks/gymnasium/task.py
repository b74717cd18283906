"""Any Gymnasium environment as a task: B episodes of every run are as many environments, stepped together."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from apil.errors import ApilError, in_one_line
from apil.rng import Draws
from apil.tasks.gymnasium.actions import Actions
from apil.tasks.gymnasium.encoders import Encoder, state_encoder
from apil.tasks.gymnasium.episode import DISTANCE, DONE, VALID, Derived, Distance, Episode, ValidActions, derived
from apil.tasks.gymnasium.in_processes import InProcesses
from apil.tasks.gymnasium.layout import Layout
from apil.tasks.gymnasium.pool import InTurn, Pool, PoolSituations, Vectorise
from apil.types import Observation, Picture, Reference

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]


@dataclass(frozen=True)
class GymnasiumState:
    """A token for the state that the environments keep to themselves, with what can be seen of it; shapes as in `Task`.

    It cannot be returned to: only the state after the last step can be stepped, looked at or shown to a teacher.
    """

    features: Tensor
    valid: Tensor
    distance: Tensor
    done: Tensor
    situations: PoolSituations


@dataclass(eq=False)
class GymnasiumTask:
    """A task made of environments; see `from_gymnasium`.

    Every iteration resets all environments with seeds from the task's stream, so that a run of deterministic
    environments can be repeated and resumed exactly.
    """

    name: str
    horizon: int
    batch: int
    success_distance: float
    action_names: tuple[str, ...]
    encoder: Callable[[], nn.Module] | None
    layout: Layout
    converter: Actions
    masked: bool
    """The environments say which actions are valid."""
    make: Callable[[], Episode]
    pool: type[InTurn | InProcesses]

    def __post_init__(self) -> None:
        self.actions, self.box, self.state_size = self.converter.count, self.converter.box, self.layout.size
        self.observation_space, self.action_space = self.layout.space, self.converter.space
        self.to_environment = self.converter.taken
        """[n] long or [n, numbers] float -> a batch of actions of the environment."""
        self._pools: dict[int, Pool] = {}

    @property
    def feature_kinds(self) -> tuple[tuple[int, Literal["floats", "bytes", "bits"]], ...]:
        """Images are bytes and choices are bits."""
        return tuple((field.size, field.stored) for field in self.layout.fields)

    def reset(self, draws: Draws, episodes: int) -> GymnasiumState:
        """New episodes, each from a seed of its own."""
        # Two draws of 23 bits each make a seed.
        halves = (draws.uniform(2, episodes).numpy() * 2.0**23).astype(np.int64)
        seeds = (halves[:, 0] * 2**23 + halves[:, 1]).flatten().tolist()
        if len(seeds) not in self._pools:
            self._pools[len(seeds)] = self.pool(self.make, len(seeds))
        pool = self._pools[len(seeds)]
        pool.reset(seeds)
        places = torch.arange(len(seeds)).view(draws.runs, episodes)
        return self._state(PoolSituations(pool, pool.clock, places, self.converter, self.layout.space))

    def observe(self, state: GymnasiumState) -> Observation:
        return Observation(state.features, state.valid)

    def reference(self, state: GymnasiumState) -> Reference:
        """No reference actions are known; the distance, and the environments for those who can read them."""
        none = torch.zeros(*state.done.shape, 0, dtype=torch.long)
        return Reference(none, torch.zeros_like(state.done, dtype=torch.long), state.distance, state.situations)

    def step(self, state: GymnasiumState, action: Tensor) -> GymnasiumState:
        if state.done.all():
            return state
        pool = state.situations.now()
        pool.step(self.converter.taken(action))
        return self._state(replace(state.situations, clock=pool.clock))

    def distance(self, state: GymnasiumState) -> Tensor:
        return state.distance

    def done(self, state: GymnasiumState) -> Tensor:
        return state.done

    def describe(self, state: GymnasiumState, run: int, episode: int) -> str:
        features = ", ".join(f"{value:.3g}" for value in state.features[run, episode, :6].tolist())
        more = ", ..." if state.features.shape[-1] > 6 else ""
        return f"{self.name}, distance {float(state.distance[run, episode]):.3g}, features [{features}{more}]"

    def picture(self, state: GymnasiumState, run: int, episode: int) -> Picture:
        """What the environment draws (render_mode 'rgb_array') or writes ('ansi'), else a description."""
        shown = state.situations.now().frame(int(state.situations.places[run, episode]))
        if isinstance(shown, str):
            return Picture(text=shown)
        return Picture(text=self.describe(state, run, episode), pixels=shown)

    def contested(self) -> Observation:
        """None: without reference actions nobody knows where teachers can differ."""
        return Observation(torch.zeros(1, 0, self.state_size), torch.ones(1, 0, self.actions, dtype=torch.bool))

    def twin(self) -> GymnasiumTask:
        """The same task with environments of its own."""
        return replace(self)

    def close(self) -> None:
        """Closes all environments; a later reset opens new ones."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    def _state(self, situations: PoolSituations) -> GymnasiumState:
        # NumPy until the end: on a handful of numbers its operations cost less than torch's. What is kept is copied,
        # since the environments write over their records at the next step.
        runs, episodes = situations.places.shape
        records = situations.pool.records
        features = torch.from_numpy(self.layout.features(situations.pool.seen).reshape(runs, episodes, -1))
        distance = torch.from_numpy(records[:, DISTANCE].copy().reshape(runs, episodes))
        done = torch.from_numpy((records[:, DONE] != 0).reshape(runs, episodes))
        allowed = records[:, VALID:] != 0 if self.box is None else np.ones((len(records), self.actions), bool)
        valid = torch.from_numpy(allowed.reshape(runs, episodes, -1))
        return GymnasiumState(features, valid, distance, done, situations)


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
    """Makes a task from the id of a Gymnasium environment, or from a function that makes one.

    Examples:
        >>> task = apil.from_gymnasium("Taxi-v4", distance="success")
        >>> task.horizon, task.actions
        (200, 6)

    Args:
        make_env: makes one environment; called once for each episode of a batch, in its own process if asynchronous. An
            id is made by `gymnasium.make` with a render mode (text before pictures).
        distance: d(s) >= 0, 0 at the goal: a function of the environment, which is wrapped in an `Episode`; or the name
            of one that needs no knowledge of the task: 'success', 'steps' or 'return' (with `best_return`).
        horizon: T; the environment's own time limit if not given.
        valid_actions: a function of the environment that returns a truth value for each action; info['action_mask'] if
            not given, and all actions where there is none.
        encoder: 'raw' gives the features to the networks as they are, 'learned' puts a small network in front (an MLP
            for vectors, a CNN for images, one for each key of a Dict); 'auto' is raw unless there is an image. Or any
            module, or a function of the `Layout` that makes one, from the structured observation to [n, S].
        vectorise: "sync" steps all environments in this process, "async" each in its own process.
        best_return: the return of a perfect episode, for the distance 'return'.
        success_distance: an episode that ends this close has succeeded; APIL's epsilon.
        batch: the default number of episodes in an iteration.
        name: for messages and tables; the environment's own if not given.
        action_names: a word for each action.
    """
    if isinstance(make_env, str):
        make_env = _by_id(make_env)
    whole, a_function = "give a whole number from 1 up", "give a function of the environment"
    for what, value, good, remedy in (
        ("make_env", make_env, callable(make_env), _MAKE_ENV),
        ("distance", distance, callable(distance) or isinstance(distance, str), f"{a_function}, {_DISTANCE}"),
        ("valid_actions", valid_actions, valid_actions is None or callable(valid_actions), a_function),
        ("horizon", horizon, horizon is None or _is_whole(horizon), whole),
        ("batch", batch, _is_whole(batch), whole),
        ("success_distance", success_distance, success_distance >= 0, "give a distance from 0 up"),
        ("vectorise", vectorise, vectorise in ("sync", "async"), "give sync or async"),
    ):
        if not good:
            raise ApilError(f"{what} is {value!r:.60}: {remedy}.")
    with _probe(make_env) as probe:
        name = name or (probe.spec.id if probe.spec is not None else type(probe.unwrapped).__name__)
        actions, layout = Actions(probe.action_space, name), Layout(probe.observation_space, name)
        horizon = horizon or (probe.spec.max_episode_steps if probe.spec is not None else None)
        masked = actions.box is None and (valid_actions is not None or _has_mask(probe))
    if horizon is None:
        raise ApilError(f"The environment '{name}' has no time limit: give horizon, the steps of the longest episode.")
    word = "action" if actions.box is None else "number"
    names = [f"{word} {i}" for i in range(actions.count)] if action_names is None else action_names
    if len(names) != actions.count:
        raise ApilError(f"{len(names)} action names for the {actions.count} actions of '{name}': give one for each.")
    measure = distance if callable(distance) else derived(str(distance), horizon, best_return)
    discrete = actions.count if actions.box is None else 0
    return GymnasiumTask(
        name=name,
        horizon=horizon,
        batch=batch,
        success_distance=success_distance,
        action_names=tuple(names),
        encoder=state_encoder(copy.deepcopy(encoder) if isinstance(encoder, nn.Module) else encoder, layout),
        layout=layout,
        converter=actions,
        masked=masked,
        make=lambda: Episode(_made(make_env), name, measure, valid_actions, discrete),
        pool=InTurn if vectorise == "sync" else InProcesses,
    )


_MAKE_ENV = "give the id of an environment, for example CartPole-v1, or a function that makes one"
_DISTANCE = (
    "0 at the goal, or one that needs no knowledge of the task: 'success' (APIL then learns where it fails, not where "
    "it gets stuck), 'steps' (for tasks that are about lasting), 'return' (with best_return)"
)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and bool(value >= 1)


def _by_id(name: str) -> MakeEnv:
    try:
        modes = gymnasium.spec(name).make().metadata.get("render_modes", [])
    except gymnasium.error.Error as error:
        raise ApilError(f"Gymnasium has no environment '{name[:60]}': {str(error).splitlines()[0]}") from error
    mode = next((mode for mode in ("ansi", "rgb_array") if mode in modes), None)
    return partial(gymnasium.make, name, render_mode=mode)


@contextmanager
def _probe(make_env: MakeEnv) -> Iterator[gymnasium.Env[Any, Any]]:
    """An environment to read the spaces from."""
    env = _made(make_env)
    try:
        yield env
    finally:
        with suppress(Exception):  # those that are trained in tell
            env.close()


def _has_mask(env: gymnasium.Env[Any, Any]) -> bool:
    try:
        return "action_mask" in env.reset(seed=0)[1]
    except Exception:  # the first reset of an episode says what is wrong, and where
        return False


def _made(make_env: MakeEnv) -> gymnasium.Env[Any, Any]:
    try:
        env: Any = make_env()
    except Exception as error:
        raise ApilError(f"make_env raised {in_one_line(error)}") from error
    if not isinstance(env, gymnasium.Env):
        raise ApilError(f"make_env returned {env!r:.60}: expected a gymnasium.Env.")
    return env
