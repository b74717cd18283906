"""Selectors that learn nothing."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from apil.nn import Parameters
from apil.rng import Draws
from apil.select.protocol import NOBODY, SelectSetup
from apil.types import Answer, Episodes, Observation


class Ranked:
    """Asks the one with the least rank of those who are there. Learns nothing, so one object is also its session."""

    def __init__(self, ranks: Tensor) -> None:
        """`ranks` [runs, K] float; teachers of the same rank take turns."""
        self.ranks = ranks
        self.memory: Parameters = {}

    def begin(self, draws: Draws, episodes: int, horizon: int) -> RankedSession:
        """The turn goes on where the batch before ended, and passes with the steps, asked or not: a resumed run, which
        has some answers on file, must find the same teacher."""
        first = draws.iteration * episodes + torch.arange(episodes)
        return RankedSession(self.ranks, first)

    def observe(self, episodes: Episodes) -> None:
        """Remembers nothing."""


@dataclass(frozen=True)
class RankedSession:
    ranks: Tensor
    """[runs, K]"""
    first: Tensor
    """[episodes] long: the turn at the first step."""

    def choose(self, seen: Observation, present: Tensor, put: Tensor, t: int) -> Tensor:
        ranks = torch.where(present, self.ranks.unsqueeze(1), torch.inf)
        tied = present & (ranks == ranks.amin(-1, keepdim=True))
        # Of the n who are tied the one whose turn it is: the first with `turn % n` of them before.
        number = tied.cumsum(-1)
        turn = (self.first + t).unsqueeze(0) % number[..., -1].clamp_min(1)
        return (tied & (number == turn.unsqueeze(-1) + 1)).long().argmax(-1)

    def hear(self, answer: Answer, answered: Tensor) -> None:
        """Nothing depends on it."""


class Environment:
    """Leaves the choice to the teachers."""

    def __init__(self) -> None:
        self.memory: Parameters = {}

    def begin(self, draws: Draws, episodes: int, horizon: int) -> Environment:
        return self

    def observe(self, episodes: Episodes) -> None:
        """Remembers nothing."""

    def choose(self, seen: Observation, present: Tensor, put: Tensor, t: int) -> Tensor:
        return torch.full_like(put, NOBODY, dtype=torch.long)

    def hear(self, answer: Answer, answered: Tensor) -> None:
        """Nothing depends on it."""


def environment(setup: SelectSetup) -> Environment:
    """The paper's: the teachers choose by themselves."""
    return Environment()


def cheapest(setup: SelectSetup) -> Ranked:
    """Whose answer costs least."""
    return Ranked(setup.costs)


def round_robin(setup: SelectSetup) -> Ranked:
    """One after the other."""
    return Ranked(torch.zeros_like(setup.costs))
