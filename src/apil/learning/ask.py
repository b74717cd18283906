"""Asking the teachers: who answers what, checked, and with room for a log that remembers.

Teachers are other people's code, or people. Whatever they do wrong becomes one named error, or an unanswered question.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.learning.group import Group, take
from apil.teachers.protocol import MemberError, Session, may_miss_distances, told_end
from apil.types import ActionBox, Answer, Observation, Reference

OnError = Literal["stop", "skip"]


class TeacherError(ApilError):
    """A teacher raised, hung, or answered with something that cannot be an answer."""

    def __init__(self, problem: str, run: int, episode: int) -> None:
        super().__init__(problem)
        self.problem, self.run, self.episode = problem, run, episode

    def __reduce__(self) -> tuple[type[TeacherError], tuple[str, int, int]]:
        """Errors travel between processes."""
        return type(self), (self.problem, self.run, self.episode)

    def located(self, iteration: int, t: int, state: str) -> TeacherError:
        """The same error with the place where it happened."""
        where = f"iteration {iteration}, episode {self.episode}, step {t} ({state})"
        remedy = "Mend the teacher, or go on without its answer with --on-teacher-error skip."
        return TeacherError(f"{self.problem} in {where}. {remedy}", self.run, self.episode)


class AnswerLog(Protocol):
    """Remembers answers, so that none is asked for twice."""

    def consult(self, iteration: int, t: int, asked: Tensor, ask: Callable[[Tensor], Answer]) -> Answer:
        """The answers where `asked` [runs, episodes]: known ones from memory, the others by `ask`."""


@dataclass(frozen=True)
class Guard:
    """How teachers are watched."""

    deadline: float | None = None
    """Seconds a teacher has for one batch of answers; no limit if not given."""
    on_error: OnError = "stop"
    """A bad answer stops the run, or leaves the question unanswered."""
    box: ActionBox | None = None
    """The bounds of continuous actions; None where actions are discrete."""

    def answers(
        self, sessions: Sequence[Group[Session]], seen: Observation, reference: Reference, asked: Tensor, t: int
    ) -> Answer:
        """The answers of all teachers; `given` tells where there is one."""
        if len(sessions) == 1:
            return self._one(sessions[0], seen, reference, asked, t)
        answer = _nothing(asked, self.box)
        for group in sessions:
            runs = group.runs
            try:
                own = self._one(group, take(seen, runs), take(reference, runs), asked[runs], t)
            except TeacherError as error:
                error.run = int(torch.arange(len(asked))[runs][error.run])
                raise
            for field in fields(Answer):
                getattr(answer, field.name)[runs] = getattr(own, field.name)
        return answer

    def _one(self, group: Group[Session], seen: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        """One teacher's checked answers."""
        if not asked.any():
            return _nothing(asked, self.box)
        try:
            answer = self._call(lambda: group.part.answer(seen, reference, asked, t))
            if isinstance(answer, Answer) and answer.given is not None and not bool((asked & answer.given).any()):
                return _nothing(asked, self.box)
            _check_form(answer, asked, self.box)
        except Exception as error:
            if self.on_error == "stop":
                run, episode = asked.nonzero()[0].tolist()
                raise TeacherError(f"Teacher '{group.name}' {_what(error)}", run, episode) from error
            return _nothing(asked, self.box)
        given = asked if answer.given is None else asked & answer.given
        unknown = answer.distance.isnan() & may_miss_distances(group.part)
        wrong = given & ~_sound(answer, unknown, seen, self.box, len(group.name.split("+")))
        if wrong.any():
            if self.on_error == "stop":
                run, episode = wrong.nonzero()[0].tolist()
                excused = replace(answer, distance=torch.where(unknown, 0.0, answer.distance))
                raise TeacherError(_complaint(group.name, excused, seen, self.box, run, episode), run, episode)
            given = given & ~wrong
        return Answer(answer.action, answer.distance, answer.identity, given)

    def final(self, sessions: Sequence[Group[Session]], distance: Tensor) -> Tensor:
        """[runs, episodes]: the final distances as the teachers tell them, from the true ones."""
        told = distance.clone()
        for group in sessions:
            own = told_end(group.part, distance[group.runs])
            wrong = ~(own >= 0) & ~(own.isnan() & may_miss_distances(group.part))
            if wrong.any():
                worst = float(own[wrong][0])
                raise ApilError(
                    f"Teacher '{group.name}' told the final distance {worst:g}, which is not a distance: mend the "
                    "teacher, or the distance of the task."
                )
            told[group.runs] = own
        return told

    def _call(self, answer: Callable[[], Answer]) -> Answer:
        """The call itself, given up after the deadline; a teacher that hangs is left behind in its thread."""
        if self.deadline is None:
            return answer()
        outcome: list[Any] = []

        def work() -> None:
            try:
                outcome.append(answer())
            except Exception as error:
                outcome.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(self.deadline)
        if not outcome:
            raise TimeoutError(f"did not answer within {self.deadline:g} s")
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        result: Answer = outcome[0]
        return result


def _check_form(answer: Any, asked: Tensor, box: ActionBox | None) -> None:
    """Refuses what is not an answer at all."""
    if not isinstance(answer, Answer):
        raise TypeError(f"answered with {type(answer).__name__} instead of an Answer")
    for name in ("action", "identity", "distance"):
        part = getattr(answer, name)
        numbers = None if box is None or name != "action" else len(box.low)
        expected = list(asked.shape) if numbers is None else [*asked.shape, numbers]
        if not isinstance(part, Tensor) or list(part.shape) != expected:
            shape = list(part.shape) if isinstance(part, Tensor) else type(part).__name__
            raise TypeError(f"answered with {name} {shape}, expected a tensor {expected}")
        if part.is_floating_point() != (name == "distance" or numbers is not None):
            raise TypeError(f"answered with {name} of type {part.dtype}")


def _what(error: Exception) -> str:
    if isinstance(error, MemberError):
        return str(error)
    if isinstance(error, TimeoutError) and str(error).startswith("did not answer"):
        return str(error)
    return f"raised {type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"


def _nothing(asked: Tensor, box: ActionBox | None) -> Answer:
    long, none = torch.zeros_like(asked, dtype=torch.long), torch.zeros_like(asked, dtype=torch.float)
    action = long if box is None else none.new_zeros(*asked.shape, len(box.low))
    return Answer(action, none, long.clone(), torch.zeros_like(asked))


def _sound(answer: Answer, unknown: Tensor, seen: Observation, box: ActionBox | None, teachers: int) -> Tensor:
    """[runs, episodes] bool: the action is valid here, the distance not negative (or `unknown`), the identity known."""
    if box is not None:
        sound = box.contains(answer.action)
    else:
        action = answer.action.clamp(0, seen.valid.shape[-1] - 1)
        sound = seen.valid.gather(-1, action.unsqueeze(-1)).squeeze(-1) & (action == answer.action)
    sound = sound & ((answer.distance >= 0) | unknown)
    return sound & (answer.identity.clamp(0, teachers - 1) == answer.identity)


def _complaint(name: str, answer: Answer, seen: Observation, box: ActionBox | None, run: int, episode: int) -> str:
    action, identity = answer.action[run, episode].tolist(), int(answer.identity[run, episode])
    distance = float(answer.distance[run, episode])
    members = name.split("+")
    if not 0 <= identity < len(members):
        return f"Teacher '{name}' answered as identity {identity}, but has {len(members)} members,"
    who = f"Teacher '{name}', member {identity} ({members[identity]}),"
    if not distance >= 0:
        return f"{who} told the distance {distance:g}, which is not a distance,"
    if box is not None:
        return f"{who} answered action {action}, but actions lie between {box.low.tolist()} and {box.high.tolist()},"
    valid = seen.valid[run, episode].nonzero().flatten().tolist()
    return f"{who} answered action {action}, but valid actions are {', '.join(map(str, valid))},"
