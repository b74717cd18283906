"""Selectors that learn who is good, and where."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor

from apil.nn import Parameters
from apil.rng import Draws
from apil.select.protocol import NOBODY, SelectSetup
from apil.select.skill import SkillBook
from apil.settings.record import Distance, Says
from apil.types import Answer, Episodes, Observation

CANDIDATES = 64
"""Teachers that are compared for a question; of more, the best and some newcomers, drawn for each batch of episodes."""
_NEW = 16
"""Of them newcomers, where there are any."""
_LEAST = 1e-3
"""The cost of an answer that costs nothing, and the worth of one that leads nowhere: somebody has to be asked."""
POWER = 4.0
"""Of the skill in what an answer is worth; docs/method/whom-to-ask.md says why."""
Power = Annotated[float, Ge(0), Le(100), Says("give a number from 0 to 100")]


def worth(skill: Tensor, cost: Tensor, power: float) -> Tensor:
    """What answers of such a skill are worth for their cost; both broadcast."""
    return (skill.clamp(0.0, 1.0).pow(power) + _LEAST * skill.clamp(-1.0, 1.0)) / cost.clamp_min(_LEAST)


class Skilled:
    """Asks whose answer is worth most for its cost: skill^power / cost, the skill drawn from what is believed of it.

    Power 2 and draws are ours (`learned`): an answer that is right with a margin m says as much as m^2 of those that
    are always right. Power 1 and the mean are the plain ratio (`best`).
    """

    def __init__(self, setup: SelectSetup, power: float, explore: float) -> None:
        self.setup, self.power, self.explore = setup, power, explore
        self.skills = SkillBook(setup)

    @property
    def memory(self) -> Parameters:
        return self.skills.memory

    def begin(self, draws: Draws, episodes: int, horizon: int) -> SkilledSession:
        width = min(self.setup.teachers, CANDIDATES)
        luck = draws.uniform(self.setup.teachers)
        normal = draws.normal(horizon, episodes, width)
        return SkilledSession(self, self._candidates(luck), self._strangers(luck), normal)

    def observe(self, episodes: Episodes) -> None:
        self.skills.observe(episodes)

    def _strangers(self, luck: Tensor) -> Tensor:
        """[runs] long: who has to be asked to be known at all, or `NOBODY`.

        After n answers that is the one with the fewest of those asked before, if he gave fewer than sqrt(n); or
        somebody new, if fewer than sqrt(n) teachers were asked so far.
        """
        answers = self.skills.memory["answers"]
        if not self.explore:
            return torch.full((len(answers),), NOBODY)
        root = answers.sum(-1).double().sqrt()
        least = torch.where(answers > 0, answers, torch.iinfo(answers.dtype).max).min(-1)
        known = (answers > 0).sum(-1)
        fresh = (luck - 2.0 * (answers > 0)).argmax(-1)
        found = torch.where((known > 0) & (least.values < root), least.indices, NOBODY)
        return torch.where((known < self.setup.teachers) & (known <= root), fresh, found)

    def _candidates(self, luck: Tensor) -> Tensor:
        """[runs, C] long, ascending: all teachers; of many those with the most answers, and newcomers by `luck`."""
        runs, teachers = luck.shape
        if teachers <= CANDIDATES:
            return torch.arange(teachers).expand(runs, -1)
        answers = self.skills.memory["answers"]
        known = (answers + luck).topk(CANDIDATES - _NEW, -1).indices
        fresh = (luck.scatter(1, known, -1.0) - 2.0 * (answers > 0)).topk(_NEW, -1).indices
        return torch.cat([known, fresh], -1).sort(-1).values


@dataclass
class SkilledSession:
    selector: Skilled
    candidates: Tensor
    """[runs, C] long"""
    strangers: Tensor
    """[runs] long: whom to ask first, or `NOBODY`."""
    normal: Tensor
    """[runs, T, episodes, C]"""
    last: Tensor = field(init=False)
    """[runs, episodes] long: who answered last in each episode, or `NOBODY`."""

    def __post_init__(self) -> None:
        runs, _, episodes, _ = self.normal.shape
        self.last = torch.full((runs, episodes), NOBODY)

    def choose(self, seen: Observation, present: Tensor, put: Tensor, t: int) -> Tensor:
        # Whoever is there, where no candidate is.
        chosen = present.long().argmax(-1)
        for run in put.any(1).nonzero().flatten().tolist():
            asked = put[run]
            chosen[run, asked] = self._best(run, seen.features[run, asked], present[run, asked], asked, t)
        return chosen

    def _best(self, run: int, features: Tensor, present: Tensor, asked: Tensor, t: int) -> Tensor:
        """[n]: whom to ask in n states."""
        selector, who = self.selector, self.candidates[run]
        mean, variance = selector.skills.fit(run).skills(features, who)
        skill = mean + selector.explore * variance.sqrt() * self.normal[run, t, asked]
        last = self.last[run, asked].unsqueeze(1)
        switched = (last != NOBODY) & (last != who)
        cost = selector.setup.costs[run, who] + selector.setup.switch_cost[run] * switched
        there = present.gather(1, who.expand(len(features), -1))
        value = torch.where(there, worth(skill, cost, selector.power), -torch.inf)
        found = torch.where(there.any(1), who[value.argmax(1)], present.long().argmax(1))
        first = int(self.strangers[run])
        return found if first == NOBODY else torch.where(present[:, first], first, found)

    def hear(self, answer: Answer, answered: Tensor) -> None:
        self.last = torch.where(answered, answer.identity, self.last)


def best(setup: SelectSetup) -> Skilled:
    """The highest estimated skill for its cost; explores nothing."""
    return Skilled(setup, power=1.0, explore=0.0)


def learned(setup: SelectSetup, power: Power = POWER, explore: Distance = 0.3) -> Skilled:
    """Ours: skill by state, drawn from its posterior, weighed against what an answer costs."""
    return Skilled(setup, power, explore)
