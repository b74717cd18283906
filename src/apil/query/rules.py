"""The paper's rules that learn nothing, and the baselines: a coin, a clock, and a part of the uncertainty as score."""

from __future__ import annotations

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.nn import Parameters
from apil.query.gates import gate_of
from apil.query.protocol import QueryLoss, QuerySetup
from apil.query.scored import Formula, ScoredPolicy
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


class Every:
    """Asks at every k-th step of an episode, the first one included."""

    executes_answer = True

    def __init__(self, horizon: int, k: int) -> None:
        self.parameters: Parameters = {}
        self.memory: Parameters = {}
        self._horizon, self._k = horizon, k

    def begin(self, episodes: int) -> Every:
        """It remembers nothing."""
        return self

    def ask(self, belief: Belief, luck: Tensor) -> Tensor:
        """t mod k = 0, the same for all episodes."""
        return torch.full(luck.shape, (self._horizon - belief.remaining) % self._k == 0)

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


def every(setup: QuerySetup, *, k: int = 10) -> Every:
    """Asks at the steps 0, k, 2k, ... of an episode."""
    if not (isinstance(k, int) and k >= 1):
        raise ApilError(f"k of the query policy 'every' is {k}: give a whole number of steps from 1 up.")
    return Every(setup.horizon, k)


def random(setup: QuerySetup) -> Coin:
    """Asks with the given probability, which is also its budget."""
    return Coin(setup.thresholds if setup.budgets is None else setup.budgets)


def intrun(setup: QuerySetup) -> ScoredPolicy:
    """INTRUN of the paper: the intrinsic uncertainty, in bits."""
    return ScoredPolicy(Formula(lambda belief: belief.uncertainty.intrinsic), gate_of(setup))


def extrun(setup: QuerySetup) -> ScoredPolicy:
    """EXTRUN of the paper: the extrinsic uncertainty, in bits."""
    return ScoredPolicy(Formula(lambda belief: belief.uncertainty.extrinsic), gate_of(setup))


def behvun(setup: QuerySetup) -> ScoredPolicy:
    """BEHVUN of the paper: the behavioural uncertainty, in bits."""
    return ScoredPolicy(Formula(lambda belief: belief.uncertainty.behavioral), gate_of(setup))


def modlun(setup: QuerySetup) -> ScoredPolicy:
    """MODLUN, which is BALD (Houlsby et al. 2011): the mutual information of action and model, in bits.

    u = H[mean_w pi_w(. | s)] - mean_w H[pi_w(. | s)]
    """
    return ScoredPolicy(Formula(lambda belief: belief.uncertainty.model), gate_of(setup))
