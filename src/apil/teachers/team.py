"""Committees of anything that can answer, with names, weights, costs, and members who may be unavailable."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apil.errors import ApilError, in_one_line, unknown_name
from apil.rng import Draws, whole_of
from apil.teachers.committee import Selection
from apil.teachers.policies import Policy, Question, Reply, Waiting, as_policy, joined
from apil.teachers.protocol import Desk, MemberError, answers_batches
from apil.types import Answer, Observation, Reference

Turn = Literal["draw", "rotate"]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Member:
    name: str
    """For messages and records; no '+'."""
    policy: Any
    """How it answers; see `as_policy`."""
    weight: float = 1.0
    """Its weight when a member is drawn, relative to the others."""
    cost: float = 1.0
    """What one answer costs."""
    available: float | Callable[[float], float] = 1.0
    """The probability that it is available, or a function of the iteration that returns it."""

    def __post_init__(self) -> None:
        if not self.name or "+" in self.name:
            raise ApilError(f"'{self.name}' cannot be a member's name: give a word without '+'.")
        for what, value in (("weight", self.weight), ("cost", self.cost)):
            if not 0 <= value < math.inf:
                raise ApilError(f"The {what} of '{self.name}' is {value:g}: give a number from 0 up.")
        if not callable(self.available):
            self.presence(0)
        as_policy(self.policy)

    def presence(self, time: float) -> float:
        share = float(self.available(time)) if callable(self.available) else self.available
        if not 0 <= share <= 1:
            raise ApilError(f"'{self.name}' is available with probability {share:g}: give one from 0 to 1.")
        return share


class Team:
    """A committee of any members.

    The member who answers is drawn by the weights or rotates (`turn`), for a whole episode or for each query
    (`selection`). If it is away (`absence`: for a whole episode or for a query), another available member answers,
    drawn by the weights or next in turn (`substitute`), or nobody. If all are away there is no answer.
    """

    def __init__(
        self,
        members: Mapping[str, Any] | Sequence[Member],
        *,
        selection: Selection = "episode",
        turn: Turn = "draw",
        absence: Selection = "episode",
        substitute: bool = True,
    ) -> None:
        """`members` maps names to policies, or lists `Member` records."""
        if isinstance(members, Mapping):
            members = [Member(name, policy) for name, policy in members.items()]
        if not members:
            raise ApilError("A team needs at least one member.")
        for odd in [str(member)[:60] for member in members if not isinstance(member, Member)]:
            raise ApilError(f"{odd!r} has no name: give a dict of names and scripts, or Member records.")
        named = {"selection rule": (selection, Selection), "turn": (turn, Turn), "absence": (absence, Selection)}
        for name, (value, known) in named.items():
            if value not in get_args(known):
                raise unknown_name(name, value, get_args(known))
        self.people = tuple(members)
        self.selectable = True
        self.selection, self.turn, self.absence, self.substitute = selection, turn, absence, substitute
        total = sum(member.weight for member in self.people)
        if not total > 0:
            raise ApilError("All weights of the team are 0: give one member a weight.")
        self.members = tuple(member.name for member in self.people)
        self.weights = tuple(member.weight / total for member in self.people)
        self.costs = tuple(member.cost for member in self.people)
        self._policies = tuple(as_policy(member.policy) for member in self.people)
        self._batched = all(answers_batches(policy) for policy in self._policies)
        self.desk = _desk(self._policies)
        """Where the questions to members who are people wait; None if there are none."""
        if self.desk is not None:
            self.desk.seat(self.members)

    def reweighted(self, weights: Sequence[float] | None, selection: Selection | None) -> Team:
        weights = self.weights if weights is None else weights
        if len(weights) != len(self.people):
            raise ApilError(f"{len(weights)} weights for {len(self.people)} members: give one for each.")
        people = [replace(member, weight=weight) for member, weight in zip(self.people, weights, strict=True)]
        rules: dict[str, Any] = {"turn": self.turn, "absence": self.absence, "substitute": self.substitute}
        return Team(people, selection=selection or self.selection, **rules)

    def begin(self, draws: Draws, episodes: int, horizon: int) -> TeamSession:
        rank = self._ranks(draws, episodes, horizon)
        luck, keys = draws.uniform(horizon, episodes), draws.words(horizon, episodes)
        present = self._present(draws, episodes, horizon)
        chosen = (torch.where(present, rank, torch.inf) if self.substitute else rank).argmin(-1)
        return TeamSession(
            self.members,
            self._policies,
            chosen,
            present,
            luck,
            keys,
            draws.time,
            self._batched,
            draws.iteration,
            self.desk,
        )

    def _ranks(self, draws: Draws, episodes: int, horizon: int) -> Tensor:
        """[runs, T, episodes, K] float: the member with the least rank is to answer, then the next.

        Arrival times of an exponential race: the first of any set of members is one of them with the chances of their
        weights, so that a substitute is drawn by the weights of those who are there.
        """
        people = len(self.people)
        if self.turn == "rotate":
            # Goes on where the batch before ended. It passes with the steps, asked or not: a resumed run, which does
            # not ask again what it has on file, must find the same member.
            first, total = whole_of(episodes)
            place = torch.arange(first, first + episodes)
            turn = draws.iteration * total + place.expand(draws.runs, horizon, -1)
            if self.selection == "query":
                turn = turn + torch.arange(horizon).view(1, -1, 1)
            return ((torch.arange(people) - turn.unsqueeze(-1)) % people).float()
        moments = 1 if self.selection == "episode" else horizon
        ranks = draws.exponential(moments, episodes, people) / torch.tensor(self.weights)
        return ranks.expand(-1, horizon, -1, -1)

    def _present(self, draws: Draws, episodes: int, horizon: int) -> Tensor:
        """[runs, T, episodes, K] bool: who is there; a member of weight 0 is never drawn."""
        share = torch.tensor([member.presence(draws.time) for member in self.people])
        if self.turn == "draw":
            share = torch.where(torch.tensor(self.weights) > 0, share, 0.0)
        moments = 1 if self.absence == "episode" else horizon
        return (draws.uniform(moments, episodes, len(self.people)) < share).expand(-1, horizon, -1, -1)


def _desk(policies: Sequence[Policy]) -> Desk | None:
    """The one desk of all members who are people."""
    desks = {id(desk): desk for policy in policies if (desk := getattr(policy, "desk", None)) is not None}
    if len(desks) > 1:
        raise ApilError("The people of a team are of several People objects: name all of them in one.")
    return next(iter(desks.values()), None)


@dataclass(frozen=True)
class TeamSession:
    members: tuple[str, ...]
    policies: tuple[Policy, ...]
    identity: Tensor
    """[runs, T, episodes] long: who answers."""
    available: Tensor
    """[runs, T, episodes, K] bool: who is there."""
    luck: Tensor
    """[runs, T, episodes] float, uniform in (0, 1)."""
    keys: NDArray[np.uint64]
    """[runs, T, episodes]: of the generators."""
    time: float
    batched: bool
    """All members answer whole batches."""
    iteration: int = 0
    desk: Desk | None = None

    @property
    def missing_distances(self) -> bool:
        """People may leave them out."""
        return self.desk is not None

    def final(self, distance: Tensor) -> Tensor:
        """The final distances [runs, episodes] as people report them, if there are any in the team."""
        return distance if self.desk is None else self.desk.final(self.iteration, distance)

    def present(self, t: int) -> Tensor:
        """[runs, episodes, K] bool: who is there."""
        return self.available[:, t]

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        return self._answer(observation, reference, asked, t, self.identity[:, t])

    def answer_by(self, observation: Observation, reference: Reference, asked: Tensor, t: int, whom: Tensor) -> Answer:
        return self._answer(observation, reference, asked, t, torch.where(whom < 0, self.identity[:, t], whom))

    def _answer(
        self, observation: Observation, reference: Reference, asked: Tensor, t: int, identity: Tensor
    ) -> Answer:
        """The answers of the members `identity` [runs, episodes], of those who are there."""
        there = self.available[:, t].gather(-1, identity.unsqueeze(-1)).squeeze(-1)
        question = Question(observation, reference, asked, self.luck[:, t], self.keys[:, t], self.time)
        places = asked.nonzero()
        if len(places) == 1:
            run, episode = places[0].tolist()
            replies = [self._reply(int(identity[run, episode]), question)()] if there[run, episode] else []
        else:
            # All are asked before anybody is waited for.
            asks = list(self._asked(question, identity, there))
            replies = [wait() for wait in asks]
        reply = joined(replies, asked)
        action = torch.zeros_like(asked, dtype=torch.long) if reply.action is None else reply.action
        distance = reference.distance
        for own in replies:
            distance = distance if own.distance is None else torch.where(own.given, own.distance, distance)
            identity = identity if own.identity is None else torch.where(own.given, own.identity, identity)
        return Answer(action, distance, identity, reply.given)

    def _asked(self, question: Question, identity: Tensor, there: Tensor) -> Iterator[Callable[[], Reply]]:
        """What waits for the replies of all members who have a question."""
        asked = question.who & there
        for k in sorted(set(identity[asked].tolist())):
            yield self._reply(k, replace(question, who=asked & (identity == k)))

    def _reply(self, k: int, question: Question) -> Callable[[], Reply]:
        """What waits for the reply of a member, or gets it."""
        policy = self.policies[k]
        waits = self._named(k, lambda: policy.post(question)) if isinstance(policy, Waiting) else None
        return partial(self._named, k, waits or partial(policy.reply, question))

    def _named(self, k: int, ask: Callable[[], Result]) -> Result:
        """What `ask` returns; an error names the member."""
        try:
            return ask()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            said = error if isinstance(error, ApilError) else f"raised {in_one_line(error)}"
            raise MemberError(f"(member '{self.members[k]}') {said}") from error
