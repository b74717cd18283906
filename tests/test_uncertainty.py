"""The decomposition against plain loops in double precision, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from apil.errors import ApilError
from apil.uncertainty import Uncertainty, decompose, decompose_variance

Floats = NDArray[np.float64]
_PARTS = [field.name for field in fields(Uncertainty)]


def _entropy(row: list[float]) -> float:
    return -sum(p * math.log2(p) for p in row if p > 0)


def _by_loops(probs: Floats, weights: Floats) -> dict[str, float]:
    """The definitions for one state: probs [models, samples, actions], weights [models, samples]."""
    models, samples, actions = probs.shape
    of_model = [[sum(weights[w, k] * probs[w, k, a] for k in range(samples)) for a in range(actions)] for w in range(models)]  # fmt: skip  # noqa: E501
    mean = [sum(row[a] for row in of_model) / models for a in range(actions)]
    total = _entropy(mean)
    behavioral = sum(_entropy(row) for row in of_model) / models
    intrinsic = 0.0
    extrinsic = 0.0
    for w in range(models):
        for k in range(samples):
            intrinsic += weights[w, k] * _entropy(list(probs[w, k])) / models
            for a in range(actions):
                # Mutual information as a divergence, not as a difference of entropies.
                if probs[w, k, a] > 0 and weights[w, k] > 0:
                    ratio = probs[w, k, a] / of_model[w][a]
                    extrinsic += weights[w, k] * probs[w, k, a] * math.log2(ratio) / models
    model = 0.0
    for w in range(models):
        for a in range(actions):
            if of_model[w][a] > 0:
                model += of_model[w][a] * math.log2(of_model[w][a] / mean[a]) / models
    return {
        "total": total,
        "behavioral": behavioral,
        "intrinsic": intrinsic,
        "extrinsic": extrinsic,
        "model": model,
    }


def _random_case(seed: int, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Distributions with some impossible actions, and weights with some zeros."""
    rng = np.random.default_rng(seed)
    raw = rng.exponential(size=shape) ** 3 * (rng.random(shape) < 0.7)
    raw[..., 0] += 1e-3
    weights = rng.exponential(size=shape[:-1]) * (rng.random(shape[:-1]) < 0.8)
    weights[:, 0] += 1e-3
    return raw / raw.sum(-1, keepdims=True), weights / weights.sum(1, keepdims=True)


@given(
    seed=st.integers(0, 2**32 - 1),
    models=st.integers(1, 4),
    samples=st.integers(1, 5),
    states=st.integers(1, 3),
    actions=st.integers(1, 5),
    given_weights=st.booleans(),
)
def test_discrete_parts_follow_their_definitions(
    seed: int, models: int, samples: int, states: int, actions: int, given_weights: bool
) -> None:
    probs, weights = _random_case(seed, (models, samples, states, actions))
    if not given_weights:
        weights = np.full_like(weights, 1 / samples)
    result = decompose(torch.tensor(probs), torch.tensor(weights) if given_weights else None)
    for state in range(states):
        expected = _by_loops(probs[:, :, state], weights[:, :, state])
        for part in _PARTS:
            assert float(getattr(result, part)[state]) == pytest.approx(expected[part], abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parts_add_up_and_keep_shape_and_type(dtype: torch.dtype) -> None:
    probs, weights = _random_case(5, (4, 3, 6, 2, 5))
    result = decompose(torch.tensor(probs, dtype=dtype), torch.tensor(weights))
    for part in _PARTS:
        value = getattr(result, part)
        assert value.shape == (6, 2)
        assert value.dtype == dtype
        assert bool((value >= 0).all())
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    assert torch.allclose(result.behavioral, result.intrinsic + result.extrinsic, atol=tolerance)
    assert torch.allclose(result.total, result.behavioral + result.model, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_half_precision(dtype: torch.dtype) -> None:
    probs, _ = _random_case(6, (3, 4, 7, 3))
    exact = decompose(torch.tensor(probs))
    rough = decompose(torch.tensor(probs, dtype=dtype))
    for part in _PARTS:
        assert getattr(rough, part).dtype == dtype
        # A few roundings of terms of the order of log2(3) bits.
        tolerance = 20 * torch.finfo(dtype).eps
        assert torch.allclose(getattr(rough, part).double(), getattr(exact, part), atol=tolerance)


def _bits(result: Uncertainty) -> list[float]:
    """Intrinsic, extrinsic and model uncertainty; bits are multiples of a logarithm, and rounded."""
    return [float(part) for part in (result.intrinsic, result.extrinsic, result.model)]


def test_a_single_state_gives_scalars_in_bits() -> None:
    two_opposed = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    result = decompose(two_opposed)
    assert [getattr(result, part).shape for part in _PARTS] == [()] * 5
    assert _bits(result) == pytest.approx([0.0, 1.0, 0.0], abs=1e-6)
    one_coin = decompose(torch.full((3, 2, 4), 0.25))
    assert _bits(one_coin) == pytest.approx([2.0, 0.0, 0.0], abs=1e-6)
    models_differ = decompose(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]))
    assert _bits(models_differ) == pytest.approx([0.0, 0.0, 1.0], abs=1e-6)


def test_a_sample_of_weight_zero_counts_for_nothing() -> None:
    probs = torch.tensor([[[0.5, 0.5], [1.0, 0.0]]])
    assert _bits(decompose(probs, torch.tensor([[1.0, 0.0]]))) == pytest.approx([1.0, 0.0, 0.0], abs=1e-6)


@pytest.mark.parametrize("excess", [5e-5, -5e-5])
def test_weights_may_miss_one_by_rounding(excess: float) -> None:
    decompose(torch.full((1, 2, 2), 0.5), torch.tensor([[0.5, 0.5 + excess]]))


_GOOD = torch.full((2, 3, 4), 0.25)
_THIRDS = torch.full((2, 3), 1 / 3)


@pytest.mark.parametrize(
    ("probs", "weights", "message"),
    [
        (_GOOD * torch.nan, None, "NaN"),
        (_GOOD / 0, None, "infinite"),
        (torch.tensor([[[1.5, -0.5]]]), None, r"negative entry \(-0\.5\)"),
        (_GOOD * 2, None, "sum to 1 over actions"),
        (_GOOD[0], None, r"shape \[3, 4\]; expected \[models, samples"),
        (_GOOD[:, :0], None, "need an entry"),
        (torch.ones(1, 2, 1, dtype=torch.long), None, "floating-point"),
        (_GOOD, _THIRDS * 1.0004, r"weights must sum to 1 over samples \(tolerance 0\.0001\)"),
        (_GOOD, _THIRDS * 0.9996, "normalise"),
        (_GOOD, _THIRDS[0], r"weights has shape \[3\]; expected \[2, 3\]"),
        (_GOOD, _THIRDS.unsqueeze(-1), r"expected \[2, 3\]"),
        (_GOOD, _THIRDS * torch.nan, "weights has NaN"),
        (_GOOD, torch.tensor([[1.5, -0.5, 0.0]] * 2), "weights has a negative entry"),
        (_GOOD, torch.tensor([[1, 0, 0]] * 2), "weights has type torch.int64"),
    ],
)
def test_what_is_no_distribution_is_refused(probs: Tensor, weights: Tensor | None, message: str) -> None:
    with pytest.raises(ApilError, match=message) as caught:
        decompose(probs, weights)
    assert "\n" not in str(caught.value)


@given(
    seed=st.integers(0, 2**32 - 1),
    models=st.integers(1, 4),
    samples=st.integers(1, 5),
    dims=st.integers(1, 3),
    given_weights=st.booleans(),
)
def test_continuous_parts_follow_the_law_of_total_variance(
    seed: int, models: int, samples: int, dims: int, given_weights: bool
) -> None:
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(models, samples, 2, dims))
    variances = rng.exponential(size=means.shape)
    weights = _random_case(seed, (models, samples, 2, dims))[1]
    if not given_weights:
        weights = np.full_like(weights, 1 / samples)
    result = decompose_variance(
        torch.tensor(means), torch.tensor(variances), torch.tensor(weights) if given_weights else None
    )
    # E[Var], by second moments: Var of a mixture = E[v + m^2] - E[m]^2.
    w = weights[..., None]
    centre = (w * means).sum(1)
    within = (w * (variances + means**2)).sum(1) - centre**2
    joint = (w * (variances + means**2)).sum(1).mean(0) - centre.mean(0) ** 2
    expected = {
        "total": joint,
        "behavioral": within.mean(0),
        "intrinsic": (w * variances).sum(1).mean(0),
        "extrinsic": ((w * means**2).sum(1) - centre**2).mean(0),
        "model": np.var(centre, axis=0),
    }
    for part in _PARTS:
        np.testing.assert_allclose(getattr(result, part).numpy(), expected[part], atol=1e-12)


def test_variance_is_that_of_a_population_and_keeps_its_type() -> None:
    means = torch.tensor([[[0.0], [2.0]], [[4.0], [6.0]]])
    result = decompose_variance(means, torch.full_like(means, 0.5))
    found = [float(getattr(result, part)) for part in ("intrinsic", "extrinsic", "behavioral", "model", "total")]
    assert found == [0.5, 1.0, 1.5, 4.0, 5.5]
    assert result.total.dtype == torch.float32


@pytest.mark.parametrize(
    ("means", "variances", "message"),
    [
        (torch.zeros(2, 3, 4), torch.zeros(2, 3, 1), "differ in shape"),
        (torch.zeros(2, 3, 4), torch.full((2, 3, 4), -1.0), r"negative entry \(-1\)"),
        (torch.zeros(3, 4), torch.zeros(3, 4), "action_dims"),
        (torch.full((1, 1, 1), torch.nan), torch.zeros(1, 1, 1), "means has NaN"),
        (torch.zeros(1, 1, 1), torch.full((1, 1, 1), torch.inf), "variances has NaN or infinite"),
    ],
)
def test_what_is_no_variance_is_refused(means: Tensor, variances: Tensor, message: str) -> None:
    with pytest.raises(ApilError, match=message):
        decompose_variance(means, variances)
