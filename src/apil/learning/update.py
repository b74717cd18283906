"""Lines 16 to 18 of Alg 1 and the update of Alg 2: one optimiser a part, one step an iteration."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.learning.collect import Agents
from apil.learning.group import Places, take
from apil.learning.state import place_in
from apil.optim import Optimizer, OptimizerFactory
from apil.types import Episodes


class Learner:
    """Updates the policy (theta, phi), the identity model (psi) and the query policies of a stack of runs.

    The identity and query losses do not reach the policy: their inputs carry no gradient.
    """

    def __init__(self, agents: Agents, make_optimizer: OptimizerFactory, clip: float = 0.0) -> None:
        """The policy's gradient is cut to the length `clip`, if it is not 0."""
        self._agents = agents
        self._clip = clip
        everyone = slice(0, len(agents.streams.seeds))
        self._optimizers: list[tuple[str, Places, Optimizer]] = [
            ("policy", everyone, make_optimizer("policy", agents.model.policy)),
            ("identity", everyone, make_optimizer("identity", agents.model.identity)),
        ]
        for group in agents.queries:
            if group.part.parameters:
                self._optimizers.append(("query", group.runs, make_optimizer("query", group.part.parameters)))

    def state(self, run: int) -> dict[str, Tensor]:
        """The optimisers' state of one run, as views: 'adam.<part>.*', which is 'adam' in every checkpoint."""
        named: dict[str, Tensor] = {}
        for part, runs, optimizer in self._optimizers:
            place = place_in(runs, run, len(self._agents.streams.seeds))
            if place is not None:
                named |= {f"adam.{part}.{name}": value for name, value in optimizer.state(place).items()}
        return named

    def update(self, episodes: Episodes, iteration: int) -> dict[str, Tensor]:
        """One step of every part that has something to learn; returns the losses and logs, each [runs]."""
        agents = self._agents
        policy, identity = agents.model.losses(episodes, agents.streams.draws("dropout", iteration))
        answered = episodes.answered.flatten(1).any(1)
        terms, active = [policy, identity], [answered, answered]
        everyone, losses = slice(0, len(policy)), []
        logs = {"policy_loss": policy.detach(), "identity_loss": identity.detach()}
        for group in agents.queries:
            if not (group.part.parameters or group.part.memory):
                continue
            theirs = take(episodes, group.runs)
            group.part.observe(theirs)
            own = group.part.loss(theirs)
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
        optimizers = [optimizer for _, _, optimizer in self._optimizers]
        parameters = [list(optimizer.parameters.values()) for optimizer in optimizers]
        total = torch.cat(terms).sum()
        gradients = iter(torch.autograd.grad(total, [p for part in parameters for p in part]))
        for number, (optimizer, part, live) in enumerate(zip(optimizers, parameters, active, strict=True)):
            own = [next(gradients) for _ in part]
            if number == 0 and self._clip:
                _cut(own, self._clip)
            optimizer.step(own, live)


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
    if bool(torch.cat([value for _, _, value in parts]).isfinite().all()):
        return
    for part, runs, value in parts:
        finite = value.isfinite()
        if not bool(finite.all()):
            places = torch.arange(len(agents.streams.seeds))[runs]
            run = int(places[int((~finite).nonzero()[0])])
            raise DivergenceError(part, iteration, agents.names[run])
