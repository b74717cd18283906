"""The query network: state, mean action distribution and an embedding of the remaining time -> two logits."""

from __future__ import annotations

import torch
from torch import Tensor

from apil.nn import Parameters, initial_normal, mlp, mlp_parameters
from apil.query.protocol import QuerySetup
from apil.types import Belief, Episodes

_TIME_SIZE = 16


class QueryNetwork:
    """Two logits, *continue* and *query*. Its inputs carry no gradient: the query loss stays in the query policy."""

    def __init__(self, setup: QuerySetup, name: str) -> None:
        inputs = setup.state_size + setup.actions + _TIME_SIZE
        self.horizon = setup.horizon
        self.parameters: Parameters = mlp_parameters(setup.streams, name, (inputs, setup.hidden, 2))
        self.parameters["time"] = initial_normal(setup.streams, f"{name}.time", (setup.horizon + 1, _TIME_SIZE))

    def at_step(self, belief: Belief) -> Tensor:
        """[runs, episodes, 2] logits in the states of one step."""
        time = self.parameters["time"][:, belief.remaining].unsqueeze(1)
        time = time.expand(-1, belief.features.shape[1], -1)
        return mlp(self.parameters, torch.cat([belief.features, belief.mean, time], dim=-1))

    def over_episodes(self, episodes: Episodes) -> Tensor:
        """[runs, episodes, T, 2] logits at all steps at once."""
        runs, batch, horizon = episodes.asked.shape
        remaining = torch.arange(self.horizon, self.horizon - horizon, -1)
        time = self.parameters["time"][:, remaining].unsqueeze(1).expand(-1, batch, -1, -1)
        inputs = torch.cat([episodes.features, episodes.mean, time], dim=-1)
        return mlp(self.parameters, inputs.view(runs, batch * horizon, -1)).view(runs, batch, horizon, 2)
