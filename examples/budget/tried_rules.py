"""Query rules that were tried and did not win (docs/method/where-to-ask.md), as a plug-in.

APIL_PLUGINS=examples/budget/tried_rules.py apil study budget --choosing --levels middle --rules first-mistake \
--out runs/tried

All are made of three parts. *Doubt* is the expected total variation between the policy of one model of the ensemble and
the mean policy: the chance that the agent would act otherwise, had it learned from other dropout masks. *First*
multiplies it with the chance that no mistake was made at the steps before, where nobody answered. *Failing* multiplies
it with the predicted probability that the episode fails. The highest scores are asked about or, with `power`, states
are drawn with a probability that grows with score ** power, as PowerBALD does (Kirsch et al. 2023). `chance` is the
share of questions that are asked at random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import apil
from apil.nn import Parameters
from apil.query.gates import gate_of
from apil.query.network import query_network
from apil.query.protocol import QueryLoss, QuerySetup, over_steps
from apil.types import Answer, Belief, Episodes


@dataclass(frozen=True)
class Parts:
    """What a score is made of."""

    doubt: bool = True
    first: bool = True
    failing: bool = False
    power: float = 0.0
    """0 for the highest scores alone."""
    chance: float = 0.0


TRIED = {
    "doubt-drawn": Parts(first=False, power=1.0),
    "first-mistake": Parts(),
    "first-mistake-drawn": Parts(power=1.0),
    "first-mistake-drawn-2": Parts(power=2.0),
    "first-mistake-failing-drawn": Parts(failing=True, power=1.0),
    "failing-drawn": Parts(doubt=False, first=False, failing=True, power=1.0),
    "first-mistake-and-chance": Parts(chance=0.5),
}


def doubt(belief: Belief) -> Tensor:
    """[runs, episodes]: the expected total variation; for continuous actions twice the models' standard deviation."""
    models = belief.of_model
    assert models is not None
    if belief.mean.shape[-1] != models.shape[-1]:
        return (2 * models.std(2, correction=0).mean(-1)).clamp(max=1.0)
    return 0.5 * (models - models.mean(2, keepdim=True)).abs().sum(-1).mean(-1)


class Tried:
    """A query policy made of `parts`."""

    executes_answer = True

    def __init__(self, setup: QuerySetup, parts: Parts) -> None:
        self.setup, self.parts, self.gate = setup, parts, gate_of(setup)
        self.network = query_network(setup, "own") if parts.failing else None
        self.parameters: Parameters = {} if self.network is None else self.network.parameters
        self.memory: Parameters = {f"gate.{name}": value for name, value in self.gate.memory.items()}

    def begin(self, episodes: int, training: bool = True) -> TriedSession:
        return TriedSession(self, episodes, training)

    def observe(self, episodes: Episodes) -> None:
        if self.gate.memory and episodes.notes.shape[-1]:
            self.gate.learn(episodes.notes[..., 0], episodes)

    def loss(self, episodes: Episodes) -> QueryLoss | None:
        """Negative log-likelihood of how episodes ended, at every step."""
        if self.network is None:
            return None
        logits = self.network.over_episodes(episodes)
        failed = (episodes.final_distance > self.setup.epsilon).long()[:, :, None, None]
        likelihood = logits.log_softmax(-1).gather(-1, failed.expand(*logits.shape[:3], 1)).squeeze(-1)
        return QueryLoss(-over_steps(likelihood, episodes.live), torch.ones(len(logits), dtype=torch.bool))

    def review(self, episodes: Episodes, luck: Tensor) -> Tensor:
        return self.gate.review(episodes.notes[..., 0], episodes, luck)


class TriedSession:
    """One batch of episodes."""

    def __init__(self, rule: Tried, episodes: int, training: bool) -> None:
        self._rule, self._training, self._gate = rule, training, rule.gate.begin(training)
        self._failing = None if rule.network is None else rule.network.begin(episodes)
        self._doubt = self._safe = self._score = torch.empty(0)

    def ask(self, belief: Belief, luck: Tensor) -> Tensor:
        parts = self._rule.parts
        self._doubt = doubt(belief) if parts.doubt else torch.full_like(luck, 0.5)
        score = self._doubt
        if self._safe.shape != score.shape:
            self._safe = torch.ones_like(score)
        if parts.first:
            score = score * self._safe
        if self._failing is not None:
            score = score * self._failing(belief).softmax(-1)[..., 1].clamp_min(0.02)
        if parts.power:
            noise = -torch.log(-torch.log(luck.double().clamp(1e-9, 1 - 1e-9)))
            score = (parts.power * torch.log(score.double().clamp_min(1e-6)) + noise).float()
        self._score = score
        asks = self._gate(score, luck, belief.live, None)
        budgets = self._rule.setup.budgets
        return asks if budgets is None else asks | (luck < parts.chance * budgets.unsqueeze(-1))

    def hear(self, belief: Belief, answer: Answer, answered: Tensor) -> None:
        """A step that was answered is no mistake."""
        self._safe = torch.where(answered, self._safe, self._safe * (1 - self._doubt))

    @property
    def notes(self) -> Tensor:
        return self._score.unsqueeze(-1) if self._training else self._score.unsqueeze(-1)[..., :0]


def factory(parts: Parts) -> Callable[[QuerySetup], Tried]:
    """A rule that takes a threshold or a budget."""

    def make(setup: QuerySetup) -> Tried:
        return Tried(setup, parts)

    make.needs_threshold = make.takes_budget = True  # type: ignore[attr-defined]
    return make


for _name, _parts in TRIED.items():
    apil.register_query_policy(_name, factory(_parts), "tried and not kept")
