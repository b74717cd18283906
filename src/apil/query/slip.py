"""SLIP: asks where the agent is about to make its first mistake of an episode, in states unlike those asked about."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from apil.nn import Parameters
from apil.query.gates import Gate, gate_of
from apil.query.network import query_network
from apil.query.protocol import QueryLoss, QuerySetup, over_steps
from apil.types import Answer, Belief, Episodes

REPEAT = 3.0
"""How much an answered state counts against asking in the same state again."""
REACH = 0.1
"""How alike two states are: the width of the kernel, in standard deviations of a feature."""
RETURNED = 0.1
"""What a score is multiplied with in a state where the episode has been before."""
NEAR = 0.5
"""An episode is back in a state if it is closer to it than this share of a short step."""
SHORT = 0.1
"""A short step is one such that this share of all steps is shorter."""
ANSWERS = 512
"""Answered states that are remembered, the newest."""
FEATURES = 256
"""Features that states are compared by; of more, evenly spaced ones."""
_EXACT = "donot_use_mm_for_euclid_dist"
_STEADY = 1e-3
"""Features with a standard deviation below this are left out."""


def slips(back: Tensor, live: Tensor, success: Tensor) -> tuple[Tensor, Tensor]:
    """Where an episode slipped, in hindsight.

    The first circle of an episode is the way from a state back to it that is completed first: one of its steps was a
    mistake, and what comes after it says nothing about the first mistake. An episode without a circle that ends too
    early has slipped at its last step. One that has run out of time has slipped somewhere: each step has an equal
    share.

    Args:
        back: `[episodes, T, T]` bool: the state of step j is that of step i, where j > i.
        live: `[episodes, T]` bool.
        success: `[episodes]` bool.

    Returns:
        `[episodes, T]` float: how likely the step was a slip; and `[episodes, T]` bool: the steps of which that is
        known.
    """
    horizon = live.shape[1]
    step = torch.arange(horizon)
    back = back & live.unsqueeze(1) & live.unsqueeze(2) & (step.unsqueeze(1) < step)
    returns = torch.where(back, step, horizon).amin(-1)  # [episodes, T]: when the state of a step is seen again
    closed = returns.amin(-1, keepdim=True)
    opened = torch.where(returns == closed, step, -1).amax(-1, keepdim=True)
    circle = closed < horizon
    length = live.sum(-1, keepdim=True)
    known = live & (step < torch.where(circle, closed, horizon))
    failed = ~success.unsqueeze(-1) & ~circle
    early = failed & (length < horizon)
    found = (circle & (step >= opened) & (step < closed)) | (early & (step == length - 1))
    late = failed & (length == horizon)
    return torch.where(late, 1.0 / horizon, found.float()), known


class Slip:
    """A query policy whose score is the probability of a first mistake, made smaller where answers are already."""

    executes_answer = True
    reads_features = True

    def __init__(self, setup: QuerySetup) -> None:
        self._setup, self.gate = setup, gate_of(setup)
        self.network = query_network(setup, "slip")
        self.parameters: Parameters = self.network.parameters
        runs, size = len(setup.streams.seeds), setup.features or setup.state_size
        self.columns = torch.linspace(0, size - 1, min(size, FEATURES)).round().long()
        shape = (runs, len(self.columns))
        self._answers = torch.zeros(runs, ANSWERS, shape[1])
        self._given = torch.zeros(runs, dtype=torch.float64)
        self._sums = torch.zeros(runs, 2, shape[1], dtype=torch.float64)
        self._steps = torch.zeros(runs, dtype=torch.float64)
        self._short = torch.zeros(runs)
        own = {"answers": self._answers, "given": self._given, "sums": self._sums}
        self.memory: Parameters = {
            **own,
            "steps": self._steps,
            "short": self._short,
            **{f"gate.{name}": value for name, value in self.gate.memory.items()},
        }

    def begin(self, episodes: int, training: bool = True) -> SlipSession:
        return SlipSession(self, self.network.begin(episodes), self.gate, training)

    def prior(self, logits: Tensor) -> Tensor:
        """Before anything is learned, one step of an episode is a slip and each is as likely as the others."""
        right, wrong = logits.unbind(-1)
        return torch.stack([right, wrong - math.log(max(1, self._setup.horizon - 1))], -1)

    def observe(self, episodes: Episodes) -> None:
        """The gate learns the scores; features are scaled by all that was seen, and answered states are remembered."""
        if self.gate.memory and episodes.notes.shape[-1]:
            self.gate.learn(episodes.notes[..., 0], episodes)
        seen, live = episodes.features[..., self.columns], episodes.live
        rows = torch.where(live.unsqueeze(-1), seen, 0.0).double().flatten(1, 2)
        self._sums += torch.stack([rows.sum(1), rows.square().sum(1)], 1)
        self._steps += live.sum((1, 2))
        for run, answered in enumerate(episodes.answered):
            for state in seen[run][answered]:
                self._answers[run, int(self._given[run]) % ANSWERS] = state
                self._given[run] += 1
        self._measure_steps(seen, live)

    def _measure_steps(self, seen: Tensor, live: Tensor) -> None:
        """Keeps how long a short step is, as a moving average over batches."""
        scaled = seen * self.scale().view(len(seen), 1, 1, -1)
        lengths = (scaled[:, :, 1:] - scaled[:, :, :-1]).square().mean(-1).sqrt()
        moves = (lengths > 0) & live[:, :, 1:]
        short = torch.where(moves, lengths, torch.nan).flatten(1).nanquantile(SHORT, dim=1)
        before = torch.where(self._short > 0, 0.9 * self._short + 0.1 * short, short)
        self._short.copy_(torch.where(short.isnan(), self._short, before))

    def scale(self) -> Tensor:
        """[runs, features]: what features are multiplied with, 0 for those that do not vary."""
        mean, square = (self._sums / self._steps.clamp_min(1.0)[:, None, None]).unbind(1)
        deviation = (square - mean.square()).clamp_min(0.0).sqrt()
        return torch.where(deviation > _STEADY, 1.0 / deviation, 0.0).float()

    def near(self) -> Tensor:
        """[runs]: states closer than this are the same."""
        return (NEAR * self._short).clamp_min(1e-6)

    def alike(self) -> Alike:
        """Counts answered states that are like others."""
        scale = self.scale()
        given = self._given.clamp(max=ANSWERS).int().tolist()
        known = [self._answers[run, :count] * scale[run] for run, count in enumerate(given)]
        return Alike(known, [2 * REACH**2 * max(1, int(own)) for own in (scale > 0).sum(1)])

    def loss(self, episodes: Episodes) -> QueryLoss:
        """Negative log-likelihood of the slips that hindsight finds, where nobody answered; summed over steps, averaged
        over episodes."""
        runs, batch, horizon = episodes.live.shape
        scaled = episodes.features[..., self.columns] * self.scale().view(runs, 1, 1, -1)
        varying = (self.scale() > 0).sum(1).clamp_min(1).sqrt()
        rows = scaled.flatten(0, 1)
        apart = torch.cdist(rows, rows, compute_mode=_EXACT).view(runs, batch, horizon, horizon)
        back = apart <= (self.near() * varying)[:, None, None, None]
        slipped, known = slips(back.flatten(0, 1), episodes.live.flatten(0, 1), episodes.success.flatten())
        slipped, known = slipped.view_as(episodes.live), known.view_as(episodes.live)
        logs = self.prior(self.network.over_episodes(episodes)).log_softmax(-1)
        loss = -(slipped * logs[..., 1] + (1 - slipped) * logs[..., 0])
        known = known & ~episodes.answered
        return QueryLoss(over_steps(loss, known), known.flatten(1).any(1))

    def review(self, episodes: Episodes, luck: Tensor) -> Tensor:
        scores = episodes.notes[..., 0] if episodes.notes.shape[-1] else torch.zeros_like(luck)
        return self.gate.review(scores, episodes, luck)


class Alike:
    """Answered states, and how many of them are like others; run by run, so that a run gives the same bits alone as in
    any stack."""

    def __init__(self, known: list[Tensor], width: list[float]) -> None:
        """`known` [n, features] are the answered states of each run, scaled; `width` is that of the kernel."""
        self._known, self._width = known, width

    def __call__(self, states: Tensor) -> Tensor:
        """[runs, episodes, features] -> [runs, episodes]"""
        return torch.stack([self._kernel(run, own, self._known[run]).sum(-1) for run, own in enumerate(states)])

    def among(self, states: Tensor, asks: Tensor, score: Tensor) -> Tensor:
        """[runs, episodes]: how many states of the same step with a higher score and a question are like each."""
        found = torch.zeros_like(score)
        for run in (asks.sum(1) > 1).nonzero().flatten().tolist():
            put = asks[run].nonzero().flatten()
            put = put[score[run, put].argsort(descending=True, stable=True)]
            found[run, put] = self._kernel(run, states[run, put], states[run, put]).tril(-1).sum(-1)
        return found

    def add(self, states: Tensor, answered: Tensor) -> None:
        """Adds the states where `answered` [runs, episodes]."""
        self._known = [
            torch.cat([known, own[at]]) for known, own, at in zip(self._known, states, answered, strict=True)
        ]

    def _kernel(self, run: int, states: Tensor, known: Tensor) -> Tensor:
        """[n, features], [m, features] -> [n, m], from 0 to 1."""
        return torch.exp(-torch.cdist(states, known).square() / self._width[run])


class SlipSession:
    """SLIP during one batch of episodes."""

    def __init__(self, policy: Slip, logits: Callable[[Belief], Tensor], gate: Gate, training: bool) -> None:
        self._policy, self._logits, self._training = policy, logits, training
        self._gate, self._alike, self._scale = gate.begin(training), policy.alike(), policy.scale().unsqueeze(1)
        varying = (self._scale > 0).sum(-1).clamp_min(1).sqrt()
        self._near = policy.near().unsqueeze(1) * varying
        self._before: list[Tensor] = []
        self._slip = self._clean = self._score = torch.empty(0)

    def ask(self, belief: Belief, luck: Tensor) -> Tensor:
        """m(s) times the chance that no slip came before, less where the episode or an answer was before."""
        seen = belief.state if belief.features is None else belief.features
        state = seen[..., self._policy.columns] * self._scale
        self._slip = self._policy.prior(self._logits(belief)).softmax(-1)[..., 1]
        if not self._before:
            self._clean, self._returned = torch.ones_like(self._slip), torch.zeros_like(self._slip, dtype=torch.bool)
        for earlier in self._before:
            self._returned = self._returned | ((state - earlier).square().sum(-1).sqrt() <= self._near)
        self._before.append(state)
        chance = self._slip * self._clean
        chance = torch.where(self._returned, RETURNED * chance, chance)
        alike = self._alike(state)
        self._score = chance / (1 + REPEAT * alike)
        asks = self._gate(self._score, luck, belief.live, None)
        if self._training and bool((asks.sum(1) > 1).any()):
            # Episodes side by side are often in states alike: each question counts for the others of this step.
            self._score = chance / (1 + REPEAT * (alike + self._alike.among(state, asks, self._score)))
            asks = asks & self._gate(self._score, luck, belief.live, None)
        return asks

    def hear(self, belief: Belief, answer: Answer, answered: Tensor) -> None:
        """A step that was answered is no slip, and counts for the rest of the batch."""
        self._clean = torch.where(answered, self._clean, self._clean * (1 - self._slip))
        if self._training and bool(answered.any()):
            self._alike.add(self._before[-1], answered)

    @property
    def notes(self) -> Tensor:
        return self._score.unsqueeze(-1) if self._training else self._score.unsqueeze(-1)[..., :0]


def slip(setup: QuerySetup) -> Slip:
    """SLIP: u(s_t) = m(s_t) prod_{i<t} (1 - m(s_i)) / (1 + 3 n(s_t)), a tenth of it where the episode has been before.

    m is the probability of a slip as a network predicts it, learned from recent episodes by what hindsight says of
    them (`slips`). The product runs over the steps that nobody answered. n counts answered states like s_t.
    """
    return Slip(setup)
