"""How the expectation over identities is taken: weights for the policies of a mixture over K teachers.

Monte Carlo is the paper's way: N1 identities from the identity distribution, for each of the N2 models. Since the
same identity gives the same policy under one model, a draw is a count: with K teachers there are at most K policies
to evaluate, weighted by how often each was drawn. Exact takes the K-term sum. Above `DENSE` teachers only sampled
identities are evaluated, so that the cost stays flat as K grows; there exact means systematic sampling with `DENSE`
points, the same for all models, so that it adds no sampling noise to model uncertainty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor
from torch.nn.functional import pad

from apil.rng import Draws

DENSE = 32
"""Up to this many teachers the policy of every one is evaluated."""


@dataclass(frozen=True)
class IdentitySampler:
    """The random numbers behind the weights of one batch of episodes."""

    drawn: Sequence[tuple[slice, Sequence[Tensor] | None]]
    """Neighbouring runs of one N1, and for each step their points [runs, N1, episodes, N2, 1], uniform; None where
    they take the exact expectation."""
    offset: Tensor
    """[runs, T, episodes] uniform: the one draw of a systematic sample."""

    @staticmethod
    def draw(
        draws: Draws, sample_draws: Draws, samples: Tensor, episodes: int, horizon: int, models: int
    ) -> IdentitySampler:
        """Draws for `horizon` steps of `episodes` episodes under `models` models; `samples` [runs]: N1, 0 for exact.

        The points have a stream of their own, `sample_draws`: how many are drawn depends on N1.
        """
        offset = draws.uniform(horizon, episodes)
        drawn: list[tuple[slice, Sequence[Tensor] | None]] = []
        start = 0
        for number, group in groupby(samples.tolist()):
            runs = slice(start, start := start + len(list(group)))
            points = sample_draws.of_runs(runs).uniform(number, horizon, episodes, models) if number else None
            drawn.append((runs, None if points is None else points.unsqueeze(-1).unbind(2)))
        return IdentitySampler(drawn, offset)

    def dense_weights(self, identity: Tensor, models: int, t: int) -> Tensor:
        """[runs, episodes, models, K]: the weight of every teacher's policy, given `identity` [runs, episodes, K].

        A sampler drawn for one episode serves any number of them, all with the same draws.
        """
        if identity.shape[-1] == 1:
            return _exact(identity, models)
        bounds = identity[:, None, :, None, :-1]
        if identity.shape[-1] > 2:
            bounds = bounds.cumsum(-1)
        if len(self.drawn) == 1:
            points = self.drawn[0][1]
            return _exact(identity, models) if points is None else _shares(points[t], bounds)
        parts = [
            _exact(identity[runs], models) if points is None else _shares(points[t], bounds[runs])
            for runs, points in self.drawn
        ]
        return torch.cat(parts)

    def sampled(self, identity: Tensor, models: int, t: int) -> tuple[Tensor, Tensor]:
        """Identities to evaluate and their weights, both [runs, episodes, models, J], for K above `DENSE`.

        All runs of such a stack have the same N1.
        """
        bounds = identity.cumsum(-1)
        bounds = bounds / bounds[..., -1:]
        _, episodes, teachers = identity.shape
        ((_, points),) = self.drawn
        if points is None:
            grid = (torch.arange(DENSE) + self.offset[:, t].expand(-1, episodes).unsqueeze(-1)) / DENSE
            chosen = torch.searchsorted(bounds, grid).unsqueeze(2).expand(-1, -1, models, -1)
            return chosen.clamp_max(teachers - 1), identity.new_full(chosen.shape, 1.0 / DENSE)
        drawn = points[t].squeeze(-1).permute(0, 2, 3, 1).expand(-1, episodes, -1, -1)
        chosen = torch.searchsorted(bounds, drawn.flatten(2)).view(drawn.shape)
        weight = identity.new_full(chosen.shape, 1.0 / drawn.shape[-1])
        # Padded with weight 0 to the width of a systematic sample, so that sums keep their order.
        padding = (0, max(0, DENSE - drawn.shape[-1]))
        return pad(chosen, padding).clamp_max(teachers - 1), pad(weight, padding)


def _exact(identity: Tensor, models: int) -> Tensor:
    return identity.unsqueeze(2).expand(-1, -1, models, -1)


def _shares(points: Tensor, bounds: Tensor) -> Tensor:
    """[runs, episodes, models, K]: the share of `points` [runs, N1, episodes, models, 1] that falls to each teacher.

    `bounds` are those between the teachers, [runs, 1, episodes, 1, K - 1].
    """
    # Counted in whole numbers: a sum of fractions could pass 1 and leave a negative weight.
    below = (points < bounds).sum(1) / points.shape[1]
    above = 1.0 - below[..., -1:]
    return torch.cat([below, above] if below.shape[-1] == 1 else [below[..., :1], below.diff(), above], -1)
