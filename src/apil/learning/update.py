"""Lines 16 to 18 of Alg 1 and the update of Alg 2: one optimiser a part, one step an iteration."""

from __future__ import annotations

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

    def __init__(self, agents: Agents, learning_rate: float) -> None:
        self._agents = agents
        everyone = slice(0, len(agents.streams.seeds))
        self._optimisers: list[tuple[str, Places, StackedAdam]] = [
            ("policy", everyone, StackedAdam(agents.model.policy, learning_rate)),
            ("identity", everyone, StackedAdam(agents.model.identity, learning_rate)),
        ]
        for group in agents.queries:
            if group.part.parameters:
                self._optimisers.append(("query", group.runs, StackedAdam(group.part.parameters, learning_rate)))

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
        logs = {"policy_loss": policy.detach(), "identity_loss": identity.detach()}
        for group in agents.queries:
            if group.part.parameters:
                own = group.part.loss(take(episodes, group.runs))
                assert own is not None
                terms.append(own.loss)
                active.append(own.active)
                for name, values in {"query_loss": own.loss.detach(), **own.logs}.items():
                    logs.setdefault(name, torch.full(policy.shape, torch.nan))[group.runs] = values
        _check_finite(terms, iteration)
        self._descend(terms, active)
        return logs

    def _descend(self, terms: list[Tensor], active: list[Tensor]) -> None:
        """The losses of the parts share no parameters, so one backward pass serves them all."""
        optimisers = [adam for _, _, adam in self._optimisers]
        parameters = [list(optimiser.parameters.values()) for optimiser in optimisers]
        total = torch.cat(terms).sum()
        gradients = iter(torch.autograd.grad(total, [p for part in parameters for p in part]))
        for optimiser, part, live in zip(optimisers, parameters, active, strict=True):
            optimiser.step([next(gradients) for _ in part], live)


class DivergenceError(ApilError):
    """A loss is NaN or infinite. The weights are still those before it."""

    def __init__(self, part: str, iteration: int) -> None:
        super().__init__(f"The {part} loss is not finite at iteration {iteration}: try a lower --learning-rate.")
        self.part, self.iteration = part, iteration

    def __reduce__(self) -> tuple[type[DivergenceError], tuple[str, int]]:
        """Errors travel between processes."""
        return type(self), (self.part, self.iteration)


def _check_finite(terms: list[Tensor], iteration: int) -> None:
    for part, loss in zip(("policy", "identity", *["query"] * len(terms)), terms, strict=False):
        if not bool(loss.isfinite().all()):
            raise DivergenceError(part, iteration)
