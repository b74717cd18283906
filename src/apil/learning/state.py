"""The state of a run as named tensors: views into the stack, to be saved or overwritten."""

from __future__ import annotations

import torch
from torch import Tensor

from apil.learning.collect import Agents
from apil.learning.group import Places


def place_in(runs: Places, run: int, stack: int) -> int | None:
    """Where `run` of a stack of that size stands among the runs of a group; None if it is not one of them."""
    inside = (torch.arange(stack)[runs] == run).nonzero().flatten()
    return int(inside[0]) if inside.numel() else None


def weights(agents: Agents, run: int) -> dict[str, Tensor]:
    """What one run has learned: 'policy.*', 'identity.*', 'query.*' and 'memory.*', views without the runs axis."""
    named = {f"policy.{name}": value[run] for name, value in agents.model.policy.items()}
    named |= {f"identity.{name}": value[run] for name, value in agents.model.identity.items()}
    for group in agents.queries:
        place = place_in(group.runs, run, len(agents.streams.seeds))
        if place is not None:
            named |= {f"query.{name}": value[place] for name, value in group.part.parameters.items()}
            named |= {f"memory.{name}": value[place] for name, value in group.part.memory.items()}
    return {name: value.detach() for name, value in named.items()}
