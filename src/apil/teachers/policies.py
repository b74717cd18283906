"""How one member answers: a script, a trained policy, a simulated rule, demonstrations, or one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apil.errors import ApilError, unknown_name
from apil.rng import generator
from apil.teachers.committee import MEMBERS, picked
from apil.teachers.protocol import answers_batches
from apil.types import Observation, Reference

Script = Callable[[Any, np.random.Generator], Any]
"""(observation, rng) -> action, or None for no answer."""


@dataclass(frozen=True)
class Question:
    """The questions of one step that one member has to answer."""

    observation: Observation
    reference: Reference
    who: Tensor
    """[runs, episodes] bool: where the member answers."""
    luck: Tensor
    """[runs, episodes] float, uniform in (0, 1): for rules that work on whole tensors."""
    keys: NDArray[np.uint64]
    """[runs, episodes]: a key for the generator of each question."""
    time: float
    """Iterations of training before this one; infinite where a trained agent is measured."""

    def seen(self, run: int, episode: int) -> Any:
        """What the environment showed: its own observation, or the state vector [F] of a built-in task (read only)."""
        if self.reference.situations is not None:
            return self.reference.situations.observation(run, episode)
        seen = self.observation.features[run, episode].numpy()
        seen.flags.writeable = False
        return seen

    def rng(self, run: int, episode: int) -> np.random.Generator:
        """A generator that depends on the run's seed, the iteration, the episode and the step alone."""
        return generator(self.keys[run, episode])

    def action(self, value: Any) -> Tensor:
        """An action of the environment as the learner has it: [] long, or [n] float where actions are continuous."""
        if self.reference.situations is not None:
            return self.reference.situations.action(value)
        index, actions = np.asarray(value), self.observation.valid.shape[-1]
        if index.size != 1 or index.dtype.kind not in "iu" or not 0 <= int(index.item()) < actions:
            raise ApilError(f"answered {str(value)[:60]!r}, expected an action from 0 to {actions - 1}")
        return torch.tensor(int(index.item()))


@dataclass(frozen=True)
class Reply:
    """What a member answers; it means nothing where it was not asked."""

    action: Tensor | None
    """[runs, episodes] long, or [runs, episodes, n] float; None if no question was answered."""
    given: Tensor
    """[runs, episodes] bool: there is an answer; false where it was not asked."""
    distance: Tensor | None = None
    """[runs, episodes] float: d(s) as reported by the member; the task's if None."""
    identity: Tensor | None = None
    """[runs, episodes] long: who answered in the member's place; the member itself if None."""


class Policy(Protocol):
    """How a member answers.

    One with `batched = True` answers any number of questions at once; others are given one question at a time.
    """

    def reply(self, question: Question) -> Reply:
        """The answers at `question.who`. They depend on nothing but the question."""


@runtime_checkable
class Waiting(Protocol):
    """A member that takes time to answer: others are asked meanwhile."""

    def post(self, question: Question) -> Callable[[], Reply]:
        """Puts the question; what is returned waits for the answers."""


def gather(question: Question, answer: Callable[[int, int], Any]) -> Reply:
    """The reply of somebody who answers one question at a time; None is no answer."""
    found: Tensor | None = None
    given = torch.zeros_like(question.who)
    for run, episode in question.who.nonzero().tolist():
        value = answer(run, episode)
        if value is None:
            continue
        action = question.action(value)
        if found is None:
            found = action.new_zeros(*question.who.shape, *action.shape)
        found[run, episode] = action
        given[run, episode] = True
    return Reply(found, given)


@dataclass(frozen=True)
class Simulated:
    """Picks from the task's ordered reference actions: 'first', 'last' or 'uniform'."""

    rule: str
    batched: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.rule not in MEMBERS:
            raise unknown_name("simulated teacher", self.rule, MEMBERS)

    def reply(self, question: Question) -> Reply:
        return Reply(picked(question.reference, MEMBERS[self.rule](question.luck)), question.who)


@dataclass(frozen=True)
class Scripted:
    """A callable `(observation, rng) -> action`; None is no answer."""

    script: Script
    privileged: bool = False
    """It is given the environment itself instead of the observation, to look at and not to step."""

    def reply(self, question: Question) -> Reply:
        situations = question.reference.situations
        if self.privileged and situations is None:
            raise ApilError("needs the environment, and this task has none to show: use the observation")
        show = situations.environment if self.privileged and situations is not None else question.seen
        return gather(question, lambda run, e: self.script(show(run, e), question.rng(run, e)))


@dataclass(frozen=True)
class Predicting:
    """A policy with `predict(observation, deterministic=...) -> (action, state)`, as Stable-Baselines3 has them.

    One that samples (`deterministic=False`) draws from torch's generator, which is seeded for each question and put
    back. A policy with a memory would miss the steps that are not asked.
    """

    policy: Any
    deterministic: bool = True

    def reply(self, question: Question) -> Reply:
        def predict(run: int, episode: int) -> Any:
            with torch.random.fork_rng(devices=[], enabled=not self.deterministic):
                if not self.deterministic:
                    torch.manual_seed(int(question.keys[run, episode]))
                return self.policy.predict(question.seen(run, episode), deterministic=self.deterministic)[0]

        return gather(question, predict)


@dataclass(frozen=True)
class Drift:
    """A member that changes over training: acts like `before`, later like `after`."""

    before: Any
    after: Any
    """`before` and `after` can be anything that a member can be."""
    at: float | Callable[[float], float]
    """The first iteration of `after`; or a function of the iteration that gives the probability of `after`."""

    @property
    def batched(self) -> bool:
        """Where both are."""
        return all(answers_batches(as_policy(side)) for side in (self.before, self.after))

    def reply(self, question: Question) -> Reply:
        share = float(self.at(question.time)) if callable(self.at) else float(question.time >= self.at)
        if not 0 <= share <= 1:
            raise ApilError(f"drifts with probability {share:g} at time {question.time:g}: give one from 0 to 1")
        if share in (0.0, 1.0):
            return as_policy(self.after if share else self.before).reply(question)
        later = question.luck < share
        # Within either side the luck that is left is uniform again.
        luck = torch.where(later, question.luck / share, (question.luck - share) / (1 - share)).clamp(0.0, 1 - 2**-20)
        sides = ((self.before, question.who & ~later), (self.after, question.who & later))
        parts = [(as_policy(side), replace(question, who=who, luck=luck)) for side, who in sides if who.any()]
        return joined([policy.reply(part) for policy, part in parts], question.who)


class Demonstrations:
    """Answers with the action of the nearest demonstrated state, among those whose action can be taken here.

    Nearness is the Euclidean distance between flattened observations; of several equally near ones any is taken with
    equal chance. Farther than `within` there is no answer; with `within=0` only demonstrated states are answered. The
    distance d(s) is the task's, not a part of the demonstrations.
    """

    def __init__(self, observations: Sequence[Any], actions: Sequence[Any], within: float = math.inf) -> None:
        """`observations` and `actions` as the environment has them (state vectors in a built-in task), one a step."""
        if len(observations) != len(actions) or len(actions) == 0:
            count = f"{len(observations)} observations and {len(actions)} actions"
            raise ApilError(f"{count} are no demonstrations: give as many of both, at least one.")
        if not within >= 0:
            raise ApilError(f"within is {within:g}: give a distance between observations from 0 up.")
        self.within = within
        self._states = np.stack([flat(observation) for observation in observations])
        self._raw = list(actions)
        self._actions: Tensor | None = None

    def reply(self, question: Question) -> Reply:
        if self._actions is None:
            self._actions = torch.stack([question.action(value) for value in self._raw])
        return gather(question, lambda run, episode: self._lookup(question, run, episode))

    def _lookup(self, question: Question, run: int, episode: int) -> Any:
        """The demonstrated action, as the environment has it; None where there is none near enough."""
        assert self._actions is not None
        here, width = flat(question.seen(run, episode)), self._states.shape[1]
        if len(here) != width:
            raise ApilError(f"was shown with observations of {width} numbers, and this task shows {len(here)}")
        far = np.sqrt(np.square(self._states - here).sum(-1))
        if not self._actions.is_floating_point():
            valid = question.observation.valid[run, episode].numpy()
            far = np.where(valid[self._actions.numpy()], far, np.inf)
        least = far.min()
        if not least <= self.within or math.isinf(least):
            return None
        nearest = np.flatnonzero(far == least)
        return self._raw[int(question.rng(run, episode).choice(nearest))]


def joined(replies: Iterable[Reply], who: Tensor) -> Reply:
    """The replies to different questions of one step as one; `who` [runs, episodes] is where there were any."""
    action: Tensor | None = None
    given = torch.zeros_like(who)
    for reply in replies:
        if reply.action is not None:
            action = torch.zeros_like(reply.action) if action is None else action
            action[reply.given] = reply.action[reply.given]
            given = given | reply.given
    return Reply(action, given)


def as_policy(member: Any) -> Policy:
    """How `member` answers: a simulated rule by name, a policy with `predict`, an agent with `act` or `get_action`, a
    callable `(observation, rng) -> action`, or what is a `Policy` already.
    """
    if isinstance(member, str):
        return Simulated(member)
    if callable(getattr(member, "reply", None)):
        return cast(Policy, member)
    if callable(getattr(member, "predict", None)):
        return Predicting(member)
    for act in (getattr(member, "act", None), getattr(member, "get_action", None)):
        if callable(act):
            return Scripted(partial(_act, act))
    if callable(member) and not isinstance(member, type):
        return Scripted(member)
    raise ApilError(
        f"{str(member)[:60]!r} cannot teach: give a callable (observation, rng) -> action, something with predict, act "
        f"or get_action, a Demonstrations, a Drift, or one of {', '.join(MEMBERS)}."
    )


def _act(act: Callable[[Any], Any], observation: Any, rng: np.random.Generator) -> Any:
    """Without the generator: an agent that samples fails `check_teacher`."""
    return act(observation)


def flat(observation: Any) -> NDArray[np.float64]:
    """An observation as one vector: arrays end to end, those of a dict in the order of its sorted keys."""
    if isinstance(observation, Mapping):
        return np.concatenate([flat(observation[key]) for key in sorted(observation)])
    if isinstance(observation, tuple | list):
        return np.concatenate([flat(part) for part in observation])
    return np.asarray(observation, dtype=np.float64).ravel()
