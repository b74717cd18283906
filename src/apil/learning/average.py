"""The moving average of the weights: single iterates swing, their average does not."""

from __future__ import annotations

import torch
from torch import Tensor

from apil.learning.collect import Agents
from apil.learning.state import learned


class Average:
    """Averages of all learned weights of a stack, with a decay that grows from 0 to its final value."""

    def __init__(self, agents: Agents, decay: float) -> None:
        self._agents = agents
        self._decay = decay
        parts = (agents.model.policy, agents.model.identity, *(group.part.parameters for group in agents.queries))
        live = [value for part in parts for value in part.values()]
        self._pairs = [(value, value.detach().clone()) for value in live]
        self._twin = {id(value): twin for value, twin in self._pairs}

    @torch.no_grad()
    def add(self, iteration: int) -> None:
        """Adds the weights after `iteration` iterations, counted from 1."""
        # All weigh alike until 1 / k falls below 1 - decay: the random start is forgotten soon.
        share = max(1.0 - self._decay, 1.0 / iteration)
        for value, average in self._pairs:
            average.lerp_(value, share)

    @torch.no_grad()
    def apply(self) -> None:
        """Replaces the weights with their averages when training is over."""
        for value, average in self._pairs:
            value.copy_(average)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchanges weights and averages; doing it twice changes nothing."""
        for value, average in self._pairs:
            live = value.clone()
            value.copy_(average)
            average.copy_(live)

    def of_run(self, run: int) -> dict[str, Tensor]:
        """The averages of one run, as views: 'average.policy.*' and so on."""
        named = learned(self._agents, run, lambda value: self._twin[id(value)])
        return {f"average.{name}": value for name, value in named.items()}
