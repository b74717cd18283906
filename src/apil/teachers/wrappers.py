"""Teachers that lie: about the distance, or about who they are. Each wraps any other teacher."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.rng import Draws
from apil.teachers.committee import Committee
from apil.teachers.protocol import Session, Teacher, costs_of, may_miss_distances, require_teacher, told_end
from apil.types import Answer, Observation, Reference


def _share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ApilError(f"{name} is {value:g}: give a probability from 0 to 1.")


def committee_behind(teacher: Teacher) -> Committee | None:
    """The simulated committee whose actions and names reach the learner as they are; None where that is not known."""
    while isinstance(teacher, NoisyDistance):
        teacher = teacher.teacher
    return teacher if isinstance(teacher, Committee) else None


@dataclass(frozen=True)
class NoisyDistance:
    """Tells max(0, d * max(0, 1 + noise * N(0, 1)) + bias), rounded to multiples of `quantum`, or no distance at all.

    Every distance has noise of its own, the final one included. The order is noise, bias, rounding. Actions and
    identities are those of the teacher inside, to the bit.
    """

    teacher: Teacher
    noise: float = 0.0
    """Standard deviation as a fraction of the distance."""
    bias: float = 0.0
    """Added to every distance, in its unit; what falls below 0 is 0."""
    quantum: float = 0.0
    """Distances are rounded to the nearest multiple of this; 0 for no rounding."""
    missing: float = 0.0
    """The probability that a distance is not told."""

    def __post_init__(self) -> None:
        require_teacher(self.teacher)
        for name in ("noise", "quantum"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ApilError(f"{name} is {getattr(self, name):g}: give a number from 0 up.")
        if not math.isfinite(self.bias):
            raise ApilError(f"bias is {self.bias:g}: give a distance, above or below 0.")
        _share("missing", self.missing)

    @property
    def members(self) -> tuple[str, ...]:
        """Those of the teacher inside."""
        return self.teacher.members

    @property
    def costs(self) -> tuple[float, ...]:
        """Those of the teacher inside."""
        return costs_of(self.teacher)

    def begin(self, draws: Draws, episodes: int, horizon: int) -> NoisyDistanceSession:
        """Draws the errors of the whole batch after the draws of the teacher inside."""
        inner = self.teacher.begin(draws, episodes, horizon)
        factor = (1.0 + self.noise * draws.normal(horizon + 1, episodes)).clamp_min(0.0)
        gone = draws.uniform(horizon + 1, episodes) < self.missing
        return NoisyDistanceSession(self, inner, factor, gone)


@dataclass(frozen=True)
class NoisyDistanceSession:
    """A teacher that lies about the distance, during one batch of episodes."""

    rule: NoisyDistance
    inner: Session
    factor: Tensor
    """[runs, T + 1, episodes] float: what distances are multiplied with; the last is for the final one."""
    gone: Tensor
    """[runs, T + 1, episodes] bool: the distance is not told."""

    @property
    def missing_distances(self) -> bool:
        """Only if some can be missing."""
        return self.rule.missing > 0 or may_miss_distances(self.inner)

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        """The answer of the teacher inside with another distance."""
        answer = self.inner.answer(observation, reference, asked, t)
        return replace(answer, distance=self._told(answer.distance, t))

    def final(self, distance: Tensor) -> Tensor:
        """The final distance has its own error."""
        return self._told(told_end(self.inner, distance), -1)

    def _told(self, distance: Tensor, t: int) -> Tensor:
        told = (distance * self.factor[:, t] + self.rule.bias).clamp_min(0.0)
        # An infinite distance times 0 is still no way to the goal.
        told = torch.where(distance.isinf(), distance, told)
        if self.rule.quantum > 0:
            told = torch.where(told.isinf(), told, (told / self.rule.quantum).round() * self.rule.quantum)
        return torch.where(self.gone[:, t], torch.nan, told)


@dataclass(frozen=True)
class NoisyIdentity:
    """Tells a wrong identity in part of the answers: with probability `rate` one of the others, each equally likely.

    The action and the distance are those of whoever answered.
    """

    teacher: Teacher
    rate: float
    """The probability that the identity told is wrong; no effect on a single teacher."""

    def __post_init__(self) -> None:
        require_teacher(self.teacher)
        _share("rate", self.rate)

    @property
    def members(self) -> tuple[str, ...]:
        """Those of the teacher inside."""
        return self.teacher.members

    @property
    def costs(self) -> tuple[float, ...]:
        """Those of the teacher inside; an answer is billed to the identity that was told."""
        return costs_of(self.teacher)

    def begin(self, draws: Draws, episodes: int, horizon: int) -> NoisyIdentitySession:
        """Draws the mistakes of the whole batch after the draws of the teacher inside."""
        inner = self.teacher.begin(draws, episodes, horizon)
        others = len(self.members) - 1
        wrong = draws.uniform(horizon, episodes) < self.rate
        jump = 1 + (draws.uniform(horizon, episodes) * others).long()
        return NoisyIdentitySession(inner, torch.where(wrong, jump, 0), len(self.members))


@dataclass(frozen=True)
class NoisyIdentitySession:
    """A teacher that is mistaken for another, during one batch of episodes."""

    inner: Session
    jump: Tensor
    """[runs, T, episodes] long, 0 to K - 1: how far round the circle of members the identity told is; 0 is right."""
    teachers: int

    @property
    def missing_distances(self) -> bool:
        """As the teacher inside."""
        return may_miss_distances(self.inner)

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        """The answer of the teacher inside under another name."""
        answer = self.inner.answer(observation, reference, asked, t)
        return replace(answer, identity=(answer.identity + self.jump[:, t]) % self.teachers)

    def final(self, distance: Tensor) -> Tensor:
        """As the teacher inside."""
        return told_end(self.inner, distance)


@dataclass(frozen=True)
class Anonymous:
    """Nobody tells who answered: all members share one identity."""

    teacher: Teacher
    name: str = "someone"
    """Of the shared identity."""

    def __post_init__(self) -> None:
        require_teacher(self.teacher)

    @property
    def members(self) -> tuple[str, ...]:
        """One."""
        return (self.name,)

    @property
    def costs(self) -> tuple[float, ...]:
        """The mean of the members' costs by their weights: who cannot be told apart cannot be billed apart."""
        costs = costs_of(self.teacher)
        weights = getattr(self.teacher, "weights", (1 / len(costs),) * len(costs))
        return (sum(cost * weight for cost, weight in zip(costs, weights, strict=True)),)

    def begin(self, draws: Draws, episodes: int, horizon: int) -> AnonymousSession:
        """Draws nothing of its own."""
        return AnonymousSession(self.teacher.begin(draws, episodes, horizon))


@dataclass(frozen=True)
class AnonymousSession:
    """Teachers without names, during one batch of episodes."""

    inner: Session

    @property
    def missing_distances(self) -> bool:
        """As the teacher inside."""
        return may_miss_distances(self.inner)

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        """The answer of the teacher inside, by identity 0."""
        answer = self.inner.answer(observation, reference, asked, t)
        return replace(answer, identity=torch.zeros_like(answer.identity))

    def final(self, distance: Tensor) -> Tensor:
        """As the teacher inside."""
        return told_end(self.inner, distance)
