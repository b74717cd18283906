"""Asking the teachers: who answers what, checked, and with room for a log that remembers.

Teachers are other people's code, or people. Whatever they do wrong becomes one named error, or an unanswered question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, Protocol

import torch
from torch import Tensor

from apil.errors import ApilError, in_one_line
from apil.learning.calls import HangingError, LateError, Line
from apil.learning.group import Group, Groups, take
from apil.learning.sound import check_form, complaint, no_answer, sound
from apil.teachers.protocol import MemberError, Session, answers_batches, may_miss_distances, reported_end
from apil.types import ActionBox, Answer, Observation, Reference

OnError = Literal["stop", "skip"]
_FIELDS = tuple(field.name for field in fields(Answer))
_REMEDY = "Fix the teacher, or continue without its answer with --on-teacher-error skip."


class TeacherError(ApilError):
    """A teacher raised, hung, or answered with something that cannot be an answer."""

    def __init__(self, problem: str, run: int, episode: int, remedy: str = _REMEDY) -> None:
        super().__init__(problem)
        self.problem, self.run, self.episode, self.remedy = problem, run, episode, remedy

    def __reduce__(self) -> tuple[type[TeacherError], tuple[str, int, int, str]]:
        """Errors travel between processes."""
        return type(self), (self.problem, self.run, self.episode, self.remedy)

    def located(self, iteration: int, t: int, state: str) -> TeacherError:
        """The same error with the place where it happened."""
        where = f"iteration {iteration}, episode {self.episode}, step {t} ({state})"
        return TeacherError(f"{self.problem} in {where}. {self.remedy}", self.run, self.episode, self.remedy)


Keep = Callable[[Tensor, Answer, bool], None]
"""Takes what came of some questions: where they are, [runs, episodes] bool; the answers there, or none; and whether
each took a call of its own, so that it must be on file before the next one is put."""


class AnswerLog(Protocol):
    """Remembers answers, so that none is asked for twice."""

    def consult(self, iteration: int, t: int, put: Tensor, ask: Callable[[Tensor, Keep], Answer]) -> Answer:
        """The answers to the questions `put` [runs, episodes]: known ones from memory, the others by `ask`, which
        reports each of them as it comes."""

    def note(self, iteration: int, t: int, put: Tensor, answer: Answer) -> None:
        """Writes an answer down at once; of walks in flight, which are not repeated after a stop."""


@dataclass(frozen=True)
class _Asked:
    """What one teacher is asked at one step."""

    group: Group[Session]
    seen: Observation
    reference: Reference
    put: Tensor
    """[own runs, episodes] bool"""
    t: int

    @property
    def runs(self) -> list[int]:
        """The places of its runs in the stack."""
        runs = self.group.runs
        return list(range(runs.start, runs.stop)) if isinstance(runs, slice) else runs.tolist()


@dataclass(frozen=True)
class Guard:
    """How teachers are watched. Every answer is checked by itself, whatever becomes of the others."""

    deadline: float | None = None
    """Seconds a teacher has for one call; no limit if not given."""
    on_error: OnError = "stop"
    """A bad answer stops the run, or leaves the question unanswered."""
    box: ActionBox | None = None
    """The bounds of continuous actions; None where actions are discrete."""
    at_once: int = 1
    """Calls with a deadline that a teacher can take at a time."""
    _lines: dict[str, Line] = field(default_factory=dict, repr=False, compare=False)

    def taking(self, at_once: int) -> Guard:
        """The same for teachers that can take so many calls at a time."""
        return Guard(self.deadline, self.on_error, self.box, at_once)

    def answers(
        self,
        sessions: Groups[Session],
        seen: Observation,
        reference: Reference,
        put: Tensor,
        t: int,
        keep: Keep = lambda settled, answer, alone: None,
    ) -> Answer:
        """The answers of all teachers to the questions `put` [runs, episodes]; `given` is true where there is one.

        Teachers that answer whole batches come first. The others are asked one question at a time: its answer is
        checked and kept before the next one is put. Where a fault stops the run, sound answers were kept before.
        """
        if not put.any():
            return no_answer(put, self.box)
        asked = [_Asked(g, take(seen, g.runs), take(reference, g.runs), take(put, g.runs), t) for g in sessions]
        found = [self._batch(own, len(asked) == 1) for own in asked]
        alone = [own for own, answer in zip(asked, found, strict=True) if answer is None]
        if len(alone) < len(asked):
            parts = [no_answer(own.put, self.box) if a is None else a for own, a in zip(asked, found, strict=True)]
            joined = parts[0]
            if len(parts) > 1:
                joined = Answer(*(sessions.join([getattr(part, name) for part in parts]) for name in _FIELDS))
            answer = self._checked(sessions, seen, put, joined, alone, keep)
            if not alone:
                return answer
            answer = Answer(*(getattr(answer, name).clone() for name in _FIELDS))
        else:
            answer = no_answer(put, self.box)
        for own in alone:
            self._one_by_one(own, put, answer, keep)
        return answer

    def _batch(self, asked: _Asked, everyone: bool) -> Answer | None:
        """What a teacher answers to all its questions in one call; None where they are to be put one by one.

        If `everyone` asks this teacher, it has a question.
        """
        if not everyone and not asked.put.any():
            return no_answer(asked.put, self.box)
        if not answers_batches(asked.group.part):
            return None
        try:
            return self._call(asked, asked.put)
        except KeyboardInterrupt:
            raise
        except BaseException:
            return None  # one by one it turns out which question fails

    def _call(self, asked: _Asked, put: Tensor) -> Answer:
        """One call for the questions `put` [own runs, episodes]; `given` is set."""
        session, name = asked.group.part, asked.group.name
        if self.deadline is None:
            answer = session.answer(asked.seen, asked.reference, put, asked.t)
        else:
            line = self._lines.setdefault(name, Line(self.at_once))
            answer = line.call(lambda: session.answer(asked.seen, asked.reference, put, asked.t), self.deadline)
        if isinstance(answer, Answer) and answer.given is not None and not bool((put & answer.given).any()):
            return no_answer(put, self.box)
        check_form(answer, put, self.box)
        given = put if answer.given is None else put & answer.given
        return Answer(answer.action, answer.distance, answer.identity, given)

    def _checked(
        self,
        sessions: Groups[Session],
        seen: Observation,
        put: Tensor,
        answer: Answer,
        alone: Sequence[_Asked],
        keep: Keep,
    ) -> Answer:
        """The sound ones of answers that came in batches, which are kept; those `alone` have not answered yet."""
        assert answer.given is not None
        for own in alone:
            put = put.clone()
            put[own.group.runs] = False
        wrong = answer.given & ~sound(answer, sessions, seen, self.box)
        if not wrong.any():
            keep(put, answer, False)
            return answer
        rest = replace(answer, given=answer.given & ~wrong)
        keep(put if self.on_error == "skip" else put & ~wrong, rest, False)
        if self.on_error == "skip":
            return rest
        group = next(group for group in sessions if wrong[group.runs].any())
        row, episode = wrong[group.runs].nonzero()[0].tolist()
        fault = complaint(group, take(answer, group.runs), take(seen, group.runs), (row, episode), self.box)
        raise TeacherError(fault, int(torch.arange(len(put))[group.runs][row]), episode)

    def _one_by_one(self, asked: _Asked, put: Tensor, answer: Answer, keep: Keep) -> None:
        """Puts questions in calls of their own. What comes of each is written into `answer` of the stack, and kept.

        `put` [runs, episodes] is that of the stack.
        """
        runs = asked.runs
        into = {name: getattr(answer, name).numpy() for name in _FIELDS}  # the same memory, reached faster
        for row, episode in asked.put.nonzero().tolist():
            place = (runs[row], episode)
            try:
                said = self._one(asked, (row, episode))
            except _FaultError as fault:
                if self.on_error == "stop":
                    raise TeacherError(str(fault), *place) from fault.__cause__
                said = None
            except HangingError as error:
                remedy = "Fix the teacher, or give it more time with --teacher-deadline."
                raise TeacherError(f"Teacher '{asked.group.name}' {error}", *place, remedy) from None
            if said is not None:
                for name, numbers in into.items():
                    numbers[place] = getattr(said, name).numpy()[row, episode]
            settled = torch.zeros_like(put)
            settled[place] = True
            keep(settled, answer, True)

    def _one(self, asked: _Asked, place: tuple[int, int]) -> Answer | None:
        """The answer to the question at `place` of a group; None where there is none."""
        put = torch.zeros_like(asked.put)
        put[place] = True
        try:
            said = self._call(asked, put)
        except (KeyboardInterrupt, HangingError):
            raise
        except BaseException as error:  # also SystemExit: a teacher cannot end the program
            raise _FaultError(f"Teacher '{asked.group.name}' {_what(error)}") from error
        assert said.given is not None
        if not bool(said.given[place]):
            return None
        fault = complaint(asked.group, said, asked.seen, place, self.box)
        if fault:
            raise _FaultError(fault)
        return said

    def final(self, sessions: Groups[Session], distance: Tensor) -> Tensor:
        """[runs, episodes]: the final distances as the teachers report them, from the true ones."""
        reported = sessions.join([reported_end(group.part, distance[group.runs]) for group in sessions])
        if bool((reported >= 0).all()):
            return reported
        for group in sessions:
            own = reported[group.runs]
            wrong = ~(own >= 0) & ~(own.isnan() & may_miss_distances(group.part))
            if wrong.any():
                worst = float(own[wrong][0])
                raise ApilError(
                    f"Teacher '{group.name}' reported the final distance {worst:g}, which is not a distance: fix the "
                    "teacher, or the distance of the task."
                )
        return reported


class _FaultError(Exception):
    """What is wrong with the answer to one question."""


def _what(error: BaseException) -> str:
    return str(error) if isinstance(error, MemberError | LateError) else f"raised {in_one_line(error)}"
