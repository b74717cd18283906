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


class OpenGate(Protocol):
    """A gate during one batch of episodes."""

    def __call__(self, score: Tensor, luck: Tensor) -> Tensor:
        """[runs, episodes] bool of the scores of one step [runs, episodes]; `luck` is uniform in (0, 1)."""


class Gate(Protocol):
    """Decides where a score is high enough to ask."""

    memory: Parameters
    """What it remembers of the training, each [runs, ...]."""

    def begin(self) -> OpenGate:
        """Opens a batch of episodes."""

    def learn(self, scores: Tensor, episodes: Episodes) -> None:
        """Takes in a batch of training episodes and their `scores` [runs, episodes, T]."""


class Threshold:
    """score > tau, a number for each run: set by hand, or found by `apil calibrate`."""

    def __init__(self, thresholds: Tensor) -> None:
        self.memory: Parameters = {}
        self._thresholds = thresholds.unsqueeze(-1)

    def begin(self) -> Threshold:
        """It remembers nothing."""
        return self

    def __call__(self, score: Tensor, luck: Tensor) -> Tensor:
        """Deterministic: `luck` is not used."""
        return score > self._thresholds

    def learn(self, scores: Tensor, episodes: Episodes) -> None:
        """Nothing to remember."""


class Sampled:
    """Asks with the score as its probability: APIL's query action."""

    def __init__(self) -> None:
        self.memory: Parameters = {}

    def begin(self) -> Sampled:
        """It remembers nothing."""
        return self

    def __call__(self, score: Tensor, luck: Tensor) -> Tensor:
        """`luck` decides."""
        return luck < score

    def learn(self, scores: Tensor, episodes: Episodes) -> None:
        """Nothing to remember."""


class Budget:
    """Asks on a given share of the training steps: those whose score is among the highest of recent ones.

    With r the share that is due, the threshold is the (1 - r) quantile of the last `RECENT` scores; of equal scores at
    the threshold a random share is asked, so that a score with few values keeps its budget too. Scores change as the
    agent learns, so r is corrected by what is missing: r = b + (b * steps - fired) / RECENT, held between 0 and 1,
    where `fired` and `steps` are of the whole run. As long as nothing is known it asks at random. When the
    trained agent is measured the threshold stays where training left it.
    """

    def __init__(self, budgets: Tensor, *, make_up: bool = True) -> None:
        """Without `make_up` the share is that of the quantile alone, r = b."""
        runs = len(budgets)
        self._budgets = budgets.double()
        self._make_up = make_up
        self._recent = torch.zeros(runs, RECENT)
        self._known = torch.zeros(runs, RECENT, dtype=torch.bool)
        self._counts = torch.zeros(runs, 2, dtype=torch.float64)
        self.memory: Parameters = {"recent": self._recent, "known": self._known, "counts": self._counts}

    def due(self) -> Tensor:
        """[runs] float64: r, the share of the next steps to ask on."""
        if not self._make_up:
            return self._budgets
        fired, steps = self._counts.unbind(-1)
        return (self._budgets + (self._budgets * steps - fired) / RECENT).clamp(0.0, 1.0)

    def begin(self) -> OpenGate:
        """The quantile is taken once for a batch."""
        due = self.due()
        known = self._known.sum(1)
        ordered = torch.where(self._known, self._recent, -torch.inf).sort(1, descending=True).values
        wanted = due * known
        place = wanted.floor().long()
        threshold = ordered.gather(1, place.clamp(max=RECENT - 1).unsqueeze(1))
        threshold = torch.where((place >= known).unsqueeze(1), -torch.inf, threshold)
        above = (ordered > threshold).sum(1)
        equal = (ordered == threshold).sum(1).clamp_min(1)
        share = ((wanted - above) / equal).unsqueeze(1)
        unknown = (known == 0).unsqueeze(1)
        chance = due.unsqueeze(1)

        def decide(score: Tensor, luck: Tensor) -> Tensor:
            asks = (score > threshold) | ((score == threshold) & (luck < share))
            return torch.where(unknown, luck < chance, asks)

        return decide

    def learn(self, scores: Tensor, episodes: Episodes) -> None:
        """Remembers the scores of live steps; of many, evenly spaced ones."""
        stride = -(-scores[0].numel() // RECENT)
        new, live = scores.flatten(1)[:, ::stride], episodes.live.flatten(1)[:, ::stride]
        kept = new.shape[1]
        for memory, value in ((self._recent, new), (self._known, live)):
            memory.copy_(torch.cat([memory[:, kept:], value], 1))
        fired = episodes.answered | episodes.unanswered
        self._counts += torch.stack([fired.sum((1, 2)), episodes.live.sum((1, 2))], -1)


def gate_of(setup: QuerySetup) -> Threshold | Budget:
    """The gate that the settings of a run ask for."""
    return Threshold(setup.thresholds) if setup.budgets is None else Budget(setup.budgets)
