"""Rules that learn nothing: baselines, the paper's uncertainty rules, and those of the literature."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.nn import Parameters
from apil.query.gates import Sampled
from apil.query.protocol import QueryLoss, QuerySetup
from apil.query.scored import Formula, ScoredPolicy, ScoreStep, scored
from apil.types import Belief, Episodes


class Coin:
    """Asks with a fixed probability [runs]: always, never, or at random."""

    def __init__(self, probability: Tensor, *, executes_answer: bool = True) -> None:
        self.executes_answer = executes_answer
        self.parameters: Parameters = {}
        self.memory: Parameters = {}
        self._probability = probability.unsqueeze(-1)

    def begin(self, episodes: int, training: bool = True) -> Coin:
        return self

    def ask(self, belief: Belief, luck: Tensor) -> Tensor:
        """`luck` lies strictly between 0 and 1, so 0 never asks and 1 always does."""
        return luck < self._probability

    def observe(self, episodes: Episodes) -> None:
        return

    def loss(self, episodes: Episodes) -> QueryLoss | None:
        return None

    def review(self, episodes: Episodes, luck: Tensor) -> Tensor:
        return episodes.unanswered


def bc(setup: QuerySetup) -> Coin:
    """Behaviour cloning: always asks, executes the answer."""
    return Coin(torch.ones_like(setup.thresholds))


always = bc


def dagger(setup: QuerySetup) -> Coin:
    """DAgger: always asks, executes its own action."""
    return Coin(torch.ones_like(setup.thresholds), executes_answer=False)


def never(setup: QuerySetup) -> Coin:
    return Coin(torch.zeros_like(setup.thresholds))


def every(setup: QuerySetup, *, k: int = 10) -> ScoredPolicy:
    """Asks at the steps 0, k, 2k, ... of an episode."""
    if not (isinstance(k, int) and k >= 1):
        raise ApilError(f"k of the query policy 'every' is {k}: give a whole number of steps from 1 up.")

    def due(belief: Belief) -> Tensor:
        return torch.full(belief.mean.shape[:2], float((setup.horizon - belief.remaining) % k == 0))

    return ScoredPolicy(Formula(due), Sampled())


def random(setup: QuerySetup) -> Coin:
    """Asks with the given probability, which is also its budget."""
    return Coin(setup.thresholds if setup.budgets is None else setup.budgets)


every_k = every
random_review = random
random_slow = random


intrun = scored(lambda belief: belief.uncertainty.intrinsic)
"""IntrUn of the paper: the intrinsic uncertainty, in bits."""
extrun = scored(lambda belief: belief.uncertainty.extrinsic)
"""ExtrUn of the paper: the extrinsic uncertainty, in bits."""
behvun = scored(lambda belief: belief.uncertainty.behavioral)
"""BehvUn of the paper: the behavioural uncertainty, in bits."""
modlun = scored(lambda belief: belief.uncertainty.model)
"""ModlUn, which is BALD (Houlsby et al. 2011): the mutual information of action and model, in bits.

u = H[mean_w pi_w(. | s)] - mean_w H[pi_w(. | s)]
"""


# Formulas of active learning: scores of the mean policy and of the ensemble of models. p is the mean policy in s.


def _of_probabilities(name: str, formula: ScoreStep) -> Callable[[QuerySetup], ScoredPolicy]:
    """A factory that refuses continuous actions: they have no probabilities."""

    def factory(setup: QuerySetup) -> ScoredPolicy:
        if setup.box is not None:
            raise ApilError(
                f"'{name}' reads action probabilities, and this task's actions are continuous: use variance, rnd, "
                "modlun or another rule that the guide to query rules marks for both."
            )
        return scored(formula)(setup)

    return factory


def _closeness(belief: Belief) -> Tensor:
    first, second = torch.topk(belief.mean, 2).values.unbind(-1)
    return 1.0 - (first - second)


def disagreement(belief: Belief) -> Tensor:
    """[runs, episodes]: the trace of the covariance of the models' mean policies (or mean actions)."""
    if belief.of_model is None:
        raise ApilError(
            "The model of this task does not tell its ensemble apart (Belief.of_model is None): use modlun, or a "
            "rule that needs no ensemble."
        )
    return belief.of_model.var(2, correction=0).sum(-1)


least_confidence = _of_probabilities("least-confidence", lambda belief: 1.0 - belief.mean.amax(-1))
"""u = 1 - max_a p(a): least confidence (Lewis and Gale 1994; Chernova and Veloso 2009 ask by it)."""
margin = _of_probabilities("margin", _closeness)
"""u = 1 - (p1 - p2): how near the second most probable action is to the first (Scheffer et al. 2001)."""
entropy = _of_probabilities("entropy", lambda belief: belief.uncertainty.total)
"""u = -sum_a p(a) log2 p(a), bits: the total uncertainty (Shannon; as a query rule, Dagan and Engelson 1995)."""
variance = scored(disagreement)
"""u = sum_a Var_w[pi_w(a | s)]: how much the models of the ensemble disagree (query by committee, Seung 1992).

The trace of their covariance; population variance over the N2 dropout models.
"""
