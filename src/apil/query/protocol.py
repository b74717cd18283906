"""What a query policy is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from torch import Tensor

from apil.nn import Parameters
from apil.rng import Streams
from apil.types import ActionBox, Belief, Episodes


@dataclass(frozen=True)
class QuerySetup:
    """What a query policy is built from; it serves all runs of `streams`."""

    streams: Streams
    state_size: int
    actions: int
    """The length of `Belief.mean`: A, or 2n where actions are continuous."""
    horizon: int
    thresholds: Tensor
    """[runs] float: the number to calibrate; NaN for policies that have none."""
    hidden: int = 100
    recurrent: bool = False
    """Query networks remember the steps of an episode."""
    sigma: float = 2.0
    """APIL: the factor by which the distance must shrink to count as progress."""
    epsilon: float = 0.0
    """APIL: a final distance up to this counts as reaching the goal."""
    gap: float | Literal["estimate"] = 0.0
    """APIL: d*_T, the final distance of an agent that always follows the teachers; g = max(0, d - d*_T)."""
    box: ActionBox | None = None
    """The bounds of continuous actions; None where actions are discrete."""


@dataclass(frozen=True)
class QueryLoss:
    """What a query policy learns from a batch of episodes."""

    loss: Tensor
    """[runs]"""
    active: Tensor
    """[runs] bool: there was something to learn from."""
    logs: dict[str, Tensor] = field(default_factory=dict)
    """Named figures for the metrics, each [runs]."""


class QuerySession(Protocol):
    """A query policy during one batch of episodes."""

    def ask(self, belief: Belief, luck: Tensor) -> Tensor:
        """[runs, episodes] bool; `luck` [runs, episodes] is uniform in (0, 1), for policies that sample.

        Called once a step, in order.
        """


class QueryPolicy(Protocol):
    """Decides at each step whether to ask. A leading `runs` axis is an ordinary batch axis to it."""

    executes_answer: bool
    """In training, the teacher's action is executed where it was asked (all but DAGGER)."""
    parameters: Parameters
    """What it learns; empty for fixed rules."""
    memory: Parameters
    """What it keeps beside that, saved with a run; empty for most."""

    def begin(self, episodes: int) -> QuerySession:
        """Opens a batch of `episodes` episodes of every run; a policy that remembers nothing returns itself."""

    def loss(self, episodes: Episodes) -> QueryLoss | None:
        """Its own loss; None for fixed rules."""
