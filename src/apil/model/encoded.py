"""A model behind a scale and a learned state encoder."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from apil.device import here
from apil.errors import ApilError
from apil.model.persona import PersonaModel
from apil.model.protocol import ActingModel
from apil.nn import Parameters, initial_uniform, linear
from apil.rng import Draws, Streams, stream_key
from apil.settings import ModelSettings
from apil.types import Belief, Lessons, Observation


class StateEncoder:
    """Encoders of a stack of runs: one module, and the parameters of every run.

    `module` is used in its evaluation mode: dropout and batch statistics of its own do nothing.
    """

    def __init__(self, streams: Streams, make: Callable[[], nn.Module], features: int) -> None:
        with torch.device("cpu"):  # the first weights are the same on all devices
            modules = [_made(seed, make) for seed in streams.seeds]
            self.module = modules[0]
            with torch.no_grad():
                self.state_size = int(self.module(torch.zeros(1, features)).shape[-1])
        named = [dict(module.named_parameters()) for module in modules]
        self.parameters: Parameters = {
            name: here(torch.stack([own[name].detach() for own in named]).contiguous()) for name in named[0]
        }
        self._buffers = {name: here(value) for name, value in self.module.named_buffers()}

    def __call__(self, features: Tensor) -> Tensor:
        """[runs, n, F] -> [runs, n, S], run by run: a run gives the same bits alone as in any stack."""
        return torch.stack([self.of_run(run, rows) for run, rows in enumerate(features)])

    def of_run(self, run: int, rows: Tensor) -> Tensor:
        """[n, F] -> [n, S] of one run."""
        own: dict[str, Tensor] = {name: value[run] for name, value in self.parameters.items()}
        state: Tensor = functional_call(self.module, {**own, **self._buffers}, (rows,))
        return state

    def where(self, features: Tensor, needed: Tensor) -> Tensor:
        """The same where they are `needed` [runs, n], zero elsewhere: the other steps have no loss."""
        return torch.stack([self._some(run, features[run], needed[run]) for run in range(len(features))])

    def _some(self, run: int, rows: Tensor, needed: Tensor) -> Tensor:
        # One row at least, so that every parameter is part of the loss.
        places = needed.nonzero().flatten() if bool(needed.any()) else torch.zeros(1, dtype=torch.long)
        states = self.of_run(run, rows[places])
        return states.new_zeros(len(rows), states.shape[-1]).index_copy(0, places, states)


def _made(seed: int, make: Callable[[], nn.Module]) -> nn.Module:
    """A module, its initial weights drawn in its own way from the run's seed; torch's generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(stream_key(seed, "weights/encoder") % 2**63)
        module: Any = make()
    if not isinstance(module, nn.Module):
        raise ApilError(f"The encoder is a {type(module).__name__}: expected a torch.nn.Module.")
    return module.eval()


class VectorEncoder:
    """One layer with a rectifier for all runs of a stack at once: features [runs, n, F] -> states [runs, n, S]."""

    def __init__(self, streams: Streams, features: int, state_size: int) -> None:
        bound = 1.0 / math.sqrt(features)
        self.state_size = state_size
        self.parameters: Parameters = {
            "w": initial_uniform(streams, "encoder.w", (features, state_size), bound),
            "b": initial_uniform(streams, "encoder.b", (state_size,), bound),
        }

    def __call__(self, features: Tensor) -> Tensor:
        return torch.relu(linear(features, self.parameters["w"], self.parameters["b"]))

    def where(self, features: Tensor, needed: Tensor) -> Tensor:
        """All of them: a product over all rows is cheaper than picking some."""
        return self(features)


_STEADY = 1e-6
"""Added to every variance: a feature that never changed is not blown up without bound."""
CLIP = 5.0
"""Standard deviations; what lies farther out is clipped."""


class Scale:
    """Standardises features by the mean and variance of all that was observed in training, run by run.

    Its sums are on the host: some devices have no float64.
    """

    def __init__(self, runs: int, features: int) -> None:
        self._count = torch.zeros(runs, 1, dtype=torch.float64, device="cpu")
        self._mean = torch.zeros(runs, features, dtype=torch.float64, device="cpu")
        self._squares = torch.zeros(runs, features, dtype=torch.float64, device="cpu")
        self.memory: Parameters = {
            "scale.count": self._count,
            "scale.mean": self._mean,
            "scale.squares": self._squares,
        }

    def __call__(self, features: Tensor) -> Tensor:
        """[runs, n, F] -> the same with mean 0 and variance 1, clipped; as it is where nothing was observed yet."""
        shift, factor = self.shift_and_factor()
        if not features.is_cpu:
            shift, factor = shift.to(features.device), factor.to(features.device)
        return ((features - shift.unsqueeze(1)) * factor.unsqueeze(1)).clamp(-CLIP, CLIP)

    def shift_and_factor(self) -> tuple[Tensor, Tensor]:
        """What is subtracted and then multiplied with, both [runs, F] float32."""
        variance = torch.where(self._count > 0, self._squares / self._count.clamp_min(1.0), 1.0 - _STEADY)
        return self._mean.float(), (variance + _STEADY).rsqrt().float()

    def observe(self, features: Tensor, live: Tensor) -> None:
        """Adds features [runs, n, F] where `live` [runs, n] (Chan et al. 1983: merging the sums of two parts)."""
        rows, weight = features.double(), live.unsqueeze(-1).double()
        count = weight.sum(1)
        mean = (rows * weight).sum(1) / count.clamp_min(1.0)
        squares = ((rows - mean.unsqueeze(1)).square() * weight).sum(1)
        total = self._count + count
        apart, share = mean - self._mean, count / total.clamp_min(1.0)
        self._squares += squares + apart.square() * self._count * share
        self._mean += apart * share
        self._count.copy_(total)


class EncodedModel:
    """Puts a scale, an encoder or both in front of a model of state vectors.

    The encoder is learned with the policy loss. The identity and query networks read its states, without gradient.
    """

    recurrent = False

    def __init__(
        self, encoder: StateEncoder | VectorEncoder | None, model: PersonaModel, scale: Scale | None = None
    ) -> None:
        self.encoder, self.model, self.scale = encoder, model, scale
        self.policy: Parameters = {
            **model.policy,
            **{f"encoder.{name}": value for name, value in (encoder.parameters if encoder else {}).items()},
        }
        self.identity, self.memory = model.identity, {} if scale is None else scale.memory
        self.teachers, self.state_size = model.teachers, model.state_size

    def observe(self, lessons: Lessons) -> None:
        """The scale takes in what was seen."""
        if self.scale is not None:
            self.scale.observe(lessons.features.flatten(1, 2), lessons.live.flatten(1))

    def begin(self, draws: Draws, sample_draws: Draws, episodes: int, horizon: int) -> ActingModel:
        return EncodedActing(self, self.model.begin(draws, sample_draws, episodes, horizon))

    def encoded(self, observation: Observation) -> Observation:
        """The states of features [runs, n, F]."""
        scaled = self._scaled(observation.features)
        return Observation(scaled if self.encoder is None else self.encoder(scaled), observation.valid)

    def _scaled(self, features: Tensor) -> Tensor:
        return features if self.scale is None else self.scale(features)

    def policies(self, observation: Observation) -> Tensor:
        return self.model.policies(self.encoded(observation))

    def losses(self, lessons: Lessons, draws: Draws, part: slice | None = None) -> tuple[Tensor, Tensor]:
        """The losses of the model on states that are encoded again, with gradient, where a teacher answered."""
        if part is None:
            return self.model.losses(replace(lessons, features=self._states(lessons)), draws)
        own = self._states(lessons.of_episodes(part))
        states = own.new_zeros(*lessons.answered.shape, own.shape[-1]).index_copy(1, _places(part, own), own)
        return self.model.losses(replace(lessons, features=states), draws, part)

    def _states(self, lessons: Lessons) -> Tensor:
        """[runs, episodes, T, S], zero where nobody answered."""
        runs, batch, horizon = lessons.answered.shape
        rows = self._scaled(lessons.features.reshape(runs, batch * horizon, -1))
        states = rows if self.encoder is None else self.encoder.where(rows, lessons.answered.reshape(runs, -1))
        return states.view(runs, batch, horizon, -1)


def _places(part: slice, like: Tensor) -> Tensor:
    return torch.arange(part.start, part.stop, device=like.device)


@dataclass(frozen=True)
class EncodedActing:
    """The models drawn for one batch of episodes, behind the encoder."""

    whole: EncodedModel
    model: ActingModel

    def belief(self, observation: Observation, t: int, horizon: int) -> Belief:
        return self.model.belief(self.whole.encoded(observation), t, horizon)


def encoded(
    streams: Streams,
    features: int,
    sizes: ModelSettings,
    own: Callable[[], nn.Module] | None,
    make: Callable[[int], PersonaModel],
) -> PersonaModel | EncodedModel:
    """The model that `make` makes of a state size, behind what `sizes` and the task's `own` encoder ask for."""
    encoder: StateEncoder | VectorEncoder | None = None
    if own is not None:
        encoder = StateEncoder(streams, own, features)
    elif sizes.encode:
        encoder = VectorEncoder(streams, features, sizes.encode)
    scale = Scale(len(streams.seeds), features) if sizes.standardise else None
    model = make(features if encoder is None else encoder.state_size)
    return model if encoder is None and scale is None else EncodedModel(encoder, model, scale)
