"""Gates: from a score to a decision. The gate is apart from the score, so that any two scores can be compared at the
same query budget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from apil.nn import Parameters
from apil.query.protocol import QuerySetup
from apil.types import Episodes

RECENT = 300
"""Scores that a budget remembers; also the steps over which it makes up for what was asked too much or too little."""


OpenGate = Callable[[Tensor, Tensor], Tensor]
"""A gate during one batch of episodes: [runs, episodes] bool of the scores of one step, and luck, uniform in (0, 1)."""


class Gate(Protocol):
    """Decides where a score is high enough to ask."""

    memory: Parameters
    """What it remembers of the training, each [runs, ...]."""

    def begin(self) -> OpenGate:
        """Opens a batch of episodes."""

    def learn(self, scores: Tensor, episodes: Episodes) -> None:
        """Takes in a batch of training episodes and their `scores` [runs, episodes, T]; nothing without memory."""
        return


class Threshold(Gate):
    """score > tau, a number for each run: set by hand, or found by `apil calibrate`."""

    def __init__(self, thresholds: Tensor) -> None:
        self.memory: Parameters = {}
        self._thresholds = thresholds.unsqueeze(-1)

    def begin(self) -> OpenGate:
        return lambda score, luck: score > self._thresholds


class Sampled(Gate):
    """Asks with the score as its probability: APIL's query action."""

    def __init__(self) -> None:
        self.memory: Parameters = {}

    def begin(self) -> OpenGate:
        return lambda score, luck: luck < score


class Budget:
    """Asks on a given share of the training steps: those whose score is among the highest of recent ones.

    With r the share that is due, the threshold is the (1 - r) quantile of the last `RECENT` scores; of equal scores at
    the threshold a random share is asked, so that a score with few values keeps its budget too. Scores change as the
    agent learns, so r is corrected by what is missing: r = b + (b * steps - fired) / RECENT, held between 0 and 1,
    where `fired` and `steps` are of the whole run. As long as nothing is known it asks at random. When the
    trained agent is measured the threshold stays where training left it.
    """

    def __init__(self, budgets: Tensor) -> None:
        runs = len(budgets)
        self._budgets = budgets.double()
        self._recent = torch.zeros(runs, RECENT)
        self._known = torch.zeros(runs, RECENT, dtype=torch.bool)
        self._counts = torch.zeros(runs, 2, dtype=torch.float64)
        self.memory: Parameters = {"recent": self._recent, "known": self._known, "counts": self._counts}

    def begin(self) -> OpenGate:
        """The quantile is taken once for a batch."""
        fired, steps = self._counts.unbind(-1)
        due = (self._budgets + (self._budgets * steps - fired) / RECENT).clamp(0.0, 1.0)
        known = self._known.sum(1)
        ordered = torch.where(self._known, self._recent, -torch.inf).sort(1, descending=True).values
        wanted = due * known
        place = wanted.floor().long()
        threshold = ordered.gather(1, place.clamp(max=RECENT - 1).unsqueeze(1))
        threshold = torch.where((place >= known).unsqueeze(1), -torch.inf, threshold)
        above, equal = (ordered > threshold).sum(1), (ordered == threshold).sum(1).clamp_min(1)
        share = ((wanted - above) / equal).unsqueeze(1)
        unknown, chance = (known == 0).unsqueeze(1), due.unsqueeze(1)

        def decide(score: Tensor, luck: Tensor) -> Tensor:
            asks = (score > threshold) | ((score == threshold) & (luck < share))
            return torch.where(unknown, luck < chance, asks)

        return decide

    def learn(self, scores: Tensor, episodes: Episodes) -> None:
        """Remembers the scores, and which steps were live."""
        remember(self._recent, scores.flatten(1))
        remember(self._known, episodes.live.flatten(1))
        fired = episodes.answered | episodes.unanswered
        self._counts += torch.stack([fired.sum((1, 2)), episodes.live.sum((1, 2))], -1)


def remember(recent: Tensor, new: Tensor) -> None:
    """Moves `new` [..., n] in at the end of `recent` [..., size]; of many, evenly spaced ones."""
    new = new[..., :: -(-new.shape[-1] // recent.shape[-1])]
    recent.copy_(torch.cat([recent[..., new.shape[-1] :], new], -1))


def gate_of(setup: QuerySetup) -> Threshold | Budget:
    """The gate that the settings of a run ask for."""
    return Threshold(setup.thresholds) if setup.budgets is None else Budget(setup.budgets)
