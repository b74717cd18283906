"""Whom to ask: selectors and teachers meet here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.learning.group import Group, Groups, take
from apil.select.protocol import NOBODY, Selector, SelectSession
from apil.teachers.protocol import SelectableSession, Session, answers_batches, may_miss_distances, reported_end
from apil.types import Answer, Observation, Reference


@dataclass(frozen=True)
class Addressed:
    """A session at one step, with those who are to answer."""

    inner: SelectableSession
    whom: Tensor
    """[runs, episodes] long"""

    @property
    def batched(self) -> bool:
        return answers_batches(self.inner)

    @property
    def missing_distances(self) -> bool:
        return may_miss_distances(self.inner)

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        return self.inner.answer_by(observation, reference, asked, t, self.whom)

    def final(self, distance: Tensor) -> Tensor:
        return reported_end(self.inner, distance)


@dataclass(frozen=True)
class Choosers:
    """The selectors of a stack during one batch of episodes."""

    selections: Groups[SelectSession]
    teachers: Groups[Session]

    @staticmethod
    def of(
        selectors: Sequence[Group[Selector]],
        teachers: Groups[Session],
        stream: str,
        iteration: int,
        episodes: int,
        horizon: int,
    ) -> Choosers | None:
        """None where there are no selectors."""
        if not selectors:
            return None
        opened = [(g, g.part.begin(g.streams.draws(stream, iteration), episodes, horizon)) for g in selectors]
        return Choosers(Groups(Group(g.runs, g.streams, session, g.name) for g, session in opened), teachers)

    def addressed(self, seen: Observation, put: Tensor, t: int) -> Groups[Session]:
        """The teachers at step `t`, each with whom the selectors want to ask where `put` [runs, episodes]."""
        there = self.teachers.join([cast(SelectableSession, group.part).present(t) for group in self.teachers])
        whom = self.selections.join([_choice(group, seen, there, put, t) for group in self.selections])
        return Groups(
            Group(g.runs, g.streams, Addressed(cast(SelectableSession, g.part), take(whom, g.runs)), g.name)
            for g in self.teachers
        )

    def hear(self, answer: Answer, put: Tensor) -> None:
        """Tells the selectors what came of the questions `put` [runs, episodes]."""
        answered = put if answer.given is None else put & answer.given
        for group in self.selections:
            group.part.hear(take(answer, group.runs), answered[group.runs])


def _choice(group: Group[SelectSession], seen: Observation, there: Tensor, put: Tensor, t: int) -> Tensor:
    """What one selector chooses for its own runs; anything else than teachers is refused."""
    own, teachers = put[group.runs], there.shape[-1]
    try:
        found = group.part.choose(take(seen, group.runs), there[group.runs], own, t)
    except ApilError as error:
        raise ApilError(f"The selector '{group.name}': {error}") from error
    good = isinstance(found, Tensor) and found.dtype == torch.long and found.shape == own.shape
    if good and bool(((found >= NOBODY) & (found < teachers)).all()):
        return found
    shown = f"a tensor {list(found.shape)} of type {found.dtype}" if isinstance(found, Tensor) else f"{found!r:.60}"
    raise ApilError(
        f"The selector '{group.name}' returned {shown} where teachers are due: expected a tensor {list(own.shape)} of "
        f"type torch.long with numbers from {NOBODY} to {teachers - 1}; apil.check_selector says more."
    )
