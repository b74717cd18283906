"""ErrPred: asks where it predicts a large error against the teacher."""

from __future__ import annotations

from torch import Tensor

from apil.query.gates import gate_of
from apil.query.network import NetworkScore
from apil.query.protocol import QueryLoss, QuerySetup, over_steps
from apil.query.scored import ScoredPolicy
from apil.types import ActionBox, Episodes


def errpred(setup: QuerySetup) -> ScoredPolicy:
    """ErrPred of the paper: asks where the predicted error is above the threshold."""
    return ScoredPolicy(PredictedError(setup, "errpred"), gate_of(setup))


class PredictedError(NetworkScore):
    """Predicts the error of the mean policy, `policy_error`.

    Regressed by squared error at answered steps only: elsewhere the teacher's action is not known.
    """

    def loss(self, episodes: Episodes) -> QueryLoss:
        """Squared error of the predicted error, summed over answered steps, averaged over episodes."""
        predicted = self._network.over_episodes(episodes).softmax(-1)[..., 1]
        error = (predicted - policy_error(episodes, self._setup.box)).square()
        return QueryLoss(over_steps(error, episodes.answered), episodes.answered.flatten(1).any(1))


def discrepancy(mean: Tensor, action: Tensor, box: ActionBox | None) -> Tensor:
    """How far the mean policy is from a teacher's action: 1 - pi(a* | s), or the squared distance to the mean action.

    mean [..., A] and action [...] for discrete actions. For continuous ones mean [..., 2n] and action [..., n]; every
    number of an action runs from -1 to 1 over its range here, and the mean action is clipped to the box.
    """
    if box is None:
        return 1.0 - mean.gather(-1, action.unsqueeze(-1)).squeeze(-1)
    expected = mean[..., : action.shape[-1]].clamp(-1.0, 1.0)
    return (expected - box.scaled(action)).square().sum(-1)


def policy_error(episodes: Episodes, box: ActionBox | None) -> Tensor:
    """[runs, episodes, T]: the discrepancy as a share of the largest there can be, at answered steps."""
    found = discrepancy(episodes.mean, episodes.action, box)
    return found if box is None else found / (4 * len(box.low))
