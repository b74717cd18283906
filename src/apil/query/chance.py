"""One state of each episode, drawn at random: what Stagger learns from (arXiv 2412.07057), and a control."""

from __future__ import annotations

import torch
from torch import Tensor

from apil.nn import Parameters
from apil.query.protocol import QueryLoss, QuerySetup
from apil.types import Belief, Episodes


class OneAnEpisode:
    """Asks about one live step of each finished episode; each of them is equally likely.

    Where an agent is measured, or acts after training, nobody knows how long an episode will be. It then asks at one of
    the T steps of the longest, and not at all in an episode that is over before.
    """

    executes_answer = True

    def __init__(self) -> None:
        self.parameters: Parameters = {}
        self.memory: Parameters = {}

    def begin(self, episodes: int, training: bool = True) -> OneStep:
        return OneStep()

    def observe(self, episodes: Episodes) -> None:
        return

    def loss(self, episodes: Episodes) -> QueryLoss | None:
        return None

    def review(self, episodes: Episodes, luck: Tensor) -> Tensor:
        """The live step with the lowest luck."""
        chosen = torch.where(episodes.live, luck, torch.inf).argmin(-1, keepdim=True)
        return torch.zeros_like(episodes.live).scatter_(-1, chosen, True) & episodes.live


class OneStep:
    """One batch of episodes: each asks at one step, all T equally likely."""

    def __init__(self) -> None:
        self._asked: Tensor | None = None

    def ask(self, belief: Belief, luck: Tensor) -> Tensor:
        """With R steps remaining, an episode that has not asked does so with probability 1 / R."""
        due = luck * belief.remaining < 1
        asks = due if self._asked is None else due & ~self._asked
        self._asked = asks if self._asked is None else self._asked | asks
        return asks


def one_an_episode(setup: QuerySetup) -> OneAnEpisode:
    return OneAnEpisode()
