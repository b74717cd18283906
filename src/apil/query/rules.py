"""Fixed rules: a coin, and a threshold on an uncertainty."""

from __future__ import annotations

import torch
from torch import Tensor

from apil.nn import Parameters
from apil.query.protocol import QueryLoss, QuerySetup
from apil.types import Belief, Episodes


class Coin:
    """Asks with a fixed probability [runs]: always, never, or at random."""

    def __init__(self, probability: Tensor, *, executes_answer: bool = True) -> None:
        self.executes_answer = executes_answer
        self.parameters: Parameters = {}
        self.memory: Parameters = {}
        self._probability = probability.unsqueeze(-1)

    def begin(self, episodes: int) -> Coin:
        """It remembers nothing."""
        return self

    def ask(self, belief: Belief, luck: Tensor) -> Tensor:
        """`luck` lies strictly between 0 and 1, so 0 never asks and 1 always does."""
        return luck < self._probability

    def loss(self, episodes: Episodes) -> QueryLoss | None:
        """Nothing to learn."""
        return None


class UncertaintyThreshold:
    """u(s) > tau: asks where one part of the uncertainty is above the run's threshold, in bits."""

    executes_answer = True

    def __init__(self, part: str, thresholds: Tensor) -> None:
        self.parameters: Parameters = {}
        self.memory: Parameters = {}
        self._part = part
        self._thresholds = thresholds.unsqueeze(-1)

    def begin(self, episodes: int) -> UncertaintyThreshold:
        """It remembers nothing."""
        return self

    def ask(self, belief: Belief, luck: Tensor) -> Tensor:
        """Deterministic: `luck` is not used."""
        uncertainty: Tensor = getattr(belief.uncertainty, self._part)
        return uncertainty > self._thresholds

    def loss(self, episodes: Episodes) -> QueryLoss | None:
        """Nothing to learn."""
        return None


def bc(setup: QuerySetup) -> Coin:
    """Behaviour cloning: asks always, executes the answer."""
    return Coin(torch.ones_like(setup.thresholds))


def dagger(setup: QuerySetup) -> Coin:
    """DAGGER: asks always, executes its own action."""
    return Coin(torch.ones_like(setup.thresholds), executes_answer=False)


def never(setup: QuerySetup) -> Coin:
    """Never asks."""
    return Coin(torch.zeros_like(setup.thresholds))


def random(setup: QuerySetup) -> Coin:
    """Asks with the given probability."""
    return Coin(setup.thresholds)


def intrun(setup: QuerySetup) -> UncertaintyThreshold:
    """INTRUN of the paper."""
    return UncertaintyThreshold("intrinsic", setup.thresholds)


def extrun(setup: QuerySetup) -> UncertaintyThreshold:
    """EXTRUN of the paper."""
    return UncertaintyThreshold("extrinsic", setup.thresholds)


def behvun(setup: QuerySetup) -> UncertaintyThreshold:
    """BEHVUN of the paper."""
    return UncertaintyThreshold("behavioral", setup.thresholds)


def modlun(setup: QuerySetup) -> UncertaintyThreshold:
    """MODLUN: model uncertainty."""
    return UncertaintyThreshold("model", setup.thresholds)
