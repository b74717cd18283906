"""The protocol of teachers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from torch import Tensor

from apil.errors import ApilError
from apil.rng import Draws
from apil.types import Answer, Observation, Reference


class Session(Protocol):
    """The teachers during one batch of episodes.

    A session may also have `final(distance)`, the final distances [runs, episodes] as the teachers report them, from
    the true ones (success is always measured by the truth); `missing_distances = True`: distances may be NaN; and
    `batched = True`: it answers any number of questions in one call, at almost no cost. Any other session
    is asked one question per call, and its answer is saved before the next question.
    """

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        """Answers at step `t` where `asked` [runs, episodes]; elsewhere the answer is ignored.

        An answer depends on the draws, on `t` and on what is seen, never on which other questions were asked: a
        resumed run does not ask again for the answers that it has on file.
        """


class SelectableSession(Session, Protocol):
    """A session in which the caller may choose who answers."""

    def present(self, t: int) -> Tensor:
        """[runs, episodes, K] bool: who is available at step `t`."""

    def answer_by(self, observation: Observation, reference: Reference, asked: Tensor, t: int, whom: Tensor) -> Answer:
        """The answers by `whom` [runs, episodes] long; where it is below 0, by whoever `answer` would choose. Members
        who are not available do not answer."""


class Teacher(Protocol):
    """One or several teachers behind one interface. They decide who answers.

    A teacher may also have `costs`, what an answer of each member costs, `weights`, the chance of each member, and
    `selectable = True`: its sessions are `SelectableSession`s.
    """

    @property
    def members(self) -> tuple[str, ...]:
        """A name for each of the K identities."""

    def begin(self, draws: Draws, episodes: int, horizon: int) -> Session:
        """Opens a batch of `episodes` episodes for every run of `draws`; `draws.time` is the training time."""


@dataclass(frozen=True)
class Kept:
    """An answer that a desk has kept, with what is needed to learn from it."""

    question: str
    kind: Literal["live", "review", "correction"]
    """A walk waits for it; nobody waits for it; it takes the place of an earlier answer."""
    iteration: int
    episode: int
    step: int
    version: int
    features: Tensor
    """[F] float"""
    valid: Tensor
    """[A] bool"""
    identity: int
    action: Tensor
    """[] long, or [n] float"""
    distance: float
    """NaN where it is not known."""


class Desk(Protocol):
    """Where the questions of a run wait for people. It outlives the training: what was answered is kept."""

    frames: int
    """How many of the last states its people are shown."""
    version: int
    """The number of gradient steps before what is asked now; the trainer keeps it up to date."""
    first_walk: int
    """The least number that no walk had before; known when it is open."""
    reviews: int
    """Questions that nobody waits for and that are still open; known when it is open."""

    def seat(self, members: Sequence[str]) -> None:
        """The members of the team that the people are in, in the order of their identities."""

    def open(self, folder: Path | None, task: Any) -> None:
        """Opens it for a training on `task` into a run folder, or without one."""

    def counted(self) -> list[Kept]:
        """All answers that count so far, a correction in place of what it corrects."""

    def listen(self, take: Callable[[Kept | None], None], grant: Callable[[int], int] | None = None) -> None:
        """From now on answers that no walk waits for go to `take`, in another thread; None for one that will not come.

        `grant` says how many of so many reviews may be opened.
        """

    def final(self, iteration: int, distance: Tensor) -> Tensor:
        """The final distances as people report them, from those of the task; both [runs, episodes]."""

    def interrupt(self) -> None:
        """Nobody waits any longer: open questions stay without an answer."""

    def close(self) -> None:
        """Training is over, for now."""


def desk_of(teacher: Any) -> Desk | None:
    """Where the questions of a teacher wait for people; None where they do not."""
    return cast("Desk | None", getattr(teacher, "desk", None))


class MemberError(ApilError):
    """Something is wrong with one member of several; the message names the member and follows the teacher's name."""


def require_teacher(teacher: Any) -> Teacher:
    """Returns the teacher; refuses anything else, such as a script that is not in a team yet."""
    if not callable(getattr(teacher, "begin", None)) or not getattr(teacher, "members", None):
        raise ApilError(
            f"{str(teacher)[:60]!r} is no teacher: put scripts and policies into a team, for example "
            "apil.teachers.Team({'anna': script})."
        )
    return cast(Teacher, teacher)


def reported_end(session: Session, distance: Tensor) -> Tensor:
    """The final distances [runs, episodes] as the teachers report them."""
    final = getattr(session, "final", None)
    return distance if final is None else final(distance)


def may_miss_distances(session: Session) -> bool:
    """Whether NaN may stand for a distance."""
    return bool(getattr(session, "missing_distances", False))


def answers_batches(part: Any) -> bool:
    """Whether a session, or how a member answers, takes whole batches of questions in one call."""
    return bool(getattr(part, "batched", False))


def is_selectable(teacher: Any) -> bool:
    """Whether the one who asks may choose who answers."""
    return bool(getattr(teacher, "selectable", False))


def costs_of(teacher: Any) -> tuple[float, ...]:
    """What an answer of each member costs; 1 unless the teacher says otherwise."""
    costs = getattr(teacher, "costs", None)
    return (1.0,) * len(teacher.members) if costs is None else tuple(costs)
