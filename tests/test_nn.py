"""Stacked building blocks give each run what a network of its own would."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from apil.nn import initial_normal, initial_uniform, mlp, mlp_parameters
from apil.rng import Streams


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_a_stacked_network_is_one_network_for_each_run() -> None:
    parameters = mlp_parameters(Streams([3, 4, 5]), "net", (6, 8, 2))
    inputs = _random(3, 10, 6)
    outputs = mlp(parameters, inputs)
    for run in range(3):
        hidden = torch.nn.functional.linear(inputs[run], parameters["w1"][run].T, parameters["b1"][run]).relu()
        expected = torch.nn.functional.linear(hidden, parameters["w2"][run].T, parameters["b2"][run])
        assert torch.allclose(outputs[run], expected, atol=1e-6)


def test_initial_weights_depend_on_seed_and_name_alone() -> None:
    stack = mlp_parameters(Streams([3, 8]), "net", (6, 8, 2))
    alone = mlp_parameters(Streams([8]), "net", (6, 8, 2))
    other = mlp_parameters(Streams([8]), "other", (6, 8, 2))
    for name, value in stack.items():
        assert torch.equal(value[1], alone[name][0])
        assert not torch.equal(value[1], value[0])
        assert not torch.equal(value[1], other[name][0])


@pytest.mark.parametrize(("name", "fan_in"), [("w1", 400), ("b1", 400), ("w2", 300), ("b2", 300)])
def test_initial_weights_fill_torchs_default_interval(name: str, fan_in: int) -> None:
    value = mlp_parameters(Streams([0]), "net", (400, 300, 100))[name].double()
    bound = 1 / math.sqrt(fan_in)
    assert float(value.abs().max()) < bound
    assert float(value.abs().max()) > 0.9 * bound
    # Standard deviation of a uniform variable: bound / sqrt(3).
    assert abs(float(value.mean())) < 5 * bound / math.sqrt(3 * value.numel())


def test_initial_uniform_and_normal_have_their_moments() -> None:
    count = 100_000
    normal = initial_normal(Streams([0]), "table", (count,))[0].double()
    assert abs(float(normal.mean())) < 5 / math.sqrt(count)
    assert abs(float(normal.square().mean()) - 1) < 5 * math.sqrt(2 / count)
    assert abs(float(normal.pow(4).mean()) - 3) < 5 * math.sqrt(96 / count)
    uniform = initial_uniform(Streams([0]), "table", (count,), 2.0)[0].double()
    assert float(uniform.min()) > -2
    assert float(uniform.max()) < 2
    assert abs(float(uniform.mean())) < 5 * 2 / math.sqrt(3 * count)
