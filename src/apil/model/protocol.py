"""The protocol of models of the teachers."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from apil.nn import Parameters
from apil.rng import Draws
from apil.types import Belief, Lessons, Observation


class ActingModel(Protocol):
    """The models drawn for one batch of episodes."""

    def belief(self, observation: Observation, t: int, horizon: int) -> Belief:
        """The belief in the states of step `t`; called once a step, in order."""


class Model(Protocol):
    """A distribution over policies, learned from answers: identity distribution, personae, conditioned policy.

    It is made and called on the device of the run: what it makes is there, and so is what it is given, but for
    `observe`, which is given records of the host.
    """

    policy: Parameters
    """theta and phi: the state encoder, the conditioned policy and the personae."""
    identity: Parameters
    """psi: the identity distribution."""
    memory: Parameters
    """What it keeps beside that, each [runs, ...], saved with a run: the scale of what it has seen. Empty for most."""
    teachers: int
    """K"""
    recurrent: bool
    """States remember the steps before; query networks then do too."""
    state_size: int
    """S, the length of the state vector that identity and query networks read."""

    def begin(self, draws: Draws, sample_draws: Draws, episodes: int, horizon: int) -> ActingModel:
        """Draws N2 models and, from a stream of their own, the identity samples for one batch of episodes."""

    def policies(self, observation: Observation) -> Tensor:
        """[runs, n, K, A]: pi(a | s, h(k)) of every teacher without dropout, in n first states [runs, n, ...]."""

    def observe(self, lessons: Lessons) -> None:
        """Called once with each batch of training episodes, before it is learned from: the only place where `memory`
        changes."""

    def losses(self, lessons: Lessons, draws: Draws, part: slice | None = None) -> tuple[Tensor, Tensor]:
        """Policy loss (theta, phi) and identity loss (psi) of each run, both [runs].

        With `part`, the share of these episodes in the losses: those of the parts of a batch add up to its losses.
        Several processes that train one run compute a part each.
        """
