"""ERRPRED: asks where it predicts a large error against the teacher."""

from __future__ import annotations

import torch
from torch import Tensor

from apil.nn import Parameters
from apil.query.network import QueryNetwork
from apil.query.protocol import QueryLoss, QuerySetup
from apil.types import Belief, Episodes


class ErrorPrediction:
    """Predicts the margin 1 - pi(a* | s) of the mean policy and asks where the prediction is above a threshold.

    Regressed by squared error at asked steps only: elsewhere the teacher's action is not known.
    """

    executes_answer = True

    def __init__(self, setup: QuerySetup) -> None:
        self._network = QueryNetwork(setup, "errpred")
        self.parameters = self._network.parameters
        self.memory: Parameters = {}
        self._thresholds = setup.thresholds.unsqueeze(-1)

    def ask(self, belief: Belief, luck: Tensor) -> Tensor:
        """Deterministic: `luck` is not used."""
        return self._network.at_step(belief).softmax(-1)[..., 1] > self._thresholds

    def loss(self, episodes: Episodes) -> QueryLoss:
        """Squared error of the predicted margin, summed over asked steps, averaged over episodes."""
        predicted = self._network.over_episodes(episodes).softmax(-1)[..., 1]
        margin = 1.0 - episodes.mean.gather(-1, episodes.action.unsqueeze(-1)).squeeze(-1)
        error = torch.where(episodes.asked, (predicted - margin).square(), 0.0)
        return QueryLoss(error.sum((1, 2)) / episodes.asked.shape[1], episodes.asked.flatten(1).any(1))
