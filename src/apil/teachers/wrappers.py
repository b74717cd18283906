"""Teachers that report wrong distances or identities. Each wraps any other teacher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, cast

import torch
from annotated_types import Ge, Le
from pydantic import PlainValidator
from torch import Tensor

from apil.rng import Draws
from apil.settings.record import Distance, Says, record
from apil.teachers.committee import Committee
from apil.teachers.protocol import (
    SelectableSession,
    Session,
    Teacher,
    answers_batches,
    costs_of,
    is_selectable,
    may_miss_distances,
    reported_end,
    require_teacher,
)
from apil.types import Answer, Observation, Reference

Inside = Annotated[Teacher, PlainValidator(require_teacher)]
Probability = Annotated[float, Ge(0), Le(1), Says("give a probability from 0 to 1")]


def committee_behind(teacher: Teacher) -> Committee | None:
    """The simulated committee whose actions and names reach the learner as they are; None where that is not known."""
    while isinstance(teacher, NoisyDistance):
        teacher = teacher.teacher
    return teacher if isinstance(teacher, Committee) else None


@dataclass(frozen=True)
class LyingSession:
    """A teacher whose answers are changed, during one batch of episodes."""

    inner: Session
    change: Callable[[Answer, int], Answer]
    """(answer, t) -> the answer that is given instead."""
    change_end: Callable[[Tensor], Tensor] = lambda distance: distance
    """The same for the final distances [runs, episodes]."""
    hides_distances: bool = False

    @property
    def missing_distances(self) -> bool:
        """Where this or the teacher inside hides some."""
        return self.hides_distances or may_miss_distances(self.inner)

    @property
    def batched(self) -> bool:
        """As the teacher inside."""
        return answers_batches(self.inner)

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        return self.change(self.inner.answer(observation, reference, asked, t), t)

    def present(self, t: int) -> Tensor:
        """As the teacher inside."""
        return cast(SelectableSession, self.inner).present(t)

    def answer_by(self, observation: Observation, reference: Reference, asked: Tensor, t: int, whom: Tensor) -> Answer:
        inner = cast(SelectableSession, self.inner)
        return self.change(inner.answer_by(observation, reference, asked, t, whom), t)

    def final(self, distance: Tensor) -> Tensor:
        return self.change_end(reported_end(self.inner, distance))


@record
class SameMembers:
    """Abstract: a teacher whose identities are those of the teacher inside."""

    teacher: Inside

    @property
    def members(self) -> tuple[str, ...]:
        return self.teacher.members

    @property
    def costs(self) -> tuple[float, ...]:
        return costs_of(self.teacher)

    @property
    def selectable(self) -> bool:
        return is_selectable(self.teacher)


@record
class NoisyDistance(SameMembers):
    """Reports max(0, d * max(0, 1 + noise * N(0, 1)) + bias), rounded to multiples of `quantum`, or no distance at all.

    Every distance has noise of its own, the final one included. Actions and identities stay as they are, to the bit.
    """

    noise: Distance = 0.0
    """Standard deviation as a fraction of the distance."""
    bias: Annotated[float, Says("give a distance, above or below 0")] = 0.0
    """Added to every distance, in its unit; what falls below 0 is 0."""
    quantum: Distance = 0.0
    """Distances are rounded to the nearest multiple of this; 0 for no rounding."""
    missing: Probability = 0.0
    """The probability that a distance is not reported."""

    def begin(self, draws: Draws, episodes: int, horizon: int) -> LyingSession:
        """Draws the errors of the whole batch after the draws of the teacher inside."""
        inner = self.teacher.begin(draws, episodes, horizon)
        # [runs, T + 1, episodes]: the last is for the final distance.
        factor = (1.0 + self.noise * draws.normal(horizon + 1, episodes)).clamp_min(0.0)
        gone = draws.uniform(horizon + 1, episodes) < self.missing

        def reported(distance: Tensor, t: int) -> Tensor:
            noisy = (distance * factor[:, t] + self.bias).clamp_min(0.0)
            if self.quantum > 0:
                noisy = (noisy / self.quantum).round() * self.quantum
            # An infinite distance times 0 is still no way to the goal.
            return torch.where(gone[:, t], torch.nan, torch.where(distance.isinf(), distance, noisy))

        change = lambda said, t: replace(said, distance=reported(said.distance, t))  # noqa: E731
        return LyingSession(inner, change, lambda distance: reported(distance, -1), self.missing > 0)


@record
class NoisyIdentity(SameMembers):
    """Reports a wrong identity with probability `rate`: one of the other members, each equally likely.

    Actions and distances stay as they are. An answer is billed to the reported identity.
    """

    rate: Probability
    """The probability that the reported identity is wrong; no effect on a single teacher."""

    def begin(self, draws: Draws, episodes: int, horizon: int) -> LyingSession:
        """Draws the mistakes of the whole batch after the draws of the teacher inside."""
        inner, teachers = self.teacher.begin(draws, episodes, horizon), len(self.members)
        wrong = draws.uniform(horizon, episodes) < self.rate
        # [runs, T, episodes]: how far round the circle of members the reported identity is; 0 is right.
        jump = torch.where(wrong, 1 + (draws.uniform(horizon, episodes) * (teachers - 1)).long(), 0)
        return LyingSession(inner, lambda said, t: replace(said, identity=(said.identity + jump[:, t]) % teachers))


@record
class Anonymous:
    """Hides who answered: all members share one identity."""

    teacher: Inside
    name: str = "someone"
    """Of the shared identity."""

    @property
    def members(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def costs(self) -> tuple[float, ...]:
        """The mean of the members' costs by their weights: they cannot be billed apart."""
        costs = costs_of(self.teacher)
        weights = getattr(self.teacher, "weights", (1 / len(costs),) * len(costs))
        return (sum(cost * weight for cost, weight in zip(costs, weights, strict=True)),)

    def begin(self, draws: Draws, episodes: int, horizon: int) -> LyingSession:
        inner = self.teacher.begin(draws, episodes, horizon)
        return LyingSession(inner, lambda answer, t: replace(answer, identity=torch.zeros_like(answer.identity)))
