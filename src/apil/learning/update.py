"""Lines 16 to 18 of Alg 1 and the update of Alg 2: one optimiser a part, one step an iteration."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.learning.collect import Agents
from apil.learning.group import Places, take
from apil.learning.state import place_in
from apil.nn import StackedAdam
from apil.types import Episodes


class Learner:
    """Updates the policy (theta, phi), the identity model (psi) and the query policies of a stack of runs.

    The identity and query losses do not reach the policy: their inputs carry no gradient.
    """

    def __init__(self, agents: Agents, learning_rate: float, warmup: int = 0, clip: float = 0.0, *, muon: bool) -> None:
        """The policy's gradient is cut to the length `clip`, if it is not 0; the rate rises over `warmup` updates.

        With `muon` the policy's matrices go by Muon. The smaller networks of the others always go by Adam."""
        self._agents = agents
        self._clip = clip
        everyone = slice(0, len(agents.streams.seeds))
        self._optimisers: list[tuple[str, Places, StackedAdam]] = [
            ("policy", everyone, StackedAdam(agents.model.policy, learning_rate, warmup, muon=muon)),
            ("identity", everyone, StackedAdam(agents.model.identity, learning_rate, warmup)),
        ]
        for group in agents.queries:
            if group.part.parameters:
                adam = StackedAdam(group.part.parameters, learning_rate, warmup)
                self._optimisers.append(("query", group.runs, adam))

    def moments(self, run: int) -> dict[str, Tensor]:
        """The optimisers' state of one run, as views: 'adam.<part>.first.*', '.second.*' and '.steps'."""
        named: dict[str, Tensor] = {}
        for part, runs, adam in self._optimisers:
            place = place_in(runs, run, len(self._agents.streams.seeds))
            if place is not None:
                named |= {f"adam.{part}.first.{name}": value[place] for name, value in adam.first.items()}
                named |= {f"adam.{part}.second.{name}": value[place] for name, value in adam.second.items()}
                named[f"adam.{part}.steps"] = adam.steps[place : place + 1]
        return named

    def update(self, episodes: Episodes, iteration: int) -> dict[str, Tensor]:
        """One step of every part that has something to learn; returns the losses and logs, each [runs]."""
        agents = self._agents
        policy, identity = agents.model.losses(episodes, agents.streams.draws("dropout", iteration))
        answered = episodes.asked.flatten(1).any(1)
        terms, active = [policy, identity], [answered, answered]
        everyone, losses = slice(0, len(policy)), []
        logs = {"policy_loss": policy.detach(), "identity_loss": identity.detach()}
        for group in agents.queries:
            if not (group.part.parameters or group.part.memory):
                continue
            own = group.part.loss(take(episodes, group.runs))
            if own is not None:
                terms.append(own.loss)
                losses.append(("query loss", group.runs, own.loss))
                active.append(own.active)
                for name, values in {"query_loss": own.loss.detach(), **own.logs}.items():
                    logs.setdefault(name, torch.full(policy.shape, torch.nan))[group.runs] = values
        sums = episodes.mean.sum((1, 2, 3))
        checked = [("policy", everyone, sums), ("policy loss", everyone, policy), ("identity loss", everyone, identity)]
        _check_finite(agents, [*checked, *losses], iteration)
        self._descend(terms, active)
        return logs

    def _descend(self, terms: list[Tensor], active: list[Tensor]) -> None:
        """The losses of the parts share no parameters, so one backward pass serves them all."""
        optimisers = [adam for _, _, adam in self._optimisers]
        parameters = [list(optimiser.parameters.values()) for optimiser in optimisers]
        total = torch.cat(terms).sum()
        gradients = iter(torch.autograd.grad(total, [p for part in parameters for p in part]))
        for number, (optimiser, part, live) in enumerate(zip(optimisers, parameters, active, strict=True)):
            own = [next(gradients) for _ in part]
            if number == 0 and self._clip:
                _cut(own, self._clip)
            optimiser.step(own, live)


def _cut(gradients: Sequence[Tensor], length: float) -> None:
    """Scales the gradients, each [runs, ...], so that those of one run together are no longer than `length`."""
    squares = torch.stack([gradient.flatten(1).square().sum(1) for gradient in gradients]).sum(0)
    scale = (length / squares.sqrt().clamp_min(1e-12)).clamp_max(1.0)
    for gradient in gradients:
        gradient.mul_(scale.view(-1, *[1] * (gradient.dim() - 1)))


class DivergenceError(ApilError):
    """A loss or the policy is NaN or infinite."""

    def __init__(self, part: str, iteration: int, run: str) -> None:
        super().__init__(
            f"The {part} is not finite at iteration {iteration} ({run}): start anew with a lower --learning-rate."
        )
        self.part, self.iteration, self.run = part, iteration, run

    def __reduce__(self) -> tuple[type[DivergenceError], tuple[str, int, str]]:
        """Errors travel between processes."""
        return type(self), (self.part, self.iteration, self.run)


def _check_finite(agents: Agents, parts: Sequence[tuple[str, Places, Tensor]], iteration: int) -> None:
    """`parts` are what must be finite: a name, the runs it belongs to, and a value for each."""
    for part, runs, value in parts:
        finite = value.isfinite()
        if not bool(finite.all()):
            places = torch.arange(len(agents.streams.seeds))[runs]
            run = int(places[int((~finite).nonzero()[0])])
            raise DivergenceError(part, iteration, agents.names[run])
