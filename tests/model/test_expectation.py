"""How identities are weighted: counts of draws, or the exact distribution, or a systematic sample of it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from apil.model.expectation import DENSE, IdentitySampler
from apil.rng import Streams

_RHO = [0.5, 0.0, 0.2, 0.29, 0.01]


def _sampler(samples: list[int], episodes: int, models: int, horizon: int = 1) -> IdentitySampler:
    streams = Streams(list(range(len(samples))))
    draws = streams.draws("model", 0), streams.draws("identity", 0)
    return IdentitySampler.draw(*draws, torch.tensor(samples), episodes, horizon, models)


def _identity(rho: list[float] | Tensor, runs: int, episodes: int) -> Tensor:
    return torch.as_tensor(rho).expand(runs, episodes, -1)


def _skewed(teachers: int) -> Tensor:
    return torch.softmax(torch.randn(teachers, generator=torch.Generator().manual_seed(1)), -1)


def test_exact_weights_are_the_identity_distribution_under_every_model() -> None:
    weights = _sampler([0], 3, 4).dense_weights(_identity(_RHO, 1, 3), 4, 0)
    assert weights.shape == (1, 3, 4, 5)
    assert torch.equal(weights, torch.tensor(_RHO).expand_as(weights))


@pytest.mark.parametrize("samples", [1, 5, 20])
def test_monte_carlo_weights_are_unbiased_shares_of_the_draws(samples: int) -> None:
    episodes, models = 2000, 10
    weights = _sampler([samples], episodes, models).dense_weights(_identity(_RHO, 1, episodes), models, 0)
    assert torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-6)
    counts = weights * samples
    assert torch.allclose(counts, counts.round(), atol=1e-5), "every weight is a count over N1"
    for identity, chance in enumerate(_RHO):
        drawn = weights[..., identity].double()
        tolerance = 5 * math.sqrt(chance * (1 - chance) / (samples * episodes * models))
        assert abs(float(drawn.mean()) - chance) <= tolerance + 1e-7
    # One draw of N1 identities has the variance of a multinomial share, estimated here with a relative error of
    # about sqrt(2 / 20000) = 1 %.
    variance = float(weights[..., 0].double().var())
    assert variance == pytest.approx(0.25 / samples, rel=0.05)


def test_each_model_and_step_has_draws_of_its_own() -> None:
    sampler = _sampler([1], 500, 2, horizon=2)
    identity = _identity([0.5, 0.5], 1, 500)
    first, second = (sampler.dense_weights(identity, 2, t)[0, ..., 0] for t in range(2))
    pairs = [(first[:, 0], first[:, 1]), (first[:, 0], second[:, 0])]
    for one, other in pairs:
        agreement = float((one == other).double().mean())
        assert abs(agreement - 0.5) < 5 * 0.5 / math.sqrt(500)


def test_a_run_is_weighted_the_same_alone_and_beside_runs_with_other_numbers_of_samples() -> None:
    numbers = [1, 0, 20, 5]
    identity = _identity(_RHO, 4, 6)
    stack = _sampler(numbers, 6, 3).dense_weights(identity, 3, 0)
    for run, samples in enumerate(numbers):
        draws = Streams([run]).draws("model", 0), Streams([run]).draws("identity", 0)
        alone = IdentitySampler.draw(*draws, torch.tensor([samples]), 6, 1, 3)
        assert torch.equal(alone.dense_weights(identity[:1], 3, 0)[0], stack[run])


def test_one_teacher_has_all_the_weight() -> None:
    weights = _sampler([5], 4, 3).dense_weights(torch.ones(1, 4, 1), 3, 0)
    assert torch.equal(weights, torch.ones(1, 4, 3, 1))


def _shares(chosen: Tensor, weight: Tensor, teachers: int) -> Tensor:
    """[..., K]: the total weight of each identity."""
    return torch.zeros(*chosen.shape[:-1], teachers, dtype=torch.float64).scatter_add(-1, chosen, weight.double())


def test_a_systematic_sample_gives_each_identity_its_share_to_within_one_point() -> None:
    teachers, episodes = 100, 50
    rho = _skewed(teachers)
    chosen, weight = _sampler([0], episodes, 4).sampled(_identity(rho, 1, episodes), 4, 0)
    shares = _shares(chosen, weight, teachers)
    assert torch.allclose(shares.sum(-1), torch.ones((), dtype=torch.float64))
    assert float((shares - rho).abs().max()) <= 1 / DENSE + 1e-6
    assert bool((shares == shares[:, :, :1]).all()), "the same for all models: no sampling noise between them"


def test_a_systematic_sample_is_unbiased() -> None:
    teachers, episodes, horizon = 40, 400, 10
    rho = _skewed(teachers)
    sampler = _sampler([0], episodes, 1, horizon)
    identity = _identity(rho, 1, episodes)
    shares = torch.cat([_shares(*sampler.sampled(identity, 1, t), teachers) for t in range(horizon)]).flatten(0, -2)
    error = shares.std(0) / math.sqrt(len(shares))
    assert bool(((shares.mean(0) - rho).abs() <= 5 * error + 1e-6).all())


def test_monte_carlo_above_the_dense_bound_is_unbiased_too() -> None:
    teachers, episodes, models, samples = 40, 500, 8, 5
    rho = _skewed(teachers)
    chosen, weight = _sampler([samples], episodes, models).sampled(_identity(rho, 1, episodes), models, 0)
    shares = _shares(chosen, weight, teachers)[0].flatten(0, 1)
    assert torch.allclose(shares.sum(-1), torch.ones((), dtype=torch.float64))
    error = (rho * (1 - rho) / (samples * episodes * models)).sqrt()
    assert bool(((shares.mean(0) - rho).abs() <= 5 * error + 1e-6).all())


@pytest.mark.parametrize("samples", [0, 5])
def test_an_impossible_identity_is_never_sampled(samples: int) -> None:
    rho = torch.zeros(40)
    rho[7], rho[22] = 0.25, 0.75
    chosen, weight = _sampler([samples], 200, 3).sampled(_identity(rho, 1, 200), 3, 0)
    shares = _shares(chosen, weight, 40)
    assert float(shares[..., rho == 0].max()) == 0


def test_no_number_of_samples_gives_a_negative_weight() -> None:
    """With a teacher who is all but certain every sample falls below the bound, and the shares must add up to 1."""
    numbers = list(range(1, 65))
    identity = _identity([1.0 - 2.0**-23, 2.0**-23], len(numbers), 50)
    weights = _sampler(numbers, 50, 4).dense_weights(identity, 4, 0)
    assert float(weights.min()) >= 0.0
    assert torch.equal(weights.sum(-1), torch.ones_like(weights[..., 0]))
