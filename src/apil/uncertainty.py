"""Decomposes predictive uncertainty by its cause. Pure functions.

Discrete actions, entropy H in bits, w the outer average over models omega, k the inner one over sampled policies:

    total       H[mean_w mean_k pi]
    behavioral  mean_w H[mean_k pi]          = intrinsic + extrinsic
    intrinsic   mean_w mean_k H[pi]
    extrinsic   mutual information of action and policy, given the model
    model       mutual information of action and model = total - behavioral

Continuous actions: the same by the law of total variance.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.types import Uncertainty

__all__ = [
    "Uncertainty",
    "decompose",
    "decompose_variance",
    "entropy",
    "split_by_model",
    "split_entropy",
    "split_variance",
]


def decompose(probs: Tensor, weights: Tensor | None = None) -> Uncertainty:
    """Decomposes the uncertainty of discrete action distributions, in bits.

    Args:
        probs: `[models, samples, ..., actions]`, each row a distribution over actions.
        weights: `[models, samples, ...]`, the weight of each sampled policy; sums to 1 over samples for each model
            (tolerance 1e-4). Uniform if not given. Models count equally.

    Returns:
        The record, each field of shape `[...]` and of the type of `probs`; rounding errors below zero are 0.
    """
    _check(probs, "probs", "[models, samples, ..., actions]")
    if bool((probs < 0).any()):
        raise ApilError(f"probs has a negative entry ({float(probs.min()):g}): pass probabilities, not logits.")
    _check_sum(probs, -1, "probs", "actions", tolerance=1e-3)
    weights = _checked_weights(probs, weights)
    return split_entropy(probs, weights, models=0, samples=1)[1]


def split_entropy(probs: Tensor, weights: Tensor, *, models: int, samples: int) -> tuple[Tensor, Uncertainty]:
    """`decompose` without its checks, the `models` and `samples` axes where they are; also the mean policy.

    `samples` must come after `models`; `weights` has the shape of `probs` without its last axis.
    """
    return split_by_model(probs, entropy(probs), weights, models=models, samples=samples)[1:]


def split_by_model(
    probs: Tensor, entropies: Tensor, weights: Tensor, *, models: int, samples: int
) -> tuple[Tensor, Tensor, Uncertainty]:
    """`split_entropy` that first returns the mean policy of each model, with the `models` axis where it is.

    `entropies` are those of `probs`, of the shape of `weights`.
    """
    assert 0 <= models < samples < probs.dim() - 1
    of_model = _sum(probs * weights.unsqueeze(-1), samples)
    mean = of_model.mean(models)
    # One tensor for the parts: fewer operations on small tensors.
    both = torch.stack([entropy(of_model), _sum(entropies * weights, samples)]).mean(models + 1)
    behavioral, intrinsic = both.unbind()  # a tensor that is unpacked is first made a list, in Python
    total = entropy(mean)
    parts = torch.stack([total, behavioral, intrinsic, behavioral - intrinsic, total - behavioral])
    parts = parts.mul_(1.0 / math.log(2.0)).clamp_min_(0.0)
    return of_model, mean, Uncertainty(*parts.unbind())


def decompose_variance(means: Tensor, variances: Tensor, weights: Tensor | None = None) -> Uncertainty:
    """Decomposes the variance of continuous actions by the law of total variance (population variances).

    Args:
        means: `[models, samples, ..., action_dims]`, the mean action of each sampled policy.
        variances: the same shape, its variance; not negative.
        weights: as in `decompose`, `[models, samples, ...]`.

    Returns:
        The record, each field `[..., action_dims]`.
    """
    _check(means, "means", "[models, samples, ..., action_dims]")
    _check(variances, "variances", "[models, samples, ..., action_dims]")
    if means.shape != variances.shape:
        raise ApilError(f"means {list(means.shape)} and variances {list(variances.shape)} differ in shape.")
    if bool((variances < 0).any()):
        raise ApilError(f"variances has a negative entry ({float(variances.min()):g}).")
    return split_variance(means, variances, _checked_weights(means, weights), models=0, samples=1)[1]


def split_variance(
    means: Tensor, variances: Tensor, weights: Tensor, *, models: int, samples: int
) -> tuple[Tensor, Uncertainty]:
    """`decompose_variance` without its checks; also the mean action. Axes and `weights` as in `split_entropy`."""
    assert 0 <= models < samples < means.dim() - 1
    weights = weights.unsqueeze(-1)
    of_model = (means * weights).sum(samples)
    intrinsic = (variances * weights).sum(samples).mean(models)
    extrinsic = ((means - of_model.unsqueeze(samples)).square() * weights).sum(samples).mean(models)
    model = of_model.var(models, correction=0)
    behavioral = intrinsic + extrinsic
    return of_model.mean(models), Uncertainty(behavioral + model, behavioral, intrinsic, extrinsic, model)


def entropy(probs: Tensor) -> Tensor:
    """Shannon entropy of the last axis in nats, with 0 log 0 = 0."""
    return _sum(torch.special.entr(probs), -1)


def _sum(values: Tensor, axis: int) -> Tensor:
    """The sum over an axis. Two numbers have one sum, whatever the order, and adding them is many times faster than a
    reduction: two teachers, or two actions, are common."""
    if values.shape[axis] != 2:
        return values.sum(axis)
    one, two = values.unbind(axis)
    return one + two


def _check(tensor: Tensor, name: str, shape: str) -> None:
    if tensor.dim() < 3:
        raise ApilError(f"{name} has shape {list(tensor.shape)}; expected {shape}.")
    if not tensor.is_floating_point():
        raise ApilError(f"{name} has type {tensor.dtype}; expected a floating-point type.")
    if 0 in tensor.shape[:2] or tensor.shape[-1] == 0:
        raise ApilError(f"{name} has shape {list(tensor.shape)}; models, samples and the last axis need an entry.")
    if not bool(tensor.isfinite().all()):
        raise ApilError(f"{name} has NaN or infinite entries; look for a diverged model or a row with no valid action.")


def _check_sum(tensor: Tensor, axis: int, name: str, over: str, tolerance: float) -> None:
    # Types of less precision than float32 cannot hold the stated tolerance.
    tolerance = max(tolerance, 4.0 * torch.finfo(tensor.dtype).eps)
    sums = tensor.double().sum(axis).flatten()
    error = (sums - 1.0).abs()
    if error.numel() and float(error.max()) > tolerance:
        worst = float(sums[error.argmax()])
        raise ApilError(
            f"{name} must sum to 1 over {over} (tolerance {tolerance:g}); one sum is {worst:.6g}: normalise."
        )


def _checked_weights(values: Tensor, weights: Tensor | None) -> Tensor:
    if weights is None:
        return values.new_full(values.shape[:-1], 1.0 / values.shape[1])
    if weights.shape != values.shape[:-1]:
        raise ApilError(f"weights has shape {list(weights.shape)}; expected {list(values.shape[:-1])}.")
    _check(weights.unsqueeze(-1), "weights", "[models, samples, ...]")
    if bool((weights < 0).any()):
        raise ApilError(f"weights has a negative entry ({float(weights.min()):g}).")
    _check_sum(weights, 1, "weights", "samples", tolerance=1e-4)
    return weights.to(values.dtype)
