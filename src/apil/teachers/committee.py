"""Simulated teachers from two pieces: members, and a committee that selects among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, Literal, cast, get_args

import torch
from torch import Tensor

from apil.errors import ApilError, UnknownNameError, unknown_name
from apil.rng import Draws
from apil.teachers import TEACHERS
from apil.teachers.protocol import MemberError, Teacher
from apil.types import Answer, Observation, Reference

Selection = Literal["episode", "query"]
Share = Callable[[Tensor], Tensor]
"""u, uniform in (0, 1), of any shape -> from 0 to below 1: of n ordered reference actions a member picks the one at
floor(share * n)."""

MEMBERS: dict[str, Share] = {
    "first": torch.zeros_like,
    # The last of n for any n up to 2^20; nearer to 1, share * n would round up to n.
    "last": lambda u: torch.full_like(u, 1.0 - 2.0**-20),
    "uniform": lambda u: u,
}


@dataclass(frozen=True)
class Committee:
    """Members, one of whom is drawn for each episode (the paper's rule) or for each query."""

    members: tuple[str, ...]
    """Names from `MEMBERS`; the position is the identity."""
    weights: tuple[float, ...]
    """The probability of each member; sums to 1."""
    selection: Selection = "episode"
    selectable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.members:
            raise ApilError("A committee needs at least one member: give first, last or uniform.")
        for member in self.members:
            if member not in MEMBERS:
                raise unknown_name("committee member", member, MEMBERS)
        if len(self.weights) != len(self.members):
            raise ApilError(f"{len(self.weights)} weights for {len(self.members)} members: give one for each.")
        for weight in self.weights:
            if not 0 <= weight < math.inf:
                raise ApilError(f"Weight {weight:g} of the committee is not a probability: give numbers from 0 to 1.")
        total = sum(self.weights)
        if abs(total - 1.0) > 1e-6:
            raise ApilError(f"The committee's weights {list(self.weights)} sum to {total:g}: they must sum to 1.")
        if self.selection not in get_args(Selection):
            raise unknown_name("selection rule", self.selection, get_args(Selection))

    def begin(self, draws: Draws, episodes: int, horizon: int) -> CommitteeSession:
        moments = 1 if self.selection == "episode" else horizon
        identity = (
            (draws.uniform(moments, episodes).unsqueeze(-1) > _bounds(self.weights)).sum(-1).expand(-1, horizon, -1)
        )
        luck = draws.uniform(horizon, episodes)
        return CommitteeSession(self, identity.unbind(1), self.shares(identity, luck).unbind(1), luck)

    def shares(self, identity: Tensor, luck: Tensor) -> Tensor:
        """How far down the reference actions each `identity` picks with its `luck`, all of one shape."""
        share = torch.zeros_like(luck)
        for k, member in enumerate(self.members):
            if member != "first":
                share = torch.where(identity == k, MEMBERS[member](luck), share)
        return share

    def distribution(self, reference: Reference) -> Tensor:
        """[runs, episodes, K, A]: each member's true action distribution, for comparing what was learned with it."""
        actions = reference.actions.shape[-1]
        places = torch.arange(actions)
        count = reference.count.unsqueeze(-1)
        of_place = {
            "first": (places == 0).expand(*count.shape[:-1], actions).float(),
            "last": (places == count - 1).float(),
            "uniform": (places < count).float() / count,
        }
        by_place = torch.stack([of_place[member] for member in self.members], dim=-2)
        order = reference.actions.unsqueeze(-2).expand_as(by_place)
        return torch.zeros_like(by_place).scatter_add(-1, order, by_place)


@cache
def _bounds(weights: tuple[float, ...]) -> Tensor:
    """[K - 1]: where one member's share of (0, 1) ends and the next begins."""
    return torch.tensor(weights, dtype=torch.float64).cumsum(0)[:-1].float()


@dataclass(frozen=True)
class CommitteeSession:
    committee: Committee
    identity: Sequence[Tensor]
    """At each of T steps [runs, episodes] long: who answers."""
    share: Sequence[Tensor]
    """At each of T steps [runs, episodes] float: how far down the reference actions the answer is."""
    luck: Tensor
    """[runs, T, episodes] float, uniform in (0, 1)."""
    batched: ClassVar[bool] = True

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        return Answer(picked(reference, self.share[t]), reference.distance, self.identity[t])

    def present(self, t: int) -> Tensor:
        """All members that have a weight."""
        there = torch.tensor(self.committee.weights) > 0
        return there.expand(*self.identity[t].shape, -1)

    def answer_by(self, observation: Observation, reference: Reference, asked: Tensor, t: int, whom: Tensor) -> Answer:
        identity = torch.where(whom < 0, self.identity[t], whom)
        share = self.committee.shares(identity, self.luck[:, t])
        there = self.present(t).gather(-1, identity.unsqueeze(-1)).squeeze(-1)
        return Answer(picked(reference, share), reference.distance, identity, there)


def picked(reference: Reference, share: Tensor) -> Tensor:
    """[runs, episodes] long: the reference actions that are `share` [runs, episodes] of the way down their order."""
    if not reference.actions.shape[-1]:
        raise MemberError("picks among a task's reference actions, and this one knows none: give other teachers")
    position = (share * reference.count).long()
    return reference.actions.gather(-1, position.unsqueeze(-1)).squeeze(-1)


def equal(members: Sequence[str]) -> Committee:
    return Committee(tuple(members), (1.0 / len(members),) * len(members))


detm = partial(equal, ["first"])
rand = partial(equal, ["uniform"])
tworand = partial(equal, ["uniform", "uniform"])
twodifdetm = partial(equal, ["first", "last"])
"""The four committees of the paper."""


def committee(spec: str, weights: Sequence[float] | None = None, selection: Selection | None = None) -> Committee:
    """The same as `teacher`, for committees of simulated members alone."""
    found = teacher(spec, weights, selection)
    if not isinstance(found, Committee):
        raise ApilError(f"'{spec}' is no committee of {', '.join(MEMBERS)}: give one of those.")
    return found


def _named(spec: str) -> Any:
    name, colon, argument = spec.partition(":")
    if colon and name in TEACHERS.names():
        return TEACHERS.load(name)(argument)
    return equal(spec.split("+")) if "+" in spec or spec in MEMBERS else TEACHERS.load(spec)()


def teacher(spec: str, weights: Sequence[float] | None = None, selection: Selection | None = None) -> Teacher:
    """Teachers by their registered name, simulated members joined by '+', or the members of registered teachers.

    What follows a colon goes to the registered teacher: people:ann+bob.

    Weights and selection are the teachers' own if not given; only those who draw a member by weights can change them.
    """
    base: Any
    try:
        base = _named(spec)
    except UnknownNameError:
        # Those from outside apil who have these members: so a run names teachers that it was given as objects.
        made = (TEACHERS.load(entry.name)() for entry in TEACHERS if entry.own)
        base = next((found for found in made if found.members == tuple(spec.split("+"))), None)
        if base is None:
            raise
    if isinstance(base, Committee):
        return Committee(base.members, tuple(weights or base.weights), selection or base.selection)
    if not weights and selection is None:
        return cast(Teacher, base)
    if not hasattr(base, "reweighted"):
        raise ApilError(f"Teacher '{spec}' chooses who answers by itself: leave weights and selection out.")
    changed: Teacher = base.reweighted(weights or None, selection)
    return changed
