"""Optimisers of a stack: torch's Adam and Muon for each run, and nothing for a run without labels."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from apil.crew import Crew
from apil.errors import ApilError
from apil.nn import Parameters
from apil.optim import Adam, Muon, Optimizer, nearly_orthogonal, optimizer_factory


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _kept(optimizer: Optimizer, run: int) -> dict[str, Tensor]:
    """A copy of the weights and the state of one run."""
    weights = {name: value[run] for name, value in optimizer.parameters.items()}
    return {name: value.detach().clone() for name, value in (weights | optimizer.state(run)).items()}


def test_adam_is_torchs_for_each_run_at_the_iterations_in_which_it_learned() -> None:
    runs, iterations = 4, 40
    shapes = {"w": (3, 2), "b": (2,)}
    stacked = {name: _random(runs, *shape, seed=1) for name, shape in shapes.items()}
    own = [[value[run].clone().requires_grad_() for value in stacked.values()] for run in range(runs)]
    peers = [torch.optim.Adam(parameters, lr=0.01) for parameters in own]
    adam = Adam(stacked, 0.01)
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
    adam = Adam(parameters, 0.1)
    both, one = torch.tensor([True, True]), torch.tensor([True, False])
    adam.step([_random(2, 5, seed=2)], both)
    before = [_kept(adam, run) for run in range(2)]
    adam.step([_random(2, 5, seed=3) * one.unsqueeze(1)], one)
    assert set(before[0]) == {"w", "first.w", "second.w", "steps"}
    for name, value in before[0].items():
        assert not torch.equal(_kept(adam, 0)[name], value), name
        assert torch.equal(_kept(adam, 1)[name], before[1][name]), name


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
    muon = Muon({name: value.clone() for name, value in start.items()}, 0.01, warmup=4)
    adam = Adam({name: value.clone() for name, value in start.items()}, 0.01, warmup=4)
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
            assert f"second.{name}" not in muon.state(0)
        else:
            assert torch.equal(muon.parameters[name], adam.parameters[name])


def test_muon_gives_a_run_the_same_bits_alone_and_in_a_stack() -> None:
    learns = torch.tensor([[True, False, i % 3 == 0, i > 4] for i in range(8)])
    start = {name: _random(4, *shape, seed=1) for name, shape in SHAPES.items()}
    stack = Muon({name: value.clone() for name, value in start.items()}, 0.01)
    alone = [Muon({name: value[run : run + 1].clone() for name, value in start.items()}, 0.01) for run in range(4)]
    for iteration, active in enumerate(learns):
        gradients = _gradients(4, iteration, active)
        stack.step(gradients, active)
        for run, own in enumerate(alone):
            own.step([gradient[run : run + 1] for gradient in gradients], active[run : run + 1])
    for run, own in enumerate(alone):
        for name, value in _kept(own, 0).items():
            assert torch.equal(_kept(stack, run)[name], value), name


def test_muon_leaves_a_run_without_labels_as_it_is() -> None:
    both, one = torch.tensor([True, True]), torch.tensor([True, False])
    muon = Muon({name: _random(2, *shape, seed=1) for name, shape in SHAPES.items()}, 0.01)
    muon.step(_gradients(2, 0, both), both)
    before = [_kept(muon, run) for run in range(2)]
    muon.step(_gradients(2, 1, one), one)
    for name, value in before[0].items():
        assert not torch.equal(_kept(muon, 0)[name], value), name
        assert torch.equal(_kept(muon, 1)[name], before[1][name]), name


@pytest.mark.parametrize("name", ["adam", "muon"])
def test_a_state_that_is_written_back_goes_on_with_the_same_bits(name: str) -> None:
    everyone = torch.tensor([True, True])
    start = {name: _random(2, *shape, seed=1) for name, shape in SHAPES.items()}
    through, stopped = (_made(name, start, warmup=4) for _ in range(2))
    for iteration in range(3):
        through.step(_gradients(2, iteration, everyone), everyone)
        stopped.step(_gradients(2, iteration, everyone), everyone)
    resumed = _made(name, {name: value.detach() for name, value in stopped.parameters.items()}, warmup=4)
    for run in range(2):
        for key, value in resumed.state(run).items():
            value.copy_(stopped.state(run)[key])
    for iteration in range(3, 6):
        through.step(_gradients(2, iteration, everyone), everyone)
        resumed.step(_gradients(2, iteration, everyone), everyone)
    for run in range(2):
        for key, value in _kept(through, run).items():
            assert torch.equal(_kept(resumed, run)[key], value), key


def _made(name: str, start: Parameters, warmup: int) -> Optimizer:
    return optimizer_factory(name, 0.01, warmup)("policy", {name: value.clone() for name, value in start.items()})


def test_muon_is_for_the_policy_alone() -> None:
    make = optimizer_factory("muon", 0.01)
    found = {part: make(part, {"w": torch.zeros(1, 64, 64), "b": torch.zeros(1, 64)}) for part in ("policy", "query")}
    assert isinstance(found["policy"], Muon)
    assert isinstance(found["query"], Adam)


def test_an_optimizer_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(ApilError, match=r"^Unknown optimizer 'mu'.* Known: adam, muon.$"):
        optimizer_factory("mu", 0.01)


def test_muon_without_a_matrix_to_turn_needs_no_other_process() -> None:
    small = {"w": _random(1, 4, 3), "b": _random(1, 4)}
    gradients, active = [_random(1, 4, 3, seed=1), _random(1, 4, seed=2)], torch.tensor([True])
    found = {}
    for crew in (Crew(), Crew(0, 2)):
        own = {name: value.clone() for name, value in small.items()}
        Muon(own, 0.1, crew=crew).step(gradients, active)
        found[crew.size] = own
    assert all(torch.equal(value, found[2][name]) for name, value in found[1].items())
