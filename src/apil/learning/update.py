"""Lines 16 to 18 of Alg 1 and the update of Alg 2: one optimiser a part, one step an iteration."""

from __future__ import annotations

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.learning.collect import Agents, take
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
        for group in agents.queries:
            if group.part.parameters:
                self.optimisers[f"query{int(group.runs[0])}"] = StackedAdam(group.part.parameters, learning_rate)

    def update(self, episodes: Episodes, iteration: int) -> dict[str, Tensor]:
        """One step of every part that has something to learn; returns the losses and logs, each [runs]."""
        policy, identity = self._agents.model.losses(episodes, self._agents.streams.draws("dropout", iteration))
        answered = episodes.asked.flatten(1).any(1)
        self._descend("policy", policy, answered)
        self._descend("identity", identity, answered)
        logs = {"policy_loss": policy.detach(), "identity_loss": identity.detach()}
        for group in self._agents.queries:
            if not group.part.parameters:
                continue
            own = group.part.loss(take(episodes, group.runs))
            assert own is not None
            self._descend(f"query{int(group.runs[0])}", own.loss, own.active)
            for name, values in {"query_loss": own.loss.detach(), **own.logs}.items():
                logs.setdefault(name, torch.full_like(policy, torch.nan, requires_grad=False))
                logs[name][group.runs] = values
        _check_finite(logs, iteration)
        return logs

    def _descend(self, part: str, loss: Tensor, active: Tensor) -> None:
        optimiser = self.optimisers[part]
        parameters = list(optimiser.parameters.values())
        gradients = torch.autograd.grad(loss.sum(), parameters)
        optimiser.step(gradients, active)


def _check_finite(logs: dict[str, Tensor], iteration: int) -> None:
    for name in ("policy_loss", "identity_loss"):
        if not bool(logs[name].isfinite().all()):
            raise ApilError(f"{name} is not finite at iteration {iteration}: lower --learning-rate.")
