"""Rules that learn where the agent would part from its teacher: SafeDAgger, LazyDAgger, EnsembleDAgger.

All three begin with `warm` batches of full teaching, the demonstrations that their papers begin with, and learn at
answered steps only: elsewhere the teacher's action is not known. How far the agent is from its teacher is the
`discrepancy`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.query.errpred import PredictedError, discrepancy
from apil.query.gates import gate_of
from apil.query.network import NetworkScore
from apil.query.protocol import QueryLoss, QuerySetup, over_steps
from apil.query.rules import disagreement
from apil.query.scored import ScoredPolicy
from apil.types import Answer, Belief, Episodes

WARM = 20
"""Batches of full teaching at the start."""


class PredictedUnsafe(NetworkScore):
    """The safety classifier: the probability that the agent is further than `deviation` from its teacher."""

    def __init__(self, setup: QuerySetup, name: str, deviation: float) -> None:
        if not deviation > 0:
            raise ApilError(f"deviation of the query policy '{name}' is {deviation:g}: give a number above 0.")
        super().__init__(setup, name)
        self._deviation = deviation

    def loss(self, episodes: Episodes) -> QueryLoss:
        """Cross-entropy against 1[discrepancy > deviation], summed over answered steps, averaged over episodes."""
        unsafe = discrepancy(episodes.mean, episodes.action, self._setup.box) > self._deviation
        logits = self._network.over_episodes(episodes)
        likelihood = logits.log_softmax(-1).gather(-1, unsafe.long().unsqueeze(-1)).squeeze(-1)
        return QueryLoss(-over_steps(likelihood, episodes.answered), episodes.answered.flatten(1).any(1))


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

    def agrees(belief: Belief, notes: Tensor, answer: Answer) -> Tensor:
        return discrepancy(belief.mean, answer.action, setup.box) < release

    score = PredictedUnsafe(setup, "lazydagger", deviation)
    return ScoredPolicy(score, gate_of(setup), agrees, warm=warm, runs=len(setup.thresholds))


def ensembledagger(setup: QuerySetup, *, chi: float = 0.05, tau: float = 0.5, warm: int = WARM) -> ScoredPolicy:
    """EnsembleDAgger (Menda et al. 2019): the agent acts only where doubt <= chi and discrepancy <= tau.

    doubt is the variance of the ensemble (`variance`), the discrepancy is predicted by a network, and
    u = max(doubt / chi, discrepancy / tau). It asks where u > 1 unless the run has another threshold or a budget.
    """
    for name, value in (("chi", chi), ("tau", tau)):
        if not value > 0:
            raise ApilError(f"{name} of the query policy 'ensembledagger' is {value:g}: give a number above 0.")

    def doubt_or_discrepancy(belief: Belief, predicted: Tensor) -> Tensor:
        return torch.maximum(disagreement(belief) / chi, predicted / tau)

    score = PredictedError(setup, "ensembledagger", doubt_or_discrepancy)
    return ScoredPolicy(score, gate_of(setup), warm=warm, runs=len(setup.thresholds))
