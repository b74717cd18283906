"""ERRPRED: asks where it predicts a large error against the teacher."""

from __future__ import annotations

import torch

from apil.nn import Parameters
from apil.query.margin import margin
from apil.query.network import NetworkQuerySession, query_network
from apil.query.protocol import QueryLoss, QuerySetup
from apil.types import Episodes


class ErrorPrediction:
    """Predicts the margin 1 - pi(a* | s) of the mean policy and asks where the prediction is above a threshold.

    For continuous actions the margin is the squared error of the mean action, scaled by the action range (`margin`).
    Regressed by squared error at asked steps only: elsewhere the teacher's action is not known.
    """

    executes_answer = True

    def __init__(self, setup: QuerySetup) -> None:
        self._network = query_network(setup, "errpred")
        self.parameters = self._network.parameters
        self.memory: Parameters = {}
        self._box = setup.box
        self._thresholds = setup.thresholds.unsqueeze(-1)

    def begin(self, episodes: int) -> NetworkQuerySession:
        """Deterministic: `luck` is not used."""
        return NetworkQuerySession(
            self._network.begin(episodes), lambda logits, luck: logits.softmax(-1)[..., 1] > self._thresholds
        )

    def loss(self, episodes: Episodes) -> QueryLoss:
        """Squared error of the predicted margin, summed over asked steps, averaged over episodes."""
        predicted = self._network.over_episodes(episodes).softmax(-1)[..., 1]
        error = torch.where(episodes.asked, (predicted - margin(episodes, self._box)).square(), 0.0)
        return QueryLoss(error.sum((1, 2)) / episodes.asked.shape[1], episodes.asked.flatten(1).any(1))
