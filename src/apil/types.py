"""The records that travel between the rooms.

Shapes: every tensor leads with `runs` (the stack, 1 for a run alone) and `episodes` (the batch of a run).
`A` actions, `K` teachers, `T` time steps, `F` observed features, `S` numbers in a state vector (F = S where the
observation is the state).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Observation:
    """What the agent sees of its state."""

    features: Tensor
    """[runs, episodes, F] float: the state itself where it is a vector, else what the model's state encoder reads."""
    valid: Tensor
    """[runs, episodes, A] bool: actions that can be taken here; at least one."""


@dataclass(frozen=True)
class Picture:
    """A state as a board of cells, for people."""

    cells: tuple[str, ...]
    """One string a row, one character a cell: '.' free, '#' wall, 'G' goal, 'A' agent."""


@dataclass(frozen=True)
class Reference:
    """What a simulated teacher may know of a state: the task's oracle."""

    actions: Tensor
    """[runs, episodes, A] long: the ordered reference actions; positions from `count` on mean nothing."""
    count: Tensor
    """[runs, episodes] long, 1 to A: how many reference actions there are."""
    distance: Tensor
    """[runs, episodes] float: d(s), the distance to the goal set."""


@dataclass(frozen=True)
class Answer:
    """A teacher's answer to a query. Nothing else of the teacher is visible to the learner."""

    action: Tensor
    """[runs, episodes] long: the reference action."""
    distance: Tensor
    """[runs, episodes] float: d(s)."""
    identity: Tensor
    """[runs, episodes] long, 0 to K - 1: who answered."""
    given: Tensor | None = None
    """[runs, episodes] bool: there is an answer; None where every question was answered."""


@dataclass(frozen=True)
class Uncertainty:
    """The decomposition; in bits for discrete actions, as variance for continuous ones.

    behavioral = intrinsic + extrinsic and total = behavioral + model, up to rounding.
    """

    total: Tensor
    behavioral: Tensor
    intrinsic: Tensor
    """A teacher varies."""
    extrinsic: Tensor
    """Teachers differ."""
    model: Tensor
    """Too little was seen."""


@dataclass(frozen=True)
class Belief:
    """What the agent believes in a state before it acts."""

    state: Tensor
    """[runs, episodes, S]: the state vector, as the model encodes what it has seen so far."""
    mean: Tensor
    """[runs, episodes, A]: the mean policy, the expectation over identities and models."""
    identity: Tensor
    """[runs, episodes, K]: the identity distribution."""
    uncertainty: Uncertainty
    """Each [runs, episodes]."""
    remaining: int
    """T - t, the number of steps left."""
    of_model: Tensor | None = None
    """[runs, episodes, N2, A]: the mean policy of each of the N2 models, an ensemble; None where a model tells none."""


@dataclass(frozen=True)
class Episodes:
    """A batch of finished episodes of every run: what Alg 1 leaves to learn from.

    `action`, `distance` and `identity` of the teacher are known only where `asked`; elsewhere they are 0, NaN and 0.
    """

    features: Tensor
    """[runs, episodes, T, F]: what was observed."""
    state: Tensor
    """[runs, episodes, T, S]: the state vectors at the time of acting."""
    valid_actions: Tensor
    """[runs, episodes, T, A] bool"""
    mean: Tensor
    """[runs, episodes, T, A]: the mean policy at the time of acting."""
    identity_belief: Tensor
    """[runs, episodes, T, K]"""
    asked: Tensor
    """[runs, episodes, T] bool: asked and answered; false where not `live`."""
    unanswered: Tensor
    """[runs, episodes, T] bool: the query policy fired, but there was no answer, or the agent was measured alone."""
    action: Tensor
    """[runs, episodes, T] long: the teacher's."""
    distance: Tensor
    """[runs, episodes, T] float: the teacher's, NaN where not asked."""
    identity: Tensor
    """[runs, episodes, T] long: who answered."""
    taken: Tensor
    """[runs, episodes, T] long: the action that was executed."""
    live: Tensor
    """[runs, episodes, T] bool: the episode was still going on."""
    final_distance: Tensor
    """[runs, episodes] float: d_T, which the teacher tells at the end."""
    success: Tensor
    """[runs, episodes] bool"""
    uncertainty: Uncertainty
    """Each [runs, episodes, T]."""
