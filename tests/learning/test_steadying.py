"""What steadies training: averaged weights, a rate that rises, and gradients that are cut."""

from __future__ import annotations

import pytest
import torch

from apil.learning.average import Average
from apil.learning.build import build
from apil.learning.collect import collect
from apil.learning.state import weights
from apil.learning.trainer import Trainer
from apil.learning.update import Learner
from apil.optim import Adam, optimizer_factory
from apil.settings import RunSettings


def _random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("decay", [0.9, 0.5])
def test_the_average_is_over_all_at_first_and_then_forgets(decay: float) -> None:
    agents = build([RunSettings.of("maze", "twodifdetm", "apil", seed=seed) for seed in (1, 2)])
    average = Average(agents, decay)
    views = [weights(agents, run) for run in (0, 1)]
    expected = [{name: torch.zeros(value.shape, dtype=torch.float64) for name, value in own.items()} for own in views]
    for iteration in range(1, 31):
        for run, own in enumerate(views):
            for number, (name, value) in enumerate(own.items()):
                value.copy_(_random(*value.shape, seed=iteration + 100 * number + 10_000 * run))
                # A plain mean as long as it forgets faster than the moving average would.
                keep = min(decay, (iteration - 1) / iteration)
                expected[run][name] = keep * expected[run][name] + (1 - keep) * value.double()
        average.add(iteration)
    for run in (0, 1):
        found = average.of_run(run)
        assert set(found) == {f"average.{name}" for name in views[run]}
        for name, value in expected[run].items():
            torch.testing.assert_close(found[f"average.{name}"].double(), value, atol=1e-5, rtol=0)
    average.apply()
    for run in (0, 1):
        for name, value in expected[run].items():
            torch.testing.assert_close(views[run][name].double(), value, atol=1e-5, rtol=0)


def test_averaging_changes_what_is_evaluated_and_not_what_is_trained() -> None:
    config = RunSettings.of("maze", "detm", "bc", seed=1, iterations=8, batch=3, log_every=1)
    plain, averaged = Trainer([config]), Trainer([config.changed(average=0.9)])
    seen = []
    for _ in range(8):
        plain.step()
        averaged.step()
        seen.append({name: value.double() for name, value in weights(plain.agents, 0).items()})
    assert plain.rows == averaged.rows
    last = weights(averaged.trained_agents(), 0)
    for name, value in last.items():
        # Eight iterations are fewer than 1 / (1 - 0.9): all of them count alike.
        mean = torch.stack([each[name] for each in seen]).mean(0)
        torch.testing.assert_close(value.double(), mean, atol=1e-6, rtol=0)


def test_the_rising_rate_is_that_of_torch() -> None:
    runs, warmup, rate = 3, 10, 0.01
    shapes = {"w": (4, 3), "b": (3,)}
    stacked = {name: _random(runs, *shape, seed=1) for name, shape in shapes.items()}
    own = [[value[run].clone().requires_grad_() for value in stacked.values()] for run in range(runs)]
    peers = [torch.optim.Adam(parameters, lr=rate) for parameters in own]
    rising = [torch.optim.lr_scheduler.LambdaLR(peer, lambda done: min(1.0, (done + 1) / warmup)) for peer in peers]
    adam = Adam(stacked, rate, warmup)
    for iteration in range(30):
        gradients = [_random(runs, *shape, seed=iteration * 7 + n + 50) for n, shape in enumerate(shapes.values())]
        for run in range(runs):
            for parameter, gradient in zip(own[run], gradients, strict=True):
                parameter.grad = gradient[run].clone()
            peers[run].step()
            rising[run].step()
        adam.step(gradients, torch.ones(runs, dtype=torch.bool))
    for run in range(runs):
        for mine, theirs in zip(stacked.values(), own[run], strict=True):
            # Steps of 0.01 in single precision: 30 of them may differ by a few roundings.
            torch.testing.assert_close(mine[run].detach(), theirs.detach(), atol=2e-6, rtol=0)


def _first_gradients(clip: float) -> list[dict[str, torch.Tensor]]:
    """Of each of three runs, the gradients of its first update: ten times Adam's first moments."""
    agents = build([RunSettings.of("maze", "twodifdetm", "errpred", seed=seed, threshold=0.5) for seed in (1, 2, 3)])
    learner = Learner(agents, optimizer_factory("adam", 1e-3), clip)
    learner.update(
        collect(build([RunSettings.of("maze", "twodifdetm", "bc", seed=seed) for seed in (1, 2, 3)]), 0, 4), 0
    )
    moments = [learner.state(run) for run in range(3)]
    return [{name: 10 * value for name, value in own.items() if ".first." in name} for own in moments]


def test_the_gradients_of_the_policy_are_cut_run_by_run_as_torch_cuts_them() -> None:
    plain = _first_gradients(clip=0.0)
    peers = [
        {name: torch.nn.Parameter(torch.zeros_like(value)) for name, value in own.items() if ".policy." in name}
        for own in plain
    ]
    for own, peer in zip(plain, peers, strict=True):
        for name, parameter in peer.items():
            parameter.grad = own[name].clone()
    lengths = sorted(float(torch.nn.utils.clip_grad_norm_(peer.values(), torch.inf)) for peer in peers)
    assert lengths[0] < 0.999 * lengths[1], "one bound can cut some runs and spare others"
    clip = (lengths[0] + lengths[1]) / 2
    for own, peer, found in zip(plain, peers, _first_gradients(clip), strict=True):
        torch.nn.utils.clip_grad_norm_(peer.values(), clip)
        for name, value in own.items():
            torch.testing.assert_close(found[name], peer[name].grad if name in peer else value)


def test_a_look_at_the_averaged_agents_does_not_change_the_training() -> None:
    config = RunSettings.of(
        "maze", "twodifdetm", "apil", iterations=8, batch=4, log_every=4, average=0.9, hidden=8, persona=4
    )
    looked, plain = Trainer([config]), Trainer([config])
    for iteration in range(8):
        looked.step()
        plain.step()
        with looked.averaged() as agents:
            same = torch.equal(agents.model.policy["w1"], plain.agents.model.policy["w1"])
            assert same == (iteration == 0)  # the average of one is that one
    assert looked.rows == plain.rows
    for name, value in plain.state(0).items():
        assert torch.equal(looked.state(0)[name], value), name
