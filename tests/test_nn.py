"""Stacked building blocks give each run what a network of its own would."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from apil.nn import StackedAdam, initial_normal, initial_uniform, mlp, mlp_parameters, nearly_orthogonal
from apil.rng import Streams


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_adam_is_torchs_for_each_run_at_the_iterations_in_which_it_learned() -> None:
    runs, iterations = 4, 40
    shapes = {"w": (3, 2), "b": (2,)}
    stacked = {name: _random(runs, *shape, seed=1) for name, shape in shapes.items()}
    own = [[value[run].clone().requires_grad_() for value in stacked.values()] for run in range(runs)]
    peers = [torch.optim.Adam(parameters, lr=0.01) for parameters in own]
    adam = StackedAdam(stacked, 0.01)
    # Run 0 always learns, run 1 never, run 2 every third iteration, run 3 after a late start.
    learns = torch.tensor([[True, False, i % 3 == 0, i > 25] for i in range(iterations)])
    for iteration in range(iterations):
        active = learns[iteration]
        scale = 10.0 ** (iteration % 5 - 2)
        gradients = [_random(runs, *shape, seed=iteration * 7 + n) * scale for n, shape in enumerate(shapes.values())]
        gradients = [g * active.view(-1, *[1] * (g.dim() - 1)) for g in gradients]
        adam.step(gradients, active)
        for run in range(runs):
            if active[run]:
                for parameter, gradient in zip(own[run], gradients, strict=True):
                    parameter.grad = gradient[run].clone()
                peers[run].step()
    for run in range(runs):
        for mine, theirs in zip(stacked.values(), own[run], strict=True):
            # Steps of 0.01 in single precision: 40 of them may differ by a few roundings.
            assert torch.allclose(mine[run], theirs, atol=2e-6, rtol=0)


def test_a_run_without_labels_keeps_weights_moments_and_step_count() -> None:
    parameters = {"w": _random(2, 5)}
    adam = StackedAdam(parameters, 0.1)
    both, one = torch.tensor([True, True]), torch.tensor([True, False])
    adam.step([_random(2, 5, seed=2)], both)
    before = [t.detach().clone() for t in (parameters["w"], adam.first["w"], adam.second["w"], adam.steps)]
    adam.step([_random(2, 5, seed=3) * one.unsqueeze(1)], one)
    after = [parameters["w"], adam.first["w"], adam.second["w"], adam.steps]
    for old, new in zip(before, after, strict=True):
        assert torch.equal(old[1], new[1])
        assert not torch.equal(old[0], new[0])


def _of_even_spread(count: int, rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """U [n, a, a], S [n, a] from 0.05 to 1, V' [n, a, b], in double precision."""
    outer = torch.linalg.qr(_random(count, rows, rows, seed=1).double())[0]
    inner = torch.linalg.qr(_random(count, columns, rows, seed=2).double())[0].mT
    return outer, torch.linspace(1.0, 0.05, rows).double().expand(count, -1), inner


def _orthogonal(matrix: Tensor) -> Tensor:
    """What Muon makes of a matrix, by its singular values: five times 3.4445 s - 4.775 s^3 + 2.0315 s^5."""
    outer, values, inner = torch.linalg.svd(matrix.double(), full_matrices=False)
    values = values / values.square().sum(-1, keepdim=True).sqrt()
    for _ in range(5):
        values = 3.4445 * values - 4.775 * values**3 + 2.0315 * values**5
    turned: Tensor = outer @ (values.unsqueeze(-1) * inner)
    return turned


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (64, 100), (96, 300)])
def test_a_matrix_is_made_nearly_orthogonal_in_its_own_directions(rows: int, columns: int) -> None:
    outer, values, inner = _of_even_spread(3, rows, columns)
    matrices = outer @ (values.unsqueeze(-1) * inner)
    found = nearly_orthogonal(matrices.float() * torch.tensor([1e-4, 1.0, 1e4]).view(-1, 1, 1)).double()
    spread = torch.linalg.svdvals(found)
    assert float(spread.min()) > 0.6
    assert float(spread.max()) < 1.3
    along = outer.mT @ found @ inner.mT
    torch.testing.assert_close(along, torch.diag_embed(along.diagonal(dim1=1, dim2=2)), atol=1e-3, rtol=0)
    torch.testing.assert_close(found, _orthogonal(matrices), atol=1e-3, rtol=0)


def test_nothing_is_turned_into_nothing() -> None:
    assert not bool(nearly_orthogonal(torch.zeros(2, 64, 80)).any())


SHAPES = {
    "flat.w": (64, 100),
    "tall.w": (100, 64),
    "square.w1": (64, 64),
    "thin.w": (8, 64),
    "b": (64,),
    "at": (90, 64),
}
"""Three for Muon; the rest, a small matrix, a bias and a table of vectors, for Adam."""
TURNED = ("flat.w", "tall.w", "square.w1")


def _gradients(runs: int, iteration: int, active: Tensor) -> list[Tensor]:
    made = [_random(runs, *shape, seed=iteration * 7 + n) for n, shape in enumerate(SHAPES.values())]
    return [gradient * active.view(-1, *[1] * (gradient.dim() - 1)) for gradient in made]


def test_muon_is_momentum_turned_for_matrices_and_adam_for_the_rest() -> None:
    everyone = torch.tensor([True, True])
    start = {name: _random(2, *shape, seed=1) for name, shape in SHAPES.items()}
    muon = StackedAdam({name: value.clone() for name, value in start.items()}, 0.01, warmup=4, muon=True)
    adam = StackedAdam({name: value.clone() for name, value in start.items()}, 0.01, warmup=4)
    expected = {name: start[name].double() for name in TURNED}
    momentum = {name: torch.zeros_like(expected[name]) for name in TURNED}
    for iteration in range(6):
        gradients = _gradients(2, iteration, everyone)
        muon.step(gradients, everyone)
        adam.step(gradients, everyone)
        rate = 0.01 * min(1.0, (iteration + 1) / 4)
        for name, gradient in zip(SHAPES, gradients, strict=True):
            if name in TURNED:
                momentum[name] = 0.95 * momentum[name] + gradient
                wanted = gradient.double() + 0.95 * momentum[name]
                expected[name] = expected[name] - rate * 0.2 * math.sqrt(max(SHAPES[name])) * _orthogonal(wanted)
    for name in SHAPES:
        if name in TURNED:
            torch.testing.assert_close(muon.parameters[name].double(), expected[name], atol=1e-4, rtol=0)
            assert name not in muon.second
        else:
            assert torch.equal(muon.parameters[name], adam.parameters[name])


def test_muon_gives_a_run_the_same_bits_alone_and_in_a_stack() -> None:
    learns = torch.tensor([[True, False, i % 3 == 0, i > 4] for i in range(8)])
    start = {name: _random(4, *shape, seed=1) for name, shape in SHAPES.items()}
    stack = StackedAdam({name: value.clone() for name, value in start.items()}, 0.01, muon=True)
    alone = [
        StackedAdam({name: value[run : run + 1].clone() for name, value in start.items()}, 0.01, muon=True)
        for run in range(4)
    ]
    for iteration, active in enumerate(learns):
        gradients = _gradients(4, iteration, active)
        stack.step(gradients, active)
        for run, own in enumerate(alone):
            own.step([gradient[run : run + 1] for gradient in gradients], active[run : run + 1])
    for run, own in enumerate(alone):
        for name in SHAPES:
            assert torch.equal(stack.parameters[name][run], own.parameters[name][0])
            assert torch.equal(stack.first[name][run], own.first[name][0])


def test_muon_leaves_a_run_without_labels_as_it_is() -> None:
    both, one = torch.tensor([True, True]), torch.tensor([True, False])
    muon = StackedAdam({name: _random(2, *shape, seed=1) for name, shape in SHAPES.items()}, 0.01, muon=True)
    muon.step(_gradients(2, 0, both), both)
    kept = [muon.parameters, muon.first, muon.second]
    before = [{name: value.detach().clone() for name, value in part.items()} for part in kept]
    steps = muon.steps.clone()
    muon.step(_gradients(2, 1, one), one)
    for old, new in zip(before, kept, strict=True):
        for name in old:
            assert torch.equal(old[name][1], new[name][1])
            assert not torch.equal(old[name][0], new[name][0])
    assert (muon.steps - steps).tolist() == [1, 0]


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
