"""What the policy network's outputs mean: a distribution over discrete actions, or over vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from apil.rng import Draws
from apil.types import ActionBox, Observation, Uncertainty
from apil.uncertainty import entropy, split_by_model, split_variance

PARTS = tuple(field.name for field in fields(Uncertainty))

Parts = tuple[Tensor, Tensor]
"""What a mixture is made of, two numbers or vectors for each policy: [runs, episodes, N2, J, ...]."""


class Mixture(NamedTuple):
    """The policies of a batch of states, averaged over identities and models."""

    mean: Tensor
    """[runs, episodes, A] or [runs, episodes, 2n], as in `apil.types.Belief`."""
    uncertainty: Uncertainty
    drawn: Tensor | None = None
    """[runs, episodes, n]: a continuous action drawn from the mixture."""
    of_model: Tensor | None = None
    """[runs, episodes, N2, A or n]: the mean policy, or the mean scaled action, of each model."""


def joined(parts: Sequence[Mixture]) -> Mixture:
    """The mixtures of some runs each as one, in their order."""
    if len(parts) == 1:
        return parts[0]

    def whole(tensors: Sequence[Tensor | None]) -> Tensor | None:
        there = [tensor for tensor in tensors if tensor is not None]
        return torch.cat(there) if there else None

    uncertainty = [torch.cat([getattr(part.uncertainty, name) for part in parts]) for name in PARTS]
    mean = torch.cat([part.mean for part in parts])
    drawn, of_model = (whole([getattr(part, name) for part in parts]) for name in ("drawn", "of_model"))
    return Mixture(mean, Uncertainty(*uncertainty), drawn, of_model)


class Categorical:
    """Discrete actions: logits, invalid ones masked."""

    def __init__(self, actions: int) -> None:
        self.outputs = actions

    def luck(self, draws: Draws, episodes: int, horizon: int) -> Tensor | None:
        """None: the loop draws the action."""
        return None

    def parts(self, outputs: Tensor, valid: Tensor) -> Parts:
        """Probabilities and entropies, from `outputs` [runs, episodes, N2, J, outputs], which it writes over."""
        probs = outputs.masked_fill_(~valid.unsqueeze(2).unsqueeze(2), -torch.inf).softmax(-1)
        return probs, entropy(probs)

    def mixture(self, parts: Parts, weights: Tensor, luck: Tensor | None) -> Mixture:
        """With `weights` [runs, episodes, N2, J] and the luck of the step [runs, episodes, ...]; in bits."""
        of_model, mean, uncertainty = split_by_model(*parts, weights, models=2, samples=3)
        return Mixture(mean, uncertainty, of_model=of_model)

    def policies(self, outputs: Tensor, observation: Observation) -> Tensor:
        """Each policy by itself, [runs, n, K, outputs] -> [runs, n, K, A or 2n]; as in `Belief`."""
        return outputs.masked_fill(~observation.valid.unsqueeze(2), -torch.inf).softmax(-1)

    def loss(self, outputs: Tensor, action: Tensor, valid: Tensor, answered: Tensor) -> Tensor:
        """[runs]: negative log-likelihood of the answers in nats, summed where `answered` [runs, n]."""
        return likelihood_loss(outputs.masked_fill(~valid, -torch.inf), action, answered)


def likelihood_loss(logits: Tensor, target: Tensor, answered: Tensor) -> Tensor:
    """[runs]: negative log-likelihood (nats) of `target` [runs, n], summed where `answered`."""
    # Where nobody answered the target is a placeholder whose likelihood may be 0: ignored, never multiplied by 0.
    target = torch.where(answered, target, -100)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
    return loss.view(answered.shape).sum(-1)


LEAST, MOST = math.log(0.02**2), math.log(2.0**2)
"""Bounds of the log-variance of a scaled action. Without the lower one the likelihood of a teacher that never varies
has no maximum."""


class Gaussian:
    """Continuous actions, read in the same way: for each of n numbers a mean and a log-variance of the scaled action.

    The numbers are independent given the identity and the model. The mean is not bounded; an action is clipped to the
    box when it is taken.
    """

    def __init__(self, box: ActionBox) -> None:
        self.box = box
        self.outputs = 2 * len(box.low)

    def luck(self, draws: Draws, episodes: int, horizon: int) -> Tensor | None:
        """[runs, T, episodes, 2 + 2n] uniform: a model, an identity, and two for each normal number."""
        return draws.uniform(horizon, episodes, 2 + self.outputs)

    def parts(self, outputs: Tensor, valid: Tensor) -> Parts:
        """Means and variances of the scaled action."""
        means, log_variances = self._split(outputs)
        return means, log_variances.exp()

    def mixture(self, parts: Parts, weights: Tensor, luck: Tensor | None) -> Mixture:
        """The exact moments of the mixture, and one action from it."""
        means, variances = parts
        mean, spread = split_variance(means, variances, weights, models=2, samples=3)
        deviation = spread.total.sqrt()
        summed = Uncertainty(*(getattr(spread, name).sum(-1) for name in PARTS))
        shared = None if luck is None else luck.expand(-1, means.shape[1], -1)
        drawn = None if shared is None else self.box.unscaled(_draw(means, variances, weights, shared))
        of_model = (means * weights.unsqueeze(-1)).sum(3)
        return Mixture(torch.cat([mean, deviation], -1), summed, drawn, of_model)

    def policies(self, outputs: Tensor, observation: Observation) -> Tensor:
        means, log_variances = self._split(outputs)
        return torch.cat([means, log_variances.exp().sqrt()], -1)

    def loss(self, outputs: Tensor, action: Tensor, valid: Tensor, answered: Tensor) -> Tensor:
        """Of the scaled answer."""
        means, log_variances = self._split(outputs)
        error = (self.box.scaled(action) - means).square() * torch.exp(-log_variances)
        loss = 0.5 * (error + log_variances + math.log(2.0 * math.pi)).sum(-1)
        return torch.where(answered, loss, 0.0).sum(-1)

    def _split(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Means, and log-variances bent into their bounds without a corner, so that a gradient is left everywhere."""
        means, raw = outputs.chunk(2, -1)
        below = MOST - softplus(MOST - raw)
        return means, LEAST + softplus(below - LEAST)


def _draw(means: Tensor, variances: Tensor, weights: Tensor, luck: Tensor) -> Tensor:
    """[runs, episodes, n]: a model with equal chance, an identity by its weight, then their normal numbers."""
    models, policies, numbers = means.shape[2:]
    chosen = (luck[..., 0] * models).long().clamp_max(models - 1)
    of_model = weights.gather(2, chosen[..., None, None].expand(-1, -1, 1, policies)).squeeze(2)
    bounds = of_model.cumsum(-1)
    identity = (luck[..., 1:2] * bounds[..., -1:] >= bounds).sum(-1).clamp_max(policies - 1)
    place = (chosen * policies + identity)[..., None, None].expand(-1, -1, 1, numbers)
    mean, variance = (part.flatten(2, 3).gather(2, place).squeeze(2) for part in (means, variances))
    radius = torch.sqrt(-2.0 * torch.log(luck[..., 2 : 2 + numbers]))
    normal = radius * torch.cos(2.0 * math.pi * luck[..., 2 + numbers :])
    return mean + variance.sqrt() * normal
