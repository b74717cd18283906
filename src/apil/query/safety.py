"""Rules that learn where the agent would part from its teacher: SafeDAgger, LazyDAgger, EnsembleDAgger.

All three begin with `warm` batches of full teaching, the demonstrations that their papers begin with, and learn at
answered steps only: elsewhere the teacher's action is not known. How far the agent is from its teacher is the
`discrepancy`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.nn import Parameters
from apil.query.doubt import disagreement
from apil.query.errpred import PredictedMargin
from apil.query.gates import gate_of
from apil.query.network import query_network
from apil.query.protocol import QueryLoss, QuerySetup
from apil.query.scored import HandBack, ScoredPolicy, ScoreStep
from apil.types import ActionBox, Episodes

WARM = 20
"""Batches of full teaching at the start."""


def discrepancy(mean: Tensor, action: Tensor, box: ActionBox | None) -> Tensor:
    """How far the mean policy is from a teacher's action: 1 - pi(a* | s), or the squared distance to the mean action.

    mean [..., A] and action [...] for discrete actions. For continuous ones mean [..., 2n] and action [..., n]; every
    number of an action runs from -1 to 1 over its range here, and the mean action is clipped to the box.
    """
    if box is None:
        return 1.0 - mean.gather(-1, action.unsqueeze(-1)).squeeze(-1)
    expected = mean[..., : action.shape[-1]].clamp(-1.0, 1.0)
    return (expected - box.scaled(action)).square().sum(-1)


class PredictedUnsafe:
    """The safety classifier: the probability that the agent is further than `deviation` from its teacher."""

    def __init__(self, setup: QuerySetup, name: str, deviation: float) -> None:
        if not deviation > 0:
            raise ApilError(f"deviation of the query policy '{name}' is {deviation:g}: give a number above 0.")
        self._network = query_network(setup, name)
        self._deviation, self._box = deviation, setup.box
        self.parameters = self._network.parameters
        self.memory: Parameters = {}

    def begin(self, episodes: int) -> ScoreStep:
        """c(s), the predicted probability of being unsafe."""
        session = self._network.begin(episodes)
        return lambda belief: session.logits(belief).softmax(-1)[..., 1]

    def loss(self, episodes: Episodes) -> QueryLoss:
        """Cross-entropy against 1[discrepancy > deviation], summed over answered steps, averaged over episodes."""
        unsafe = discrepancy(episodes.mean, episodes.action, self._box) > self._deviation
        logits = self._network.over_episodes(episodes)
        likelihood = logits.log_softmax(-1).gather(-1, unsafe.long().unsqueeze(-1)).squeeze(-1)
        loss = -torch.where(episodes.answered, likelihood, 0.0).sum((1, 2)) / episodes.answered.shape[1]
        return QueryLoss(loss, episodes.answered.flatten(1).any(1))


def safedagger(setup: QuerySetup, *, deviation: float = 0.5, warm: int = WARM) -> ScoredPolicy:
    """SafeDAgger (Zhang and Cho 2017): asks where a classifier expects |pi(s) - pi*(s)| > deviation.

    u = c(s), the probability of "unsafe"; asks where c(s) > 1/2 unless the run has another threshold or a budget.
    """
    score = PredictedUnsafe(setup, "safedagger", deviation)
    return ScoredPolicy(score, gate_of(setup), warm=warm, runs=len(setup.thresholds))


def lazydagger(setup: QuerySetup, *, deviation: float = 0.5, release: float = 0.05, warm: int = WARM) -> ScoredPolicy:
    """LazyDAgger (Hoque et al. 2021): SafeDAgger whose teacher keeps control until the agent agrees with it again.

    Control goes to the teacher where c(s) > 1/2 (deviation is its beta_H) and back where the discrepancy to the answer
    is below `release`, its beta_R < beta_H: a hysteresis, so that control changes hands less often.
    """
    if not 0 < release <= deviation:
        raise ApilError(
            f"release of 'lazydagger' is {release:g}: give a number above 0, up to deviation ({deviation:g})."
        )
    score = PredictedUnsafe(setup, "lazydagger", deviation)
    return ScoredPolicy(score, gate_of(setup), agreement(release, setup.box), warm=warm, runs=len(setup.thresholds))


def agreement(release: float, box: ActionBox | None) -> HandBack:
    """Control goes back where the answer is within `release` of the mean policy."""
    return lambda belief, score, answer: discrepancy(belief.mean, answer.action, box) < release


class DoubtOrDiscrepancy:
    """max(doubt / chi, discrepancy / tau), the discrepancy as a network predicts it."""

    def __init__(self, setup: QuerySetup, chi: float, tau: float) -> None:
        for name, value in (("chi", chi), ("tau", tau)):
            if not value > 0:
                raise ApilError(f"{name} of the query policy 'ensembledagger' is {value:g}: give a number above 0.")
        self._predicted = PredictedMargin(setup, "ensembledagger")
        self._chi, self._tau = chi, tau
        self.parameters, self.memory = self._predicted.parameters, self._predicted.memory

    def begin(self, episodes: int) -> ScoreStep:
        """Above 1 where one of the two is above its limit."""
        predicted = self._predicted.begin(episodes)
        return lambda belief: torch.maximum(disagreement(belief) / self._chi, predicted(belief) / self._tau)

    def loss(self, episodes: Episodes) -> QueryLoss:
        """That of the predicted discrepancy."""
        return self._predicted.loss(episodes)


def ensembledagger(setup: QuerySetup, *, chi: float = 0.05, tau: float = 0.5, warm: int = WARM) -> ScoredPolicy:
    """EnsembleDAgger (Menda et al. 2019): the agent acts only where doubt <= chi and discrepancy <= tau.

    doubt is the variance of the ensemble (`variance`), u = max(doubt / chi, discrepancy / tau), and it asks where u > 1
    unless the run has another threshold or a budget.
    """
    score = DoubtOrDiscrepancy(setup, chi, tau)
    return ScoredPolicy(score, gate_of(setup), warm=warm, runs=len(setup.thresholds))
