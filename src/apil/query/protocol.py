"""The protocol of query policies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeGuard, runtime_checkable

import torch
from torch import Tensor

from apil.crew import ALONE, Crew
from apil.nn import Parameters
from apil.rng import Streams
from apil.types import ActionBox, Answer, Belief, Episodes


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
    budgets: Tensor | None = None
    """[runs] float: the share of steps that a run may ask on, instead of its threshold; None for no budget."""
    features: int = 0
    """F, the length of `Belief.features`; 0 where beliefs have none."""
    crew: Crew = ALONE
    """The processes that train the run. Each computes the loss of the whole batch; networks share the work."""


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

        Called once a step, in order, for all episodes. Decisions for finished ones (`Belief.live`) are ignored.
        """


@runtime_checkable
class Listener(Protocol):
    """A session that also receives the answers: policies that hand back control depending on the answer need them."""

    def hear(self, belief: Belief, answer: Answer, answered: Tensor) -> None:
        """Called at the end of every step; `answer` is meaningful only where `answered` [runs, episodes] bool.

        `belief.taken` is what was executed.
        """


@runtime_checkable
class Noting(Protocol):
    """A session that keeps numbers of each step for `QueryPolicy.observe`; they become `Episodes.notes`."""

    @property
    def notes(self) -> Tensor:
        """[runs, episodes, N]: of the step that was asked about last, the score first; N = 0 for nothing."""


def listens(session: object) -> TypeGuard[Listener]:
    """`isinstance(session, Listener)`, which looks all members up: too slow for every batch of episodes."""
    return hasattr(type(session), "hear")


def notes_down(session: object) -> TypeGuard[Noting]:
    """`isinstance(session, Noting)`, in the same way."""
    return hasattr(type(session), "notes") or hasattr(session, "notes")


class QueryPolicy(Protocol):
    """Decides at each step whether to ask. A leading `runs` axis is an ordinary batch axis to it.

    It is made and called on the device of the run: what it makes is there, and so is what it is given.

    Several sessions of one policy may be open at once: what belongs to a batch of episodes is kept in its session.
    """

    executes_answer: bool
    """In training, the teacher's action is executed where it answered (all but DAgger)."""
    parameters: Parameters
    """What it learns; empty for fixed rules."""
    memory: Parameters
    """What it keeps beside that, saved with a run; empty for most."""

    def begin(self, episodes: int, training: bool = True) -> QuerySession:
        """Opens a batch of `episodes` episodes of every run; a policy that keeps nothing of them returns itself.

        `training` is false where an agent is measured, or acts after training.
        """

    def observe(self, episodes: Episodes) -> None:
        """Processes a batch of training episodes. The only place where memory changes.

        Called once after each batch of training episodes, before `loss`, if there are parameters or memory.
        """

    def loss(self, episodes: Episodes) -> QueryLoss | None:
        """Its own loss; None for fixed rules. It changes nothing and may be repeated, on any episodes."""

    def review(self, episodes: Episodes, luck: Tensor) -> Tensor:
        """[runs, episodes, T] bool: the live steps to ask about, of finished episodes that were walked alone.

        `episodes.unanswered` is where the policy fired. `luck` [runs, episodes, T] is uniform in (0, 1).
        """


def over_steps(values: Tensor, steps: Tensor) -> Tensor:
    """[runs]: `values` [runs, episodes, T] summed over the `steps` that count, averaged over episodes."""
    return torch.where(steps, values, 0.0).sum((1, 2)) / steps.shape[1]
