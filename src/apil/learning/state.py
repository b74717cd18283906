"""The state of a run as named tensors: views into the stack, to be saved or overwritten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from apil.learning.collect import Agents
from apil.learning.group import Group, Places
from apil.nn import Parameters


class Remembers(Protocol):
    """A part that keeps something beside what it learns."""

    @property
    def memory(self) -> Parameters:
        """Tensors that lead with the runs."""


def place_in(runs: Places, run: int, stack: int) -> int | None:
    """Where `run` of a stack of that size stands among the runs of a group; None if it is not one of them."""
    inside = (torch.arange(stack)[runs] == run).nonzero().flatten()
    return int(inside[0]) if inside.numel() else None


def learned(agents: Agents, run: int, of: Callable[[Tensor], Tensor] = lambda value: value) -> dict[str, Tensor]:
    """What one run has learned: 'policy.*', 'identity.*' and 'query.*', views without the runs axis.

    `of` may return another tensor of the same shape for each stacked one.
    """
    named = {f"policy.{name}": of(value)[run] for name, value in agents.model.policy.items()}
    named |= {f"identity.{name}": of(value)[run] for name, value in agents.model.identity.items()}
    for group in agents.queries:
        place = place_in(group.runs, run, len(agents.streams.seeds))
        if place is not None:
            named |= {f"query.{name}": of(value)[place] for name, value in group.part.parameters.items()}
    return {name: value.detach() for name, value in named.items()}


def weights(agents: Agents, run: int) -> dict[str, Tensor]:
    """What one run has learned and keeps beside it ('model.*', 'memory.*', 'select.*'), views without the runs axis."""
    named = learned(agents, run) | {f"model.{name}": value[run] for name, value in agents.model.memory.items()}
    kept: tuple[tuple[str, Sequence[Group[Remembers]]], ...]
    kept = (("memory", agents.queries), ("select", agents.selectors))
    for kind, groups in kept:
        for group in groups:
            place = place_in(group.runs, run, len(agents.streams.seeds))
            if place is not None:
                named |= {f"{kind}.{name}": value[place].detach() for name, value in group.part.memory.items()}
    return named
