"""Query networks: state, mean action distribution and an embedding of the remaining time -> two logits."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from apil.nn import Parameters, initial_normal, initial_uniform, linear, mlp, mlp_parameters
from apil.query.protocol import QueryLoss, QuerySetup
from apil.query.scored import Score, ScoreStep
from apil.types import Belief, Episodes

_TIME_SIZE = 16


def query_network(setup: QuerySetup, name: str) -> FeedForwardNetwork | RecurrentNetwork:
    """Two logits, *continue* and *query*. Its inputs carry no gradient: the query loss stays in the query policy."""
    return RecurrentNetwork(setup, name) if setup.recurrent else FeedForwardNetwork(setup, name)


class FeedForwardNetwork:
    """One hidden layer on the state of the moment (GRID in the paper's appendix)."""

    def __init__(self, setup: QuerySetup, name: str) -> None:
        inputs = setup.state_size + setup.actions + _TIME_SIZE
        self.horizon, self._crew = setup.horizon, setup.crew
        self.parameters: Parameters = mlp_parameters(setup.streams, name, (inputs, setup.hidden, 2))
        self.parameters["time"] = initial_normal(setup.streams, f"{name}.time", (setup.horizon + 1, _TIME_SIZE))

    def begin(self, episodes: int) -> Callable[[Belief], Tensor]:
        """Opens a batch of `episodes` episodes of every run: [runs, episodes, 2] logits in the states of one step."""
        return lambda belief: mlp(self.parameters, _step_input(self.parameters["time"], belief))

    def over_episodes(self, episodes: Episodes) -> Tensor:
        """[runs, episodes, T, 2] logits at all steps at once."""
        batch = episodes.answered.shape[1]
        inputs = _episode_input(self.parameters["time"], episodes, self.horizon, self._crew.part(batch))
        logits = mlp(self.parameters, inputs.flatten(1, 2)).view(*inputs.shape[:3], 2)
        return self._crew.join(logits, batch)


class RecurrentNetwork:
    """An LSTM over the steps of an episode, and a linear layer (the paper's appendix, for tasks with memory)."""

    def __init__(self, setup: QuerySetup, name: str) -> None:
        inputs, hidden = setup.state_size + setup.actions + _TIME_SIZE, setup.hidden
        self.horizon, self.hidden, self._crew = setup.horizon, hidden, setup.crew
        shapes = {"wx": (inputs, 4 * hidden), "wh": (hidden, 4 * hidden), "b": (4 * hidden,), "wo": (hidden, 2)}
        bound = 1.0 / math.sqrt(hidden)
        self.parameters: Parameters = {
            key: initial_uniform(setup.streams, f"{name}.{key}", shape, bound)
            for key, shape in {**shapes, "bo": (2,)}.items()
        }
        self.parameters["time"] = initial_normal(setup.streams, f"{name}.time", (setup.horizon + 1, _TIME_SIZE))

    def begin(self, episodes: int) -> Callable[[Belief], Tensor]:
        """Starts with an empty memory; each step is remembered."""
        own = self.parameters
        memory = carried = own["b"].new_zeros(own["b"].shape[0], episodes, self.hidden)

        def logits(belief: Belief) -> Tensor:
            nonlocal memory, carried
            driven = linear(_step_input(own["time"], belief), own["wx"], own["b"])
            memory, carried = self._turn(driven, memory, carried)
            return linear(memory, own["wo"], own["bo"])

        return logits

    def over_episodes(self, episodes: Episodes) -> Tensor:
        """The products with the inputs are taken for all steps at once."""
        batch = episodes.answered.shape[1]
        inputs = _episode_input(self.parameters["time"], episodes, self.horizon, self._crew.part(batch))
        runs, own, steps, _ = inputs.shape
        driven = linear(inputs.flatten(1, 2), self.parameters["wx"], self.parameters["b"]).view(runs, own, steps, -1)
        memory = carried = driven.new_zeros(runs, own, self.hidden)
        outputs = []
        for t in range(steps):
            memory, carried = self._turn(driven[:, :, t], memory, carried)
            outputs.append(memory)
        logits = linear(torch.stack(outputs, dim=2).flatten(1, 2), self.parameters["wo"], self.parameters["bo"])
        return self._crew.join(logits.view(runs, own, steps, 2), batch)

    def _turn(self, driven: Tensor, memory: Tensor, carried: Tensor) -> tuple[Tensor, Tensor]:
        """One step of the LSTM: what the input drives [runs, episodes, 4 hidden], and the memory before it."""
        gates = torch.baddbmm(driven, memory, self.parameters["wh"])
        keep, write, show = gates[..., : 3 * self.hidden].sigmoid().chunk(3, -1)
        carried = keep * carried + write * gates[..., 3 * self.hidden :].tanh()
        return show * carried.tanh(), carried


def _step_input(time: Tensor, belief: Belief) -> Tensor:
    """[runs, episodes, S + A + time]; `time` [runs, T + 1, size] embeds the number of steps left."""
    now = time[:, belief.remaining].unsqueeze(1).expand(-1, belief.state.shape[1], -1)
    return torch.cat([belief.state, belief.mean, now], dim=-1)


def _episode_input(time: Tensor, episodes: Episodes, horizon: int, part: slice | None) -> Tensor:
    """[runs, episodes, T, S + A + time] of all episodes or a part of them."""
    state, mean = (own if part is None else own[:, part] for own in (episodes.state, episodes.mean))
    remaining = torch.arange(horizon, horizon - state.shape[2], -1)
    now = time[:, remaining].unsqueeze(1).expand(-1, state.shape[1], -1, -1)
    return torch.cat([state, mean, now], dim=-1)


class NetworkScore(Score, ABC):
    """The probability of *query* by a network of its own, or what `of` makes of the belief and it."""

    def __init__(self, setup: QuerySetup, name: str, of: Callable[[Belief, Tensor], Tensor] | None = None) -> None:
        """The first weights depend on `name`."""
        self._setup, self._network = setup, query_network(setup, name)
        self._of = of or (lambda belief, probability: probability)
        self.parameters = self._network.parameters
        self.memory: Parameters = {}

    def begin(self, episodes: int) -> ScoreStep:
        logits = self._network.begin(episodes)
        return lambda belief: self._of(belief, logits(belief).softmax(-1)[..., 1])

    @abstractmethod
    def loss(self, episodes: Episodes) -> QueryLoss:
        """What the network learns by."""
