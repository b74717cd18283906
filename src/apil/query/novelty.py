"""Rules that ask in states unlike those that were taught: random network distillation, ThriftyDAgger."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.nn import Parameters, mlp, mlp_parameters
from apil.query.errpred import discrepancy
from apil.query.gates import Budget, Threshold, gate_of, remember
from apil.query.network import query_network
from apil.query.protocol import QueryLoss, QuerySetup, over_steps
from apil.query.rules import disagreement
from apil.query.safety import WARM
from apil.query.scored import Score, ScoredPolicy, ScoreStep
from apil.types import Answer, Belief, Episodes

_OUTPUTS = 32
"""Of the two networks of random network distillation."""
_RECENT = 1000
"""States that ThriftyDAgger takes its quantiles over."""


class Distillation(Score):
    """The error of a network that learns to copy a fixed random network on the states that were taught."""

    def __init__(self, setup: QuerySetup) -> None:
        sizes = (setup.state_size, setup.hidden, _OUTPUTS)
        # Never learned, and made of (seed, name) alone: there is nothing to save.
        self._target = mlp_parameters(setup.streams, "rnd.target", sizes)
        self.parameters: Parameters = mlp_parameters(setup.streams, "rnd", sizes)
        self.memory: Parameters = {}

    def begin(self, episodes: int) -> ScoreStep:
        """|f(s) - f_0(s)|^2, averaged over the outputs."""
        return lambda belief: self._error(belief.state)

    def _error(self, state: Tensor) -> Tensor:
        """[runs, n, S] -> [runs, n]"""
        return (mlp(self.parameters, state) - mlp(self._target, state)).square().mean(-1)

    def loss(self, episodes: Episodes) -> QueryLoss:
        """The same error, summed over answered steps, averaged over episodes."""
        runs, batch, horizon = episodes.answered.shape
        error = self._error(episodes.state.reshape(runs, batch * horizon, -1)).view(runs, batch, horizon)
        return QueryLoss(over_steps(error, episodes.answered), episodes.answered.flatten(1).any(1))


def rnd(setup: QuerySetup) -> ScoredPolicy:
    """Random network distillation (Burda et al. 2019): u = mean_i (f_i(s) - f0_i(s))^2, high where s is novel.

    f0 is a fixed random network, f learns to copy it in the states where a teacher answered.
    """
    return ScoredPolicy(Distillation(setup), gate_of(setup))


_NOVELTY, _RISK, _USUAL_RISK = 1, 2, 3
"""Places in the notes of ThriftyDAgger, behind the score."""


class RankStep:
    """The score of ThriftyDAgger during one batch of episodes."""

    def __init__(self, logits: Callable[[Belief], Tensor], ordered: Tensor, known: Tensor) -> None:
        """`ordered` [runs, 2, n]: novelty and risk of recent states, each sorted; the first `known` [runs] count."""
        self._logits, self._ordered = logits, ordered
        self._count = known[:, None, None].clamp_min(1)
        self._usual_risk = ordered[:, 1].gather(1, (self._count[:, 0] - 1) // 2)
        self.notes = torch.empty(0)
        """[runs, episodes, 3]: novelty, risk, and the median risk of recent states."""

    def __call__(self, belief: Belief) -> Tensor:
        """[runs, episodes], 0 to 1: the higher of the two ranks."""
        risk = 1.0 - self._logits(belief).softmax(-1)[..., 1]
        novelty = disagreement(belief)
        self.notes = torch.stack([novelty, risk, self._usual_risk.expand_as(risk)], -1)
        return (torch.searchsorted(self._ordered, torch.stack([novelty, risk], 1)) / self._count).amax(1)


class NoveltyOrRisk(Score):
    """The higher of two ranks among recent states: that of the novelty and that of the risk."""

    def __init__(self, setup: QuerySetup, gamma: float) -> None:
        if not 0 < gamma <= 1:
            raise ApilError(f"gamma of the query policy 'thriftydagger' is {gamma:g}: give a discount from 0 to 1.")
        self._network = query_network(setup, "thriftydagger")
        self._gamma, self._box = gamma, setup.box
        self.parameters = self._network.parameters
        runs = len(setup.thresholds)
        self._recent = torch.zeros(runs, 2, _RECENT)
        self._known = torch.zeros(runs, _RECENT, dtype=torch.bool)
        self._apart = torch.zeros(runs, 2, dtype=torch.float64)
        self.memory: Parameters = {"recent": self._recent, "known": self._known, "apart": self._apart}

    def begin(self, episodes: int) -> RankStep:
        """Takes the order of recent states once for the batch."""
        ordered = torch.where(self._known.unsqueeze(1), self._recent, torch.inf).sort(-1).values
        return RankStep(self._network.begin(episodes), ordered, self._known.sum(1))

    def hands_back(self, belief: Belief, notes: Tensor, answer: Answer) -> Tensor:
        """Where the agent agrees with the teacher as much as on average of the last hundred batches or so and the risk
        is below its median."""
        total, count = self._apart.unbind(-1)
        usual = (total / count.clamp_min(1.0)).float().unsqueeze(-1)
        agrees = discrepancy(belief.mean, answer.action, self._box) < usual
        return agrees & (notes[..., _RISK] < notes[..., _USUAL_RISK])

    def loss(self, episodes: Episodes) -> QueryLoss:
        """Squared error of Q against its Bellman target: 1 at a good end, 0 at a bad one, gamma Q(s') before it.

        Over live steps, answered or not; summed over steps, averaged over episodes.
        """
        quality = self._network.over_episodes(episodes).softmax(-1)[..., 1]
        goes_on = torch.cat([episodes.live[..., 1:], torch.zeros_like(episodes.live[..., :1])], -1)
        following = torch.cat([quality.detach()[..., 1:], torch.zeros_like(quality[..., :1])], -1)
        end = episodes.success.unsqueeze(-1).float()
        error = (quality - torch.where(goes_on, self._gamma * following, end)).square()
        return QueryLoss(over_steps(error, episodes.live), torch.ones(len(error), dtype=torch.bool))

    def observe(self, episodes: Episodes) -> None:
        """Keeps novelty and risk of the states where the agent had control, that of each switch included."""
        answered = episodes.answered
        apart = torch.where(answered, discrepancy(episodes.mean, episodes.action, self._box), 0.0).double()
        self._apart.mul_(0.99).add_(torch.stack([apart.sum((1, 2)), answered.sum((1, 2)).double()], -1))
        if not episodes.notes.shape[-1]:
            return
        taught_on = torch.cat([torch.zeros_like(answered[..., :1]), answered[..., 1:] & answered[..., :-1]], -1)
        remember(self._known, (episodes.live & ~taught_on).flatten(1))
        seen = episodes.notes[..., _NOVELTY : _RISK + 1]
        remember(self._recent, seen.movedim(-1, 1).flatten(2))


def thriftydagger(setup: QuerySetup, *, gamma: float = 0.9999, warm: int = WARM) -> ScoredPolicy:
    """ThriftyDAgger (Hoque et al. 2021): control goes to the teacher in novel or risky states, a share alpha of each.

    novelty is the variance of the ensemble (`variance`), risk 1 - Q(s), Q the discounted probability of reaching the
    goal. Asks where one of them is above its (1 - alpha) quantile over recent states where the agent had control, that
    is where u = max(rank of novelty, rank of risk) > 1 - alpha; the run's threshold is alpha, the target switch rate,
    0.1 unless it has another. The teacher keeps control until the discrepancy is below its average and the risk below
    its median. With a budget it is the share of all steps that the teacher has control of, and u is gated by that.
    """
    score = NoveltyOrRisk(setup, gamma)
    gate = Threshold(1.0 - setup.thresholds) if setup.budgets is None else Budget(setup.budgets)
    return ScoredPolicy(score, gate, score.hands_back, warm=warm, runs=len(setup.thresholds))
