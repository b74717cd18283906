"""Formulas of active learning: scores of the mean policy and of the ensemble of models. p is the mean policy in s."""

from __future__ import annotations

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.query.gates import gate_of
from apil.query.protocol import QuerySetup, require_discrete
from apil.query.scored import Formula, ScoredPolicy
from apil.types import Belief


def least_confidence(setup: QuerySetup) -> ScoredPolicy:
    """u = 1 - max_a p(a): least confidence (Lewis and Gale 1994; Chernova and Veloso 2009 ask by it)."""
    require_discrete(setup, "least-confidence")
    return ScoredPolicy(Formula(lambda belief: 1.0 - belief.mean.amax(-1)), gate_of(setup))


def margin(setup: QuerySetup) -> ScoredPolicy:
    """u = 1 - (p1 - p2): how near the second most probable action is to the first (Scheffer et al. 2001)."""
    require_discrete(setup, "margin")
    return ScoredPolicy(Formula(_closeness), gate_of(setup))


def _closeness(belief: Belief) -> Tensor:
    first, second = torch.topk(belief.mean, 2).values.unbind(-1)
    return 1.0 - (first - second)


def entropy(setup: QuerySetup) -> ScoredPolicy:
    """u = -sum_a p(a) log2 p(a), bits: the total uncertainty (Shannon; as a query rule, Dagan and Engelson 1995)."""
    require_discrete(setup, "entropy")
    return ScoredPolicy(Formula(lambda belief: belief.uncertainty.total), gate_of(setup))


def variance(setup: QuerySetup) -> ScoredPolicy:
    """u = sum_a Var_w[pi_w(a | s)]: how much the models of the ensemble disagree (query by committee, Seung 1992).

    The trace of their covariance; population variance over the N2 dropout models.
    """
    return ScoredPolicy(Formula(disagreement), gate_of(setup))


def disagreement(belief: Belief) -> Tensor:
    """[runs, episodes]: the trace of the covariance of the models' mean policies (or mean actions)."""
    if belief.of_model is None:
        raise ApilError(
            "The model of this task does not tell its ensemble apart (Belief.of_model is None): use modlun, or a "
            "rule that needs no ensemble."
        )
    return belief.of_model.var(2, correction=0).sum(-1)
