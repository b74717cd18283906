"""What a teacher is."""

from __future__ import annotations

from typing import Any, Protocol, cast

from torch import Tensor

from apil.errors import ApilError
from apil.rng import Draws
from apil.types import Answer, Observation, Reference


class Session(Protocol):
    """The teachers during one batch of episodes.

    A session may also have `final(distance)`, the final distances [runs, episodes] as the teachers tell them, from the
    true ones (success is always measured by the truth); `missing_distances = True`: distances may be NaN; and
    `batched = True`: it answers any number of questions in one call, in no time worth mentioning. One that does not say
    so is asked one question in each call, and its answer is on file before the next is put.
    """

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        """Answers at step `t` where `asked` [runs, episodes]; elsewhere the answer means nothing and is not read.

        An answer depends on the draws, on `t` and on what is seen, never on which other questions were asked: a
        resumed run does not ask again for the answers that it has on file.
        """


class Teacher(Protocol):
    """One or several teachers behind one door: who answers is up to them.

    A teacher may also have `costs`, what an answer of each member costs, and `weights`, the chance of each member.
    """

    @property
    def members(self) -> tuple[str, ...]:
        """A name for each of the K identities."""

    def begin(self, draws: Draws, episodes: int, horizon: int) -> Session:
        """Opens a batch of `episodes` episodes for every run of `draws`; `draws.time` tells how far training is."""


class MemberError(ApilError):
    """Something is wrong with one member of several; the message names the member and follows the teacher's name."""


def require_teacher(teacher: Any) -> Teacher:
    """The teacher itself; refuses what is none, such as a script that is not in a team yet."""
    if not callable(getattr(teacher, "begin", None)) or not getattr(teacher, "members", None):
        raise ApilError(
            f"{str(teacher)[:60]!r} is no teacher: put scripts and policies into a team, for example "
            "apil.teachers.Team({'anna': script})."
        )
    return cast(Teacher, teacher)


def told_end(session: Session, distance: Tensor) -> Tensor:
    """The final distances [runs, episodes] as the teachers tell them."""
    final = getattr(session, "final", None)
    return distance if final is None else final(distance)


def may_miss_distances(session: Session) -> bool:
    """Whether NaN may stand for a distance."""
    return bool(getattr(session, "missing_distances", False))


def answers_batches(part: Any) -> bool:
    """Whether a session, or how a member answers, takes whole batches of questions in one call."""
    return bool(getattr(part, "batched", False))


def costs_of(teacher: Any) -> tuple[float, ...]:
    """What an answer of each member costs; 1 unless the teacher says otherwise."""
    costs = getattr(teacher, "costs", None)
    return (1.0,) * len(teacher.members) if costs is None else tuple(costs)
