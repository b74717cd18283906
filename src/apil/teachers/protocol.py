"""What a teacher is."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from apil.rng import Draws
from apil.types import Answer, Observation, Reference


class Session(Protocol):
    """The teachers during one batch of episodes."""

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        """Answers at step `t` where `asked` [runs, episodes]; elsewhere the answer means nothing and is not read."""


class Teacher(Protocol):
    """One or several teachers behind one door: who answers is up to them."""

    @property
    def members(self) -> tuple[str, ...]:
        """A name for each of the K identities."""

    def begin(self, draws: Draws, episodes: int, horizon: int) -> Session:
        """Opens a batch of `episodes` episodes for every run of `draws`."""
