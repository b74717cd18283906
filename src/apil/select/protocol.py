"""What a selector is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from apil.nn import Parameters
from apil.rng import Draws, Streams
from apil.types import ActionBox, Answer, Episodes, Observation

NOBODY = -1
"""No teacher in particular: the one that the teachers send."""


@dataclass(frozen=True)
class SelectSetup:
    """What a selector is built from; it serves all runs of `streams`."""

    streams: Streams
    teachers: int
    """K"""
    costs: Tensor
    """[runs, K] float: what an answer of each teacher costs."""
    switch_cost: Tensor
    """[runs] float: what it costs to ask another than the one who answered last in an episode."""
    features: int
    """F"""
    actions: int
    horizon: int
    box: ActionBox | None = None
    """The bounds of continuous actions; None where actions are discrete."""


class SelectSession(Protocol):
    """A selector during one batch of episodes.

    What it chooses depends on what the selector remembered when the batch began, on its draws, on what is seen and on
    what was answered before in the same batch: a resumed run, which has some answers on file, finds the same teachers.
    """

    def choose(self, seen: Observation, present: Tensor, put: Tensor, t: int) -> Tensor:
        """[runs, episodes] long: whom to ask at step `t` where `put` [runs, episodes]; elsewhere it is not read.

        `present` [runs, episodes, K] bool is who is there. `NOBODY` leaves the choice to the teachers; one who is not
        there does not answer.
        """

    def hear(self, answer: Answer, answered: Tensor) -> None:
        """The outcome of the questions; `answer` is meaningful only where `answered` [runs, episodes] bool."""


class Selector(Protocol):
    """Chooses whom to ask. A leading `runs` axis is an ordinary batch axis to it.

    Several sessions of one selector may be open at once: what belongs to a batch of episodes is kept in its session.
    """

    @property
    def memory(self) -> Parameters:
        """What it keeps, each [runs, ...], saved with a run; empty for fixed rules."""

    def begin(self, draws: Draws, episodes: int, horizon: int) -> SelectSession:
        """Opens a batch of `episodes` episodes for every run of `draws`."""

    def observe(self, episodes: Episodes) -> None:
        """Takes in a batch of training episodes. The only place where memory changes."""
