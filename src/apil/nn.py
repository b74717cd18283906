"""Building blocks of stacked networks: every parameter leads with the `runs` axis, one slice a run.

A run gives the same bits alone as in any stack. That rests on four habits kept here and in the model: batched
products never have output width 1 (another kernel computes those), probabilities come from a softmax over at least
two logits, optimisers are written out elementwise, and initial weights depend on (seed, parameter name) alone.
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
