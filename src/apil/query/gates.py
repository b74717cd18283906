"""Gates: from a score to a decision. The gate is apart from the score, so that any two scores can be compared at the
same query budget.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from apil.nn import Parameters
from apil.query.protocol import QuerySetup
from apil.types import Episodes

RECENT = 300
"""Scores that a budget remembers; also the steps over which it makes up for what was asked too much or too little."""
CATCH_UP = 50
"""The same where an agent is measured; the number of episodes side by side, if that is larger."""
PRIOR = 20
"""What the scores remembered from training weigh together where an agent is measured; a score seen there weighs 1."""


class OpenGate(Protocol):
    """A gate during one batch of episodes."""

    def __call__(self, score: Tensor, luck: Tensor, live: Tensor | None = None, held: Tensor | None = None) -> Tensor:
        """[runs, episodes] bool: where the scores of one step are high enough; `luck` is uniform in (0, 1).

        `live` are unfinished episodes (all if None), `held` those in which a teacher has control and is asked anyway.
        """


class Gate(Protocol):
    """Decides where a score is high enough to ask."""

    memory: Parameters
    """What it remembers of the training, each [runs, ...]."""

    def begin(self, training: bool = True) -> OpenGate:
        """Opens a batch of episodes."""

    def learn(self, scores: Tensor, episodes: Episodes) -> None:
        """Processes a batch of training episodes and their `scores` [runs, episodes, T]; nothing without memory."""
        return

    def review(self, scores: Tensor, episodes: Episodes, luck: Tensor) -> Tensor:
        """[runs, episodes, T] bool: the live steps to ask about, as `QueryPolicy.review`; where it fired by default."""
        return episodes.unanswered


class Threshold(Gate):
    """score > tau, a number for each run: set by hand, or found by `apil calibrate`."""

    def __init__(self, thresholds: Tensor) -> None:
        self.memory: Parameters = {}
        self._thresholds = thresholds.unsqueeze(-1)

    def begin(self, training: bool = True) -> OpenGate:
        return lambda score, luck, live=None, held=None: score > self._thresholds


class Sampled(Gate):
    """Asks with the score as its probability: APIL's query action."""

    def __init__(self) -> None:
        self.memory: Parameters = {}

    def begin(self, training: bool = True) -> OpenGate:
        return lambda score, luck, live=None, held=None: luck < score


class Budget(Gate):
    """Asks on a given share of the steps: those whose score is among the highest of recent ones.

    With r the share that is due, the threshold is the (1 - r) quantile of the last `RECENT` scores; of equal scores at
    the threshold a random share is asked, so that a score with few values keeps its budget too. Scores change as the
    agent learns, so r is corrected by what is missing: r = b + (b * steps - fired) / RECENT, held between 0 and 1,
    where `fired` and `steps` are of the whole run. As long as nothing is known it asks at random.

    Where an agent is measured the budget holds too, though its scores may have another level than in training:
    `MeasuredBudget`, which leaves what was remembered in training as it is.
    """

    def __init__(self, budgets: Tensor) -> None:
        runs = len(budgets)
        self._budgets = budgets.double()
        self._recent = torch.zeros(runs, RECENT)
        self._known = torch.zeros(runs, RECENT, dtype=torch.bool)
        self._counts = torch.zeros(runs, 2, dtype=torch.float64)
        self.memory: Parameters = {"recent": self._recent, "known": self._known, "counts": self._counts}

    def _due(self) -> Tensor:
        """[runs]: the share of the next steps to ask on."""
        fired, steps = self._counts.unbind(-1)
        return (self._budgets + (self._budgets * steps - fired) / RECENT).clamp(0.0, 1.0)

    def begin(self, training: bool = True) -> OpenGate:
        """In training the quantile is taken once for a batch."""
        if not training:
            return MeasuredBudget(self._budgets, self._recent, self._known)
        due = self._due()
        known = self._known.sum(1)
        ordered = torch.where(self._known, self._recent, -torch.inf).sort(1, descending=True).values
        wanted = due * known
        place = wanted.floor().long()
        threshold = ordered.gather(1, place.clamp(max=RECENT - 1).unsqueeze(1))
        threshold = torch.where((place >= known).unsqueeze(1), -torch.inf, threshold)
        above, equal = (ordered > threshold).sum(1), (ordered == threshold).sum(1).clamp_min(1)
        share = ((wanted - above) / equal).unsqueeze(1)
        unknown, chance = (known == 0).unsqueeze(1), due.unsqueeze(1)

        def decide(score: Tensor, luck: Tensor, live: Tensor | None = None, held: Tensor | None = None) -> Tensor:
            asks = (score > threshold) | ((score == threshold) & (luck < share))
            return torch.where(unknown, luck < chance, asks)

        return decide

    def learn(self, scores: Tensor, episodes: Episodes) -> None:
        """Remembers the scores, and which steps were live."""
        remember(self._recent, scores.flatten(1))
        remember(self._known, episodes.live.flatten(1))
        fired = episodes.answered | episodes.unanswered
        self._counts += torch.stack([fired.sum((1, 2)), episodes.live.sum((1, 2))], -1)

    def review(self, scores: Tensor, episodes: Episodes, luck: Tensor) -> Tensor:
        """The live steps of the batch with the highest scores, as many as are due; luck breaks ties and rounds."""
        live, chance = episodes.live.flatten(1), luck.flatten(1).double()
        steps = live.sum(1)
        # The sum of uniform numbers modulo 1 is uniform, and independent of each of them.
        wanted = (self._due() * steps + chance.sum(1).frac()).floor().clamp(max=steps)
        by_luck = chance.argsort(1)
        ranked = torch.where(live, scores.flatten(1), -torch.inf).gather(1, by_luck)
        order = by_luck.gather(1, ranked.argsort(dim=1, descending=True, stable=True))
        rank = order.argsort(1)
        return ((rank < wanted.unsqueeze(1)) & live).view_as(luck)


class Drawn(Budget):
    """Asks on a given share of the steps, each drawn with a probability in proportion to its score.

    The probability is min(1, c u), with the c for which the last `RECENT` scores would have had the share that is due.
    Where all scores are alike this is asking at random; where few are high, they are what is asked about.
    """

    def begin(self, training: bool = True) -> OpenGate:
        """In training c is computed once for a batch."""
        if not training:
            return super().begin(training)
        due, known = self._due().unsqueeze(1), self._known.sum(1, keepdim=True)
        weights = torch.where(self._known, _weights(self._recent), 0.0).sort(1, descending=True).values
        # If the first k are certain, the others share what is left in proportion.
        rest = weights.flip(1).cumsum(1).flip(1).clamp_min(1e-300)
        factors = (due * known - torch.arange(RECENT)) / rest
        first = (factors * weights <= 1.0).int().argmax(1, keepdim=True)
        factor = factors.gather(1, first).clamp_min(0.0)

        factor = torch.where(known == 0, torch.nan, factor)
        return DrawnBatch(factor, due, self._budgets, *self._counts.unbind(-1))

    def review(self, scores: Tensor, episodes: Episodes, luck: Tensor) -> Tensor:
        """Draws as many as are due without replacement, in the same proportions (Efraimidis and Spirakis 2006)."""
        return super().review(_weights(scores) / -luck.double().log(), episodes, luck)


class DrawnBatch:
    """One batch of episodes of `Drawn`, in training."""

    def __init__(self, factor: Tensor, due: Tensor, budgets: Tensor, fired: Tensor, steps: Tensor) -> None:
        """`factor` [runs, 1] is c, NaN where no scores are known; `due` [runs, 1] is the share of the next steps to ask
        on, and `fired` and `steps` [runs] are those before this batch."""
        self._factor, self._due, self._budgets, self._fired, self._steps = factor, due, budgets, fired, steps

    def __call__(self, score: Tensor, luck: Tensor, live: Tensor | None = None, held: Tensor | None = None) -> Tensor:
        return luck < torch.where(self._factor.isnan(), self._due, self._factor * _weights(score))

    def keep_pace(self, asks: Tensor, score: Tensor, live: Tensor | None) -> Tensor:
        """Of the questions of a step [runs, episodes] those with the highest scores, such that a run is at most one
        question ahead of its share of all steps so far. To be called once a step.

        Scores that rise suddenly would otherwise spend in one batch what is meant for hundreds.
        """
        live = torch.ones_like(asks) if live is None else live
        asks = asks & live
        self._steps = self._steps + live.sum(1)
        most = (self._budgets * self._steps + 1 - self._fired).floor().unsqueeze(1)
        rank = torch.where(asks, score, -torch.inf).argsort(dim=1, descending=True, stable=True).argsort(1)
        kept = asks & (rank < most)
        self._fired = self._fired + kept.sum(1)
        return kept


def _weights(scores: Tensor) -> Tensor:
    return scores.double().clamp_min(0.0)


class MeasuredBudget:
    """A budget where an agent is measured, or acts after training: it adapts within one batch of episodes.

    A score is compared with the last `RECENT` of this batch, those of the present step included, and with those that
    were remembered from training, which together weigh as much as `PRIOR` scores. The share that is due is
    r = b + (b * steps - fired) / max(CATCH_UP, episodes) with the counts of this batch. Finished episodes are left out.

    The gate stops asking when it is b * max(CATCH_UP, episodes) questions ahead of b * steps. So whatever the scores
    do, a batch is over its budget by that and the questions of one step at most. It falls behind only while scores
    fall. A teacher that keeps control is asked all the same, and this is made up for later.
    """

    def __init__(self, budgets: Tensor, recent: Tensor, known: Tensor) -> None:
        """`recent` [runs, n] are scores of training, `known` [runs, n] bool those that count."""
        self._budgets = budgets
        self._fired, self._steps = torch.zeros_like(budgets), torch.zeros_like(budgets)
        self._before = recent, known * (PRIOR / known.sum(1, keepdim=True).clamp_min(PRIOR)).double()
        self._scores, self._weights = recent[:, :0], self._before[1][:, :0]

    def __call__(self, score: Tensor, luck: Tensor, live: Tensor | None = None, held: Tensor | None = None) -> Tensor:
        """Decides, and counts what is asked."""
        live = torch.ones_like(luck, dtype=torch.bool) if live is None else live
        self._scores = torch.cat([self._scores, score], 1)
        self._weights = torch.cat([self._weights, live.double()], 1)
        missing = (self._budgets * self._steps - self._fired) / max(CATCH_UP, score.shape[1])
        asks = self._highest(score, luck, (self._budgets + missing).clamp(0.0, 1.0))
        asked = (asks if held is None else asks | held) & live
        self._fired, self._steps = self._fired + asked.sum(1), self._steps + live.sum(1)
        size = max(RECENT, score.shape[1])
        self._scores, self._weights = self._scores[:, -size:], self._weights[:, -size:]
        return asks

    def _highest(self, score: Tensor, luck: Tensor, share: Tensor) -> Tensor:
        """[runs, episodes] bool: the score is among the highest `share` [runs] of all, by weight; luck breaks ties."""
        scores = torch.cat([self._before[0], self._scores], 1)
        weights = torch.cat([self._before[1], self._weights], 1)
        ordered, order = torch.where(weights > 0, scores, -torch.inf).sort(1, descending=True)
        summed = weights.gather(1, order).cumsum(1)
        wanted = (share * summed[:, -1]).unsqueeze(1)
        place = (summed <= wanted).sum(1, keepdim=True).clamp(max=summed.shape[1] - 1)
        threshold = ordered.gather(1, place)
        above = torch.where(scores > threshold, weights, 0.0).sum(1, keepdim=True)
        equal = torch.where(scores == threshold, weights, 0.0).sum(1, keepdim=True)
        chance = (wanted - above) / equal.clamp_min(1e-9)
        return (score > threshold) | ((score == threshold) & (luck < chance)) | (share == 1.0).unsqueeze(1)


def remember(recent: Tensor, new: Tensor) -> None:
    """Moves `new` [..., n] in at the end of `recent` [..., size]; of many, evenly spaced ones."""
    new = new[..., :: -(-new.shape[-1] // recent.shape[-1])]
    recent.copy_(torch.cat([recent[..., new.shape[-1] :], new], -1))


def gate_of(setup: QuerySetup) -> Threshold | Budget:
    """The gate that the settings of a run ask for."""
    return Threshold(setup.thresholds) if setup.budgets is None else Budget(setup.budgets)
