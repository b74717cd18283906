"""How the expectation over identities is taken: weights for the policies of a mixture over K teachers.

Monte Carlo is the paper's way: N1 identities from the identity distribution, for each of the N2 models. Since the
same identity gives the same policy under one model, a draw is a count: with K teachers there are at most K policies
to evaluate, weighted by how often each was drawn. Exact takes the K-term sum. Above `DENSE` teachers only sampled
identities are evaluated, so that the cost stays flat as K grows; there exact means systematic sampling with `DENSE`
points, the same for all models, so that it adds no sampling noise to model uncertainty.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from apil.rng import Draws

DENSE = 32
"""Up to this many teachers the policy of every one is evaluated."""


@dataclass(frozen=True)
class IdentitySampler:
    """The random numbers behind the weights of one batch of episodes."""

    exact: Tensor
    """[runs, 1, 1, 1] bool: the run takes the exact expectation."""
    own: Tensor
    """[runs, max N1] bool: the samples that belong to the run; the others are padding."""
    number: Tensor
    """[runs, 1, 1, 1] float: N1, 1 where a run is exact."""
    points: Tensor | None
    """[runs, max N1, T, episodes, N2] uniform; the leading axis of a run's draws is the sample, so that padding to the
    stack's largest N1 changes no other number. None if every run is exact."""
    offset: Tensor
    """[runs, T, episodes] uniform: the one draw of a systematic sample."""

    @staticmethod
    def draw(
        draws: Draws, sample_draws: Draws, samples: Tensor, episodes: int, horizon: int, models: int
    ) -> IdentitySampler:
        """Draws for `horizon` steps of `episodes` episodes under `models` models; `samples` [runs]: N1, 0 for exact.

        The points have a stream of their own, `sample_draws`: how many are drawn depends on the rest of the stack.
        """
        offset = draws.uniform(horizon, episodes)
        most = int(samples.max())
        points = sample_draws.uniform(most, horizon, episodes, models) if most else None
        own = torch.arange(most) < samples.unsqueeze(-1)
        number = samples.clamp_min(1).float()[:, None, None, None]
        return IdentitySampler((samples == 0)[:, None, None, None], own, number, points, offset)

    def dense_weights(self, identity: Tensor, models: int, t: int) -> Tensor:
        """[runs, episodes, models, K]: the weight of every teacher's policy, given `identity` [runs, episodes, K].

        A sampler drawn for one episode serves any number of them, all with the same draws.
        """
        exact = identity.unsqueeze(2).expand(-1, -1, models, -1)
        if self.points is None or identity.shape[-1] == 1:
            return exact
        bounds = identity.cumsum(-1)[:, None, :, None, :-1]
        below = self.points[:, :, t].unsqueeze(-1) < bounds
        # How many of the run's own samples fall below each bound; the differences are the counts of the identities.
        # Counted in whole numbers: a sum of fractions could pass 1 and leave a negative weight.
        share = (below & self.own[:, :, None, None, None]).sum(1) / self.number
        edges = torch.cat([torch.zeros_like(share[..., :1]), share, torch.ones_like(share[..., :1])], -1)
        drawn = edges[..., 1:] - edges[..., :-1]
        return torch.where(self.exact, exact, drawn)

    def sampled(self, identity: Tensor, models: int, t: int) -> tuple[Tensor, Tensor]:
        """Identities to evaluate and their weights, both [runs, episodes, models, J], for K above `DENSE`."""
        bounds = identity.cumsum(-1)
        bounds = bounds / bounds[..., -1:]
        runs, episodes, teachers = identity.shape
        grid = (torch.arange(DENSE) + self.offset[:, t].expand(-1, episodes).unsqueeze(-1)) / DENSE
        chosen = torch.searchsorted(bounds, grid).unsqueeze(2).expand(-1, -1, models, -1)
        weight = identity.new_full(chosen.shape, 1.0 / DENSE)
        if self.points is not None:
            drawn = self.points[:, :, t].permute(0, 2, 3, 1).expand(-1, episodes, -1, -1)
            most = drawn.shape[-1]
            drawn = torch.searchsorted(bounds, drawn.reshape(runs, episodes, -1)).view(runs, episodes, models, most)
            share = (self.own[:, None, None] / self.number).expand(-1, episodes, models, -1)
            chosen, weight = _either(self.exact, chosen, weight, drawn, share)
        return chosen.clamp_max(teachers - 1), weight


def _either(exact: Tensor, chosen: Tensor, weight: Tensor, drawn: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """The systematic sample where a run is `exact`, its Monte Carlo draw elsewhere, padded with weight 0."""
    width = max(chosen.shape[-1], drawn.shape[-1])

    def pad(tensor: Tensor) -> Tensor:
        return torch.nn.functional.pad(tensor, (0, width - tensor.shape[-1]))

    return torch.where(exact, pad(chosen), pad(drawn)), torch.where(exact, pad(weight), pad(share))
