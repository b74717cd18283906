"""Lines 16 to 18 of Alg 1 and the update of Alg 2: one optimiser a part, one step an iteration."""

from __future__ import annotations

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.learning.collect import Agents
from apil.learning.group import take
from apil.nn import StackedAdam
from apil.types import Episodes


class Learner:
    """Updates the policy (theta, phi), the identity model (psi) and the query policies of a stack of runs.

    The identity and query losses do not reach the policy: their inputs carry no gradient.
    """

    def __init__(self, agents: Agents, learning_rate: float) -> None:
        self._agents = agents
        self.optimisers = {
            "policy": StackedAdam(agents.model.policy, learning_rate),
            "identity": StackedAdam(agents.model.identity, learning_rate),
        }
        for place, group in enumerate(agents.queries):
            if group.part.parameters:
                self.optimisers[f"query{place}"] = StackedAdam(group.part.parameters, learning_rate)

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
        _check_finite(logs, iteration)
        self._descend(terms, active)
        return logs

    def _descend(self, terms: list[Tensor], active: list[Tensor]) -> None:
        """The losses of the parts share no parameters, so one backward pass serves them all."""
        optimisers = list(self.optimisers.values())
        parameters = [list(optimiser.parameters.values()) for optimiser in optimisers]
        total = torch.cat(terms).sum()
        gradients = iter(torch.autograd.grad(total, [p for part in parameters for p in part]))
        for optimiser, part, live in zip(optimisers, parameters, active, strict=True):
            optimiser.step([next(gradients) for _ in part], live)


def _check_finite(logs: dict[str, Tensor], iteration: int) -> None:
    for name in ("policy_loss", "identity_loss"):
        if not bool(logs[name].isfinite().all()):
            raise ApilError(f"{name} is not finite at iteration {iteration}: lower --learning-rate.")
