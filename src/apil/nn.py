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
_SIDE = 64
"""Muon is for the matrices of layers and of words; smaller ones, other tables of vectors and biases go by Adam."""


class StackedAdam:
    """Adam for a stack of runs, each with its own step count.

    A run that has nothing to learn in an iteration (no answers) keeps its weights, moments and step count as they
    are: no label, no update.

    With `muon`, the matrices of layers go by Muon instead (Jordan et al. 2024): the momentum of the gradient, made
    nearly orthogonal, so that all directions of a matrix learn alike; scaled to the size of Adam's steps (Liu et al.
    2025), so that one learning rate serves both.
    """

    def __init__(self, parameters: Parameters, learning_rate: float, warmup: int = 0, *, muon: bool = False) -> None:
        """The rate rises over the first `warmup` updates of a run and stays then."""
        self.parameters = parameters
        self.learning_rate = learning_rate
        self.warmup = warmup
        self._matrices: dict[tuple[int, int], list[str]] = {}
        for name, value in parameters.items():
            if muon and _is_matrix(name, value):
                wide = (min(value.shape[1:]), max(value.shape[1:]))
                self._matrices.setdefault(wide, []).append(name)
        turned = {name for names in self._matrices.values() for name in names}
        self.first = {name: torch.zeros_like(value) for name, value in parameters.items()}
        self.second = {name: torch.zeros_like(value) for name, value in parameters.items() if name not in turned}
        runs = next(iter(parameters.values())).shape[0]
        self.steps = torch.zeros(runs, dtype=torch.float64)
        for value in parameters.values():
            value.requires_grad_(True)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], active: Tensor) -> None:
        """One update; `gradients` in the order of the parameters and zero where `active` [runs] is false."""
        self.steps += active
        power = self.steps.clamp_min(1.0)
        risen = active * self.learning_rate
        if self.warmup:
            risen = risen * (power / self.warmup).clamp_max(1.0)
        rate = (risen / (1.0 - 0.9**power)).float()
        correction = (1.0 - 0.999**power).rsqrt().float()
        keep_first = torch.where(active, 0.9, 1.0)
        keep_second = torch.where(active, 0.999, 1.0)
        by_name = dict(zip(self.parameters, gradients, strict=True))
        for name, second in self.second.items():
            value, gradient, first = self.parameters[name], by_name[name], self.first[name]
            shape = (-1, *[1] * (value.dim() - 1))
            first.mul_(keep_first.view(shape)).add_(gradient, alpha=0.1)
            second.mul_(keep_second.view(shape)).addcmul_(gradient, gradient, value=0.001)
            # Square roots of exact zeros are many times slower than those of the smallest normal number.
            scale = second.clamp_min(_TINY).sqrt_().mul_(correction.view(shape)).add_(1e-8)
            value.sub_(torch.div(first, scale, out=scale).mul_(rate.view(shape)))
        for (_, longer), names in self._matrices.items():
            self._turn(names, by_name, active, risen.float() * (0.2 * math.sqrt(longer)))

    def _turn(self, names: Sequence[str], gradients: Mapping[str, Tensor], active: Tensor, rate: Tensor) -> None:
        """Muon's step of matrices of one shape, lying or standing; `rate` [runs]."""
        keep = torch.where(active, 0.95, 1.0).view(-1, 1, 1)
        ahead = []
        for name in names:
            momentum = self.first[name].mul_(keep).add_(gradients[name])
            wanted = torch.add(gradients[name], momentum, alpha=0.95)
            ahead.append(wanted if wanted.shape[1] <= wanted.shape[2] else wanted.mT)
        turned = nearly_orthogonal(torch.cat(ahead)).mul_(rate.repeat(len(names)).view(-1, 1, 1))
        for name, change in zip(names, turned.chunk(len(names)), strict=True):
            value = self.parameters[name]
            value.sub_(change if value.shape[1] <= value.shape[2] else change.mT)


def _is_matrix(name: str, value: Tensor) -> bool:
    """Weights of a layer ('w', 'text.0.f.1.w', 'w1') and the table of words ('word'), large enough; no other table."""
    return value.dim() == 3 and name.rpartition(".")[2].startswith("w") and min(value.shape[1:]) >= _SIDE


def nearly_orthogonal(matrices: Tensor) -> Tensor:
    """[n, a, b], a <= b: to each the matrix U V' of its U S V', up to singular values from about 0.7 to 1.2; five steps
    of a Newton-Schulz iteration with the coefficients of Muon. Zero stays zero."""
    turned: Tensor = matrices / (torch.linalg.matrix_norm(matrices, keepdim=True) + 1e-7)
    for _ in range(5):
        square = turned @ turned.mT
        mixed = torch.baddbmm(square, square, square, beta=-4.7750, alpha=2.0315)
        turned = torch.baddbmm(turned, mixed, turned, beta=3.4445)
    return turned
