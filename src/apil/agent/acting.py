"""The trained agent: `load`, `act`, `predict`, `save`.

All randomness is keyed by (the run's seed, 'acting/...', a number), so that it can be repeated. The N2
models that vote are drawn once (number 0): the same observation always gets the same greedy action, identity
distribution and uncertainty, alone or in a batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from apil.agent.build import Senses, build, tensors_of
from apil.agent.spec import AgentSpec
from apil.agent.storage import read_agent, write_agent
from apil.errors import ApilError, plural, unknown_name
from apil.model.protocol import ActingModel, Model
from apil.query.protocol import Listener, QueryPolicy
from apil.rng import Draws, Streams, race
from apil.tasks.gymnasium.encoders import Encoder
from apil.tasks.places import find_place
from apil.types import Answer, Belief, Observation, Uncertainty

_PARTS = tuple(field.name for field in fields(Uncertainty))
_CHUNK = 250
"""Observations that are decided at once; more no longer fit the cache."""


@dataclass(frozen=True)
class Decision:
    """What an agent decides for one observation, or for a batch of n. In a batch every field leads with [n].

    Examples:
        >>> agent = apil.train("grid", "twodifdetm", "apil", iterations=50).agent
        >>> decision = agent.act([0.0] * 24 + [0.5])
        >>> decision.ask in (True, False)
        True
        >>> list(decision.identity)
        ['first', 'last']
    """

    action: Any
    """An element of the environment's action space, ready for its `step`; an array of them for a batch."""
    ask: Any
    """bool or [n] bool: the query policy would rather ask a teacher. None where its plug-in is missing."""
    identity: Mapping[str, Any]
    """Who would answer here, as the agent believes: a probability, or [n] of them, for each teacher by name."""
    uncertainty: Mapping[str, Any]
    """total, behavioral, intrinsic, extrinsic and model: a number each, or [n]; as in `apil.types.Uncertainty`."""
    policy: Any
    """[A] or [n, A]: the mean policy, a probability for each action; where actions are continuous [2m] or [n, 2m], mean
    and deviation of each of the m numbers of an action, scaled to -1 to 1."""


def load(folder: str | Path, *, encoder: Encoder | None = None, data: str | Path | None = None) -> Agent:
    """Loads the agent of a run's folder, or of a folder written by `Agent.save`. Runs no code from the folder.

    Args:
        folder: of a run, in training or finished (its newest checkpoint is loaded), or of a saved agent.
        encoder: the module that was given to `from_gymnasium`, or the function that makes it, if the agent was
            trained with your own encoder. Its weights are replaced by the trained ones.
        data: the folder of the task's compiled data, if it has moved since training.

    Examples:
        >>> trained = apil.train("grid", "twodifdetm", "apil", iterations=50, folder="runs/demo")
        >>> apil.load("runs/demo")
        Agent(grid: 25 features, 2 actions; teachers first, last; asks by apil)
    """
    spec, saved = read_agent(Path(folder))
    try:
        model, query = build(spec, saved, encoder, _place(Path(folder), spec) if data is None else str(data))
        return Agent(spec, model, query, saved)
    except (MemoryError, RuntimeError, OverflowError) as error:
        reason = str(error).splitlines()[0][:80] if str(error) else type(error).__name__
        raise ApilError(f"Cannot build the agent in {folder} ({reason}): restore its files.") from error


def _place(folder: Path, spec: AgentSpec) -> str | None:
    """Where the data of an agent in the folder of its run are now, if it has some."""
    typed = (spec.own or {}).get("data")
    return find_place(folder, "data", typed) if isinstance(typed, str) and typed else None


class Agent:
    """A trained agent. It no longer learns: acting does not change it.

    Examples:
        >>> agent = apil.train("grid", "detm", "apil", iterations=50).agent
        >>> agent.act([0.0] * 24 + [0.5]).action in (0, 1)
        True
        >>> agent.save("agents/grid")
        >>> apil.load("agents/grid").teachers
        ('first',)
    """

    def __init__(
        self, spec: AgentSpec, model: Model, query: QueryPolicy | None, saved: Mapping[str, Tensor] | None = None
    ) -> None:
        """Builds an agent from its parts; use `load` or `Trained.agent` instead. `saved` are tensors of a query policy
        whose plug-in is missing, kept so that `save` writes them again."""
        self.spec = spec
        self.teachers = _distinct(spec.teachers)
        """K names; those who share a name are numbered from the second on."""
        self._model, self._query = model, query
        self._tensors = {**(saved or {}), **tensors_of(model, query)}
        self._senses = Senses(spec)
        self._streams = Streams([spec.seed])
        self._calls, self._episodes = itertools.count(), itertools.count()
        self._votes: ActingModel | None = None
        if not model.recurrent:
            with torch.inference_mode():
                self._votes = self._begin(self._draws(0), 1, spec.horizon)[0]

    def __repr__(self) -> str:
        spec, known = self.spec, self._senses.actions
        names = ", ".join(self.teachers[:4]) + (", ..." if len(self.teachers) > 4 else "")
        actions = f"{known.count} {'actions' if known.box is None else 'numbers'}"
        return f"Agent({spec.task}: {spec.features} features, {actions}; teachers {names}; asks by {spec.query.name})"

    def act(
        self, observation: Any, *, valid: Any = None, step: int = 0, sample: bool = False, seed: int | None = None
    ) -> Decision:
        """Decides on an action for one observation or for a batch of n.

        Args:
            observation: as the environment gives it, or as its vector environment does; for GRID, MAZE and other tasks
                of plain features [F] or [n, F], or an `apil.types.Observation`.
            valid: [A] or [n, A], true for the actions that can be taken; None for all, which is an error where the
                environment of the training had a mask (`valid_actions` or info['action_mask']).
            step: the step of the episode, for query policies that use the time left; it wraps around after T steps.
            sample: whether to sample models and the action, as training does. Otherwise it is the likeliest action, or
                the mean where actions are continuous.
            seed: for everything that is sampled, including APIL's query action. By default the number of this call: a
                loop then samples new numbers at each call, and the whole loop is reproducible.
        """
        if self._votes is None:
            raise ApilError(
                f"An agent of '{self.spec.task}' remembers the steps of an episode: act in "
                "`with agent.episode() as episode`."
            )
        number = next(self._calls) if seed is None else seed
        step %= self.spec.horizon
        with torch.inference_mode():
            seen, alone = self._senses.observe(observation, valid)
            count = seen.features.shape[1]
            arrival, votes, left = None, self._votes, self.spec.horizon
            if sample:
                votes, arrival = self._begin(self._draws(number), count, 1)
                arrival, step, left = arrival[:, 0], 0, left - step
            belief = votes.belief(seen, step, left) if sample else _in_chunks(votes, seen, step, left)
            fired = None
            if self._query is not None:
                luck = self._streams.draws("acting/query", number).uniform(count)
                known = replace(belief, features=seen.features)
                fired = self._query.begin(count, training=False).ask(known, luck)
            return self._decision(belief, self._choose(belief, arrival), fired, alone)

    def episode(self, *, sample: bool = False, seed: int | None = None) -> Episode:
        """Opens one episode, or n episodes that step together; `sample` and `seed` are as in `act`."""
        return Episode(self, sample, next(self._episodes) if seed is None else seed)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """Follows Stable-Baselines3: returns the action, or a batch of actions, and the state for the next call.

        An agent that remembers the steps of an episode needs its `state` back. All episodes of a batch then start
        together.
        """
        if self._votes is not None:
            return self.act(observation, valid=action_masks, sample=not deterministic).action, None
        starts = state is None or (episode_start is not None and np.all(episode_start))
        if not starts and np.any(episode_start):
            raise ApilError("Some episodes of the batch start while others continue: use one environment, or episodes.")
        episode: Episode = self.episode(sample=not deterministic) if starts else state
        return episode.act(observation, valid=action_masks).action, episode

    def features(self, observation: Any) -> Any:
        """[F] or [n, F] float32: the input of the networks and of an exported policy."""
        seen, alone = self._senses.observe(observation, np.ones(self._senses.actions.count, bool))
        return seen.features[0, 0].numpy() if alone else seen.features[0].numpy()

    def save(self, folder: str | Path) -> None:
        """Writes agent.json and agent.safetensors into a folder of their own, for `apil.load`."""
        write_agent(Path(folder), self.spec, self._tensors)

    def export(self, path: str | Path) -> None:
        """Writes the greedy policy as ONNX, for agents that read features without an encoder (extra `onnx`).

        Inputs `features` [n, F] float32 and, where actions are discrete, `valid` [n, A] bool. Outputs `action` [n]
        (or [n, m], in the units of the environment), `policy` and `identity` [n, K], as in `Decision`; the expectation
        over identities is the exact one. The N2 models that vote are part of the file.
        """
        from apil.agent.onnx_file import write_onnx

        write_onnx(Path(path), self.spec, self._model, self._draws(0)[0], self._senses.actions)

    def _draws(self, number: int) -> tuple[Draws, Draws]:
        """For models and actions, and for identities."""
        return self._streams.draws("acting/model", number), self._streams.draws("acting/identity", number)

    def _begin(self, draws: tuple[Draws, Draws], episodes: int, horizon: int) -> tuple[ActingModel, Tensor]:
        """Models for the next `horizon` steps, and arrival times [1, horizon, episodes, A] to sample actions by."""
        model = self._model.begin(*draws, episodes, horizon)
        return model, draws[0].exponential(horizon, episodes, self._senses.actions.count)

    def _choose(self, belief: Belief, arrival: Tensor | None) -> Tensor:
        """[1, n] long or [1, n, m] float: the likeliest action (the mean one), or one that is drawn."""
        box = self._senses.actions.box
        if box is None:
            return belief.mean.argmax(-1) if arrival is None else race(belief.mean, arrival)
        if arrival is None:
            return box.unscaled(belief.mean[..., : len(box.low)])
        assert belief.drawn is not None
        return belief.drawn

    def _decision(self, belief: Belief, action: Tensor, fired: Tensor | None, alone: bool) -> Decision:
        def plain(values: Tensor) -> Any:
            """[..., n] as it is, or Python values of the one observation."""
            return values[..., 0].tolist() if alone else values.numpy()

        actions, policy = self._senses.actions.taken(action[0]), belief.mean[0].numpy()
        return Decision(
            actions[0] if alone else actions,
            None if fired is None else plain(fired[0]),
            dict(zip(self.teachers, plain(belief.identity[0].T), strict=True)),
            {name: plain(getattr(belief.uncertainty, name)[0]) for name in _PARTS},
            policy[0] if alone else policy,
        )


class Episode:
    """An agent during one episode, or during n that step together; see `Agent.episode`.

    It remembers the steps and receives the answers. After T steps the time step starts over.
    """

    def __init__(self, agent: Agent, sample: bool, number: int) -> None:
        self._agent, self._sample = agent, sample
        self._policy = agent._query
        self._luck_draws = agent._streams.draws("acting/query", number)
        self._draws = agent._draws(number if sample else 0)
        self._step, self._count, self._closed = 0, 0, False
        self._belief: Belief | None = None
        self._answer: Answer

    def __enter__(self) -> Episode:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True

    def act(self, observation: Any, *, valid: Any = None) -> Decision:
        """Decides on the action at the next step; `observation` and `valid` as in `Agent.act`."""
        if self._closed:
            raise ApilError("The episode is over: open another one with agent.episode().")
        agent, horizon = self._agent, self._agent.spec.horizon
        with torch.inference_mode():
            seen, alone = agent._senses.observe(observation, valid)
            t = self._step % horizon
            self._open(seen, t)
            if self._belief is not None and self._policy is not None and isinstance(self._session, Listener):
                assert self._answer.given is not None
                self._session.hear(self._belief, self._answer, self._answer.given)
            shared = self._votes is agent._votes
            belief = _in_chunks(self._votes, seen, t, horizon) if shared else self._votes.belief(seen, t, horizon)
            known = replace(belief, features=seen.features)
            fired = None if self._policy is None else self._session.ask(known, self._luck[:, t])
            own = agent._choose(belief, self._arrival[:, t] if self._sample else None)
            self._step += 1
            self._belief, self._answer = replace(belief, taken=own), _no_answer(own)
            return agent._decision(belief, own, fired, alone)

    def answer(self, action: Any, *, teacher: str, distance: float | None = None, where: Any = None) -> None:
        """Records that a teacher answered at the step just decided. It executes nothing.

        Rules under which the teacher keeps control until it agrees with the agent use the answer, and ask until then.

        Args:
            action: an element of the action space; for n episodes a batch of them.
            teacher: the name, one of `Agent.teachers`.
            distance: d(s), where the teacher reported it.
            where: [n] bool, the episodes that were answered; all of them if not given.
        """
        agent = self._agent
        if self._belief is None:
            raise ApilError("Nothing was decided yet: call episode.act(observation) before episode.answer.")
        if teacher not in agent.teachers:
            raise unknown_name("teacher", teacher, agent.teachers)
        alone = self._count == 1 and np.ndim(action) == len(agent._senses.actions.space.shape or ())
        batch = [action] if alone else list(action)
        rows = np.ones(self._count, bool) if where is None else np.asarray(where, bool)
        if len(batch) != self._count or rows.shape != (self._count,):
            raise ApilError(
                f"{plural(len(batch), 'answer')} for {plural(self._count, 'episode')}: give an action for each."
            )
        answer = self._answer
        assert answer.given is not None
        for row in rows.nonzero()[0].tolist():
            answer.action[0, row] = agent._senses.actions.learned(batch[row])
            answer.identity[0, row] = agent.teachers.index(teacher)
            answer.distance[0, row] = torch.nan if distance is None else distance
            answer.given[0, row] = True

    def _open(self, seen: Observation, t: int) -> None:
        """Begins what is due at the first step, and at every T-th."""
        agent, count = self._agent, seen.features.shape[1]
        if self._step and count != self._count:
            raise ApilError(
                f"The episode began with {self._count} observations and now has {count}: keep their number."
            )
        if t:
            return
        self._count = count
        if self._sample or agent._votes is None:
            self._votes, self._arrival = agent._begin(self._draws, count, agent.spec.horizon)
        else:
            self._votes = agent._votes
        self._luck = self._luck_draws.uniform(agent.spec.horizon, count)
        if not self._step and self._policy is not None:
            self._session = self._policy.begin(count, training=False)


def _in_chunks(votes: ActingModel, seen: Observation, t: int, horizon: int) -> Belief:
    """The belief about any number of observations, of models drawn for one: little memory, and most of it cached."""
    pieces = map(Observation, torch.split(seen.features, _CHUNK, 1), torch.split(seen.valid, _CHUNK, 1))
    beliefs = [votes.belief(piece, t, horizon) for piece in pieces]
    return beliefs[0] if len(beliefs) == 1 else cast(Belief, _joined(beliefs))


def _joined(records: Sequence[Any]) -> Any:
    """Records of tensors [1, n, ...] as one; what is no tensor is the same in all."""
    first = records[0]
    if isinstance(first, Tensor):
        return torch.cat(list(records), 1)
    if not is_dataclass(first):
        return first
    parts = {field.name: [getattr(record, field.name) for record in records] for field in fields(first)}
    return replace(first, **{name: _joined(values) for name, values in parts.items()})  # type: ignore[type-var]


def _no_answer(like: Tensor) -> Answer:
    """Room for answers to `like` [1, n] or [1, n, m]; none is given yet."""
    with torch.inference_mode(False):
        shape = like.shape[:2]
        none = torch.zeros(shape, dtype=torch.long)
        return Answer(torch.zeros(like.shape, dtype=like.dtype), torch.full(shape, torch.nan), none, none.bool())


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    before = [names[:place].count(name) for place, name in enumerate(names)]
    return tuple(f"{name} {count + 1}" if count else name for name, count in zip(names, before, strict=True))
