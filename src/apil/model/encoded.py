"""A model behind a learned state encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from apil.errors import ApilError
from apil.model.protocol import ActingModel, Model
from apil.nn import Parameters
from apil.rng import Draws, Streams, stream_key
from apil.types import Belief, Episodes, Observation


class StateEncoder:
    """Encoders of a stack of runs: one module, and the parameters of every run.

    `module` is used in its evaluation mode: dropout and batch statistics of its own do nothing.
    """

    def __init__(self, streams: Streams, make: Callable[[], nn.Module], features: int) -> None:
        modules = [_made(seed, make) for seed in streams.seeds]
        self.module = modules[0]
        named = [dict(module.named_parameters()) for module in modules]
        self.parameters: Parameters = {
            name: torch.stack([own[name].detach() for own in named]).contiguous() for name in named[0]
        }
        self._buffers = dict(self.module.named_buffers())
        with torch.no_grad():
            self.state_size = int(self.module(torch.zeros(1, features)).shape[-1])

    def __call__(self, features: Tensor) -> Tensor:
        """[runs, n, F] -> [runs, n, S], run by run: a run gives the same bits alone as in any stack."""
        return torch.stack([self.of_run(run, rows) for run, rows in enumerate(features)])

    def of_run(self, run: int, rows: Tensor) -> Tensor:
        """[n, F] -> [n, S] of one run."""
        own: dict[str, Tensor] = {name: value[run] for name, value in self.parameters.items()}
        state: Tensor = functional_call(self.module, {**own, **self._buffers}, (rows,))
        return state


def _made(seed: int, make: Callable[[], nn.Module]) -> nn.Module:
    """A module, its initial weights drawn in its own way from the run's seed; torch's generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(stream_key(seed, "weights/encoder") % 2**63)
        module: Any = make()
    if not isinstance(module, nn.Module):
        raise ApilError(f"The encoder is a {type(module).__name__}: expected a torch.nn.Module.")
    return module.eval()


class EncodedModel:
    """Puts an encoder in front of a model of state vectors.

    The encoder is learned with the policy loss. The identity and query networks read its states, without gradient.
    """

    def __init__(self, encoder: StateEncoder, model: Model) -> None:
        self.encoder, self._model = encoder, model
        self.policy: Parameters = {
            **model.policy,
            **{f"encoder.{name}": value for name, value in encoder.parameters.items()},
        }
        self.identity = model.identity
        self.teachers, self.recurrent, self.state_size = model.teachers, model.recurrent, model.state_size

    def begin(self, draws: Draws, sample_draws: Draws, episodes: int, horizon: int) -> ActingModel:
        return EncodedActing(self.encoder, self._model.begin(draws, sample_draws, episodes, horizon))

    def policies(self, observation: Observation) -> Tensor:
        return self._model.policies(Observation(self.encoder(observation.features), observation.valid))

    def losses(self, episodes: Episodes, draws: Draws) -> tuple[Tensor, Tensor]:
        """The losses of the model on states that are encoded again, with gradient, where a teacher answered."""
        runs, batch, horizon = episodes.answered.shape
        rows = episodes.features.reshape(runs, batch * horizon, -1)
        answered = episodes.answered.reshape(runs, -1)
        # The other steps have no loss and need no states.
        states = torch.stack([self._again(run, rows[run], answered[run]) for run in range(runs)])
        return self._model.losses(replace(episodes, features=states.view(runs, batch, horizon, -1)), draws)

    def _again(self, run: int, rows: Tensor, answered: Tensor) -> Tensor:
        # One row at least, so that every parameter is part of the loss.
        places = answered.nonzero().flatten() if bool(answered.any()) else torch.zeros(1, dtype=torch.long)
        states = self.encoder.of_run(run, rows[places])
        return states.new_zeros(len(rows), states.shape[-1]).index_copy(0, places, states)


@dataclass(frozen=True)
class EncodedActing:
    """The models drawn for one batch of episodes, behind the encoder."""

    encoder: StateEncoder
    model: ActingModel

    def belief(self, observation: Observation, t: int, horizon: int) -> Belief:
        return self.model.belief(Observation(self.encoder(observation.features), observation.valid), t, horizon)
