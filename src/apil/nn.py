"""Building blocks of stacked networks: every parameter leads with the `runs` axis, one slice a run.

A run gives the same bits alone as in any stack. That rests on four habits kept here and in the model: batched
products never have output width 1 (another kernel computes those), probabilities come from a softmax over at least
two logits, Adam is written out elementwise, and initial weights depend on (seed, parameter name) alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from apil.rng import Streams

Parameters = dict[str, Tensor]
"""Named leaf tensors, each [runs, ...]."""


def initial_uniform(streams: Streams, name: str, shape: Sequence[int], bound: float) -> Tensor:
    """[runs, *shape], uniform in (-bound, bound)."""
    return (streams.draws(f"weights/{name}", 0).uniform(*shape) * 2.0 - 1.0) * bound


def initial_normal(streams: Streams, name: str, shape: Sequence[int]) -> Tensor:
    """[runs, *shape], standard normal (the default of an embedding table)."""
    pair = streams.draws(f"weights/{name}", 0).uniform(*shape, 2)
    return torch.sqrt(-2.0 * torch.log(pair[..., 0])) * torch.cos(2.0 * math.pi * pair[..., 1])


def mlp_parameters(streams: Streams, name: str, sizes: tuple[int, int, int]) -> Parameters:
    """One hidden layer, weights and biases uniform in ±1/sqrt(fan in), torch's default for a linear layer."""
    inputs, hidden, outputs = sizes
    shapes = {"w1": (inputs, hidden), "b1": (hidden,), "w2": (hidden, outputs), "b2": (outputs,)}
    fan_in = {"w1": inputs, "b1": inputs, "w2": hidden, "b2": hidden}
    return {
        key: initial_uniform(streams, f"{name}.{key}", shape, 1.0 / math.sqrt(fan_in[key]))
        for key, shape in shapes.items()
    }


def linear(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[runs, n, in] x [runs, in, out] + [runs, out] -> [runs, n, out]."""
    return torch.baddbmm(bias.unsqueeze(1), inputs, weight)


def mlp(parameters: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
    """One hidden layer with a rectifier: [runs, n, in] -> [runs, n, out]."""
    hidden = torch.relu(linear(inputs, parameters["w1"], parameters["b1"]))
    return linear(hidden, parameters["w2"], parameters["b2"])


_TINY = torch.finfo(torch.float32).tiny


class StackedAdam:
    """Adam for a stack of runs, each with its own step count.

    A run that has nothing to learn in an iteration (no answers) keeps its weights, moments and step count as they
    are: no label, no update.
    """

    def __init__(self, parameters: Parameters, learning_rate: float, warmup: int = 0) -> None:
        """The rate rises over the first `warmup` updates of a run and stays then."""
        self.parameters = parameters
        self.learning_rate = learning_rate
        self.warmup = warmup
        self.first = {name: torch.zeros_like(value) for name, value in parameters.items()}
        self.second = {name: torch.zeros_like(value) for name, value in parameters.items()}
        runs = next(iter(parameters.values())).shape[0]
        self.steps = torch.zeros(runs, dtype=torch.float64)
        for value in parameters.values():
            value.requires_grad_(True)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], active: Tensor) -> None:
        """One update; `gradients` in the order of the parameters and zero where `active` [runs] is false."""
        self.steps += active
        power = self.steps.clamp_min(1.0)
        rate = active * self.learning_rate / (1.0 - 0.9**power)
        if self.warmup:
            rate = rate * (power / self.warmup).clamp_max(1.0)
        rate = rate.float()
        correction = (1.0 - 0.999**power).rsqrt().float()
        keep_first = torch.where(active, 0.9, 1.0)
        keep_second = torch.where(active, 0.999, 1.0)
        for (name, value), gradient in zip(self.parameters.items(), gradients, strict=True):
            shape = (-1, *[1] * (value.dim() - 1))
            first, second = self.first[name], self.second[name]
            first.mul_(keep_first.view(shape)).add_(gradient, alpha=0.1)
            second.mul_(keep_second.view(shape)).addcmul_(gradient, gradient, value=0.001)
            # Square roots of exact zeros are many times slower than those of the smallest normal number.
            scale = second.clamp_min(_TINY).sqrt_().mul_(correction.view(shape)).add_(1e-8)
            value.sub_(torch.div(first, scale, out=scale).mul_(rate.view(shape)))
