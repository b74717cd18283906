"""ERRPRED: asks where it predicts a large error against the teacher."""

from __future__ import annotations

import torch

from apil.nn import Parameters
from apil.query.gates import gate_of
from apil.query.network import query_network
from apil.query.policy_error import policy_error
from apil.query.protocol import QueryLoss, QuerySetup
from apil.query.scored import ScoredPolicy, ScoreStep
from apil.types import Episodes


def errpred(setup: QuerySetup) -> ScoredPolicy:
    """ERRPRED of the paper: asks where the predicted error is above the threshold."""
    return ScoredPolicy(PredictedMargin(setup), gate_of(setup))


class PredictedMargin:
    """Predicts the error 1 - pi(a* | s) of the mean policy.

    For continuous actions it is the squared error of the mean action, scaled by the action range (`policy_error`).
    Regressed by squared error at answered steps only: elsewhere the teacher's action is not known.
    """

    def __init__(self, setup: QuerySetup, name: str = "errpred") -> None:
        """`name` is that of the network, which its first weights depend on."""
        self._network = query_network(setup, name)
        self.parameters = self._network.parameters
        self.memory: Parameters = {}
        self._box = setup.box

    def begin(self, episodes: int) -> ScoreStep:
        """The predicted error."""
        session = self._network.begin(episodes)
        return lambda belief: session.logits(belief).softmax(-1)[..., 1]

    def loss(self, episodes: Episodes) -> QueryLoss:
        """Squared error of the predicted error, summed over answered steps, averaged over episodes."""
        predicted = self._network.over_episodes(episodes).softmax(-1)[..., 1]
        error = torch.where(episodes.answered, (predicted - policy_error(episodes, self._box)).square(), 0.0)
        return QueryLoss(error.sum((1, 2)) / episodes.answered.shape[1], episodes.answered.flatten(1).any(1))
