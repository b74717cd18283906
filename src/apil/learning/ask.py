"""Asking the teachers: who answers what, checked, and with room for a log that remembers.

Teachers are other people's code, or people. Whatever they do wrong becomes one named error, or an unanswered question.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.learning.group import Group, Groups, take
from apil.teachers.protocol import MemberError, Session, may_miss_distances, told_end
from apil.types import ActionBox, Answer, Observation, Reference

OnError = Literal["stop", "skip"]
_FIELDS = tuple(field.name for field in fields(Answer))


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

    def consult(self, iteration: int, t: int, put: Tensor, ask: Callable[[Tensor], Answer]) -> Answer:
        """The answers to the questions `put` [runs, episodes]: known ones from memory, the others by `ask`."""

    def note(self, iteration: int, t: int, put: Tensor, answer: Answer) -> None:
        """Writes an answer down at once; of walks in flight, which are not repeated after a stop."""


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
        self, sessions: Groups[Session], seen: Observation, reference: Reference, put: Tensor, t: int
    ) -> Answer:
        """The answers of all teachers to the questions `put` [runs, episodes]; `given` is true where there is one."""
        if not put.any():
            return no_answer(put, self.box)
        found = [self._answer(group, seen, reference, put, t) for group in sessions]
        answer = Answer(*(sessions.join([getattr(own, name) for own in found]) for name in _FIELDS))
        assert answer.given is not None
        wrong = answer.given & ~self._sound(answer, sessions, seen)
        if not wrong.any():
            return answer
        if self.on_error == "stop":
            raise self._complaint(answer, sessions, seen, wrong)
        return replace(answer, given=answer.given & ~wrong)

    def _answer(self, group: Group[Session], seen: Observation, reference: Reference, put: Tensor, t: int) -> Answer:
        """What one teacher answers; `given` is set."""
        runs = group.runs
        own = put[runs]
        if not own.any():
            return no_answer(own, self.box)
        try:
            answer = self._call(lambda: group.part.answer(take(seen, runs), take(reference, runs), own, t))
            if isinstance(answer, Answer) and answer.given is not None and not bool((own & answer.given).any()):
                return no_answer(own, self.box)
            _check_form(answer, own, self.box)
        except Exception as error:
            if self.on_error == "skip":
                return no_answer(own, self.box)
            run, episode = _first(group, own, len(put))
            raise TeacherError(f"Teacher '{group.name}' {_what(error)}", run, episode) from error
        return replace(answer, given=own if answer.given is None else own & answer.given)

    def _sound(self, answer: Answer, sessions: Groups[Session], seen: Observation) -> Tensor:
        """[runs, episodes] bool: the action is valid here, the distance not negative (or missing where that is allowed)
        and the identity known."""
        if self.box is not None:
            sound = self.box.contains(answer.action)
        else:
            action = answer.action.clamp(0, seen.valid.shape[-1] - 1)
            sound = seen.valid.gather(-1, action.unsqueeze(-1)).squeeze(-1) & (action == answer.action)
        far = answer.distance >= 0
        for group in sessions:
            if may_miss_distances(group.part):
                far[group.runs] |= answer.distance[group.runs].isnan()
        teachers = len(sessions[0].name.split("+"))  # all teachers of a stack have as many members
        return sound & far & (answer.identity.clamp(0, teachers - 1) == answer.identity)

    def _complaint(self, answer: Answer, sessions: Groups[Session], seen: Observation, wrong: Tensor) -> TeacherError:
        """What is wrong with the first wrong answer."""
        group = next(group for group in sessions if wrong[group.runs].any())
        run, episode = _first(group, wrong[group.runs], len(wrong))
        action, identity = answer.action[run, episode].tolist(), int(answer.identity[run, episode])
        distance = float(answer.distance[run, episode])
        members = group.name.split("+")
        if not 0 <= identity < len(members):
            told = f"Teacher '{group.name}' answered as identity {identity}, but has {len(members)} members,"
            return TeacherError(told, run, episode)
        told = f"Teacher '{group.name}', member {identity} ({members[identity]}),"
        if not distance >= 0 and not (math.isnan(distance) and may_miss_distances(group.part)):
            told += f" told the distance {distance:g}, which is not a distance,"
        elif self.box is not None:
            low, high = self.box.low.tolist(), self.box.high.tolist()
            told += f" answered action {action}, but actions lie between {low} and {high},"
        else:
            valid = seen.valid[run, episode].nonzero().flatten().tolist()
            told += f" answered action {action}, but valid actions are {', '.join(map(str, valid))},"
        return TeacherError(told, run, episode)

    def final(self, sessions: Groups[Session], distance: Tensor) -> Tensor:
        """[runs, episodes]: the final distances as the teachers tell them, from the true ones."""
        told = sessions.join([told_end(group.part, distance[group.runs]) for group in sessions])
        if bool((told >= 0).all()):
            return told
        for group in sessions:
            own = told[group.runs]
            wrong = ~(own >= 0) & ~(own.isnan() & may_miss_distances(group.part))
            if wrong.any():
                worst = float(own[wrong][0])
                raise ApilError(
                    f"Teacher '{group.name}' told the final distance {worst:g}, which is not a distance: mend the "
                    "teacher, or the distance of the task."
                )
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


def _check_form(answer: Any, put: Tensor, box: ActionBox | None) -> None:
    """Refuses what is not an answer at all."""
    if not isinstance(answer, Answer):
        raise TypeError(f"answered with {type(answer).__name__} instead of an Answer")
    for name in ("action", "identity", "distance"):
        part = getattr(answer, name)
        numbers = None if box is None or name != "action" else len(box.low)
        expected = list(put.shape) if numbers is None else [*put.shape, numbers]
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


def no_answer(put: Tensor, box: ActionBox | None) -> Answer:
    """An answer to none of the questions `put` [runs, episodes]."""
    long, none = torch.zeros_like(put, dtype=torch.long), torch.zeros_like(put, dtype=torch.float)
    action = long if box is None else none.new_zeros(*put.shape, len(box.low))
    return Answer(action, none, long, torch.zeros_like(put))


def _first(group: Group[Session], flags: Tensor, stack: int) -> tuple[int, int]:
    """The first place of a group, [its runs, episodes], that is flagged: its run in the stack, and the episode."""
    run, episode = flags.nonzero()[0].tolist()
    return int(torch.arange(stack)[group.runs][run]), episode
