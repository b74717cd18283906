"""Drives a walk by Alg 1 with teachers that answer at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from apil.learning.ask import AnswerLog, Guard, TeacherError
from apil.learning.group import Group, Groups, take
from apil.learning.walk import (
    Acting,
    Agents,
    Ended,
    Question,
    Script,
    Step,
    Walk,
    Watch,
    advance,
    advance_in_mode,
    walk,
)
from apil.learning.whom import Choosers
from apil.teachers.protocol import Session
from apil.types import Answer, Episodes

__all__ = ["Acting", "Agents", "Script", "Step", "collect", "review"]


def collect(
    agents: Agents,
    iteration: int,
    episodes: int,
    acting: Acting = "training",
    prefix: str = "",
    log: AnswerLog | None = None,
    watch: Watch | None = None,
    ended: Ended | None = None,
    greedy: bool = False,
    left: Tensor | None = None,
    script: Script | None = None,
) -> Episodes:
    """Runs `episodes` episodes of every run to their end.

    All randomness comes from (seed, `prefix` + stream, `iteration`); acting needs no gradient.
    Answers go through `log`; `watch` is shown each state and what happened there, `ended` the last states.
    Where it acts by itself an agent samples from its mean policy or, if `greedy`, takes the likeliest action.
    `left` [runs] long is the number of answers that each run may still get: questions beyond it are not put, those of
    the first episodes first. A `script` decides in place of agents and query policies.
    """
    teachers = OpenTeachers.of(agents, iteration, episodes, prefix, log)
    steps = walk(agents, iteration, episodes, acting, prefix, watch=watch, ended=ended, greedy=greedy, script=script)
    return teachers.final(_driven(steps, teachers, left))


@torch.inference_mode()
def _driven(steps: Walk, teachers: OpenTeachers, left: Tensor | None) -> Episodes:
    found = advance_in_mode(steps)
    while isinstance(found, Question):
        if left is None:
            answer = teachers.answer(found)
        else:
            put = within(found.put, left)
            answer = teachers.answer(replace(found, put=put))
            given = put if answer.given is None else put & answer.given
            answer, left = replace(answer, given=given), left - given.sum(1)
        found = advance_in_mode(steps, answer)
    return found


def within(put: Tensor, left: Tensor) -> Tensor:
    """The questions [runs, episodes] to put where `left` [runs] more answers may be given; first episodes first."""
    return put & (put.cumsum(1) <= left.unsqueeze(1))


def review(
    agents: Agents, iteration: int, episodes: int, log: AnswerLog | None = None, left: Tensor | None = None
) -> Episodes:
    """Training episodes that the agents walk alone; the teachers are asked about them afterwards.

    The query policies see whole episodes before they choose the steps to ask about. Then the same episodes are walked
    again by a `Script`, and the questions are put; no answer is executed. `log` and `left` are those of `collect`.
    An environment that does not show the same a second time is an error.
    """
    alone = advance(walk(agents, iteration, episodes, "alone"))
    assert isinstance(alone, Episodes), "an agent alone asks nobody"
    script = Script(alone.taken, _chosen(agents, iteration, alone), alone.features)
    asked = collect(agents, iteration, episodes, log=log, left=left, script=script)
    return replace(
        alone,
        answered=asked.answered,
        unanswered=asked.unanswered,
        action=asked.action,
        distance=asked.distance,
        identity=asked.identity,
        final_distance=asked.final_distance,
    )


def _chosen(agents: Agents, iteration: int, alone: Episodes) -> Tensor:
    """[runs, episodes, T] bool: the steps of finished episodes that the query policies ask about."""
    _, episodes, horizon = alone.live.shape
    luck = agents.streams.draws("query", iteration).uniform(horizon, episodes).transpose(1, 2)
    groups, place = Groups(agents.queries), agents.asking
    with place:
        found = [g.part.review(place.bring(take(alone, g.runs)), place.bring(luck[g.runs])) for g in groups]
    return groups.join([place.back(own) for own in found])


@dataclass(frozen=True)
class OpenTeachers:
    """The teachers of a stack during one batch of episodes, and the log of their answers."""

    guard: Guard
    sessions: Groups[Session]
    log: AnswerLog | None
    choosers: Choosers | None = None
    """Who choose whom to ask; None where the teachers do."""

    @staticmethod
    def of(
        agents: Agents, iteration: int, episodes: int, prefix: str = "", log: AnswerLog | None = None
    ) -> OpenTeachers:
        stream, horizon = f"{prefix}teacher", agents.task.horizon
        # What changes while an agent is trained has come to its end when it is measured.
        time = math.inf if prefix else iteration
        groups = [(g, g.streams.draws(stream, iteration, time)) for g in agents.teachers]
        sessions = Groups(Group(g.runs, g.streams, g.part.begin(own, episodes, horizon), g.name) for g, own in groups)
        choosers = Choosers.of(agents.selectors, sessions, f"{prefix}select", iteration, episodes, horizon)
        return OpenTeachers(agents.guard, sessions, log, choosers)

    def answer(self, question: Question) -> Answer:
        """The answers, from the log as far as it knows them; an error says where it happened.

        For inference mode: what is asked was computed in it.
        """
        if self.choosers is None:
            return self._answer(question, self.sessions)
        # Chosen before the log is read: a resumed run finds the same teachers.
        answer = self._answer(question, self.choosers.addressed(question.seen, question.put, question.t))
        self.choosers.hear(answer, question.put)
        return answer

    def _answer(self, question: Question, sessions: Groups[Session]) -> Answer:
        seen, reference, t = question.seen, question.reference, question.t
        try:
            if self.log is None:
                return self.guard.answers(sessions, seen, reference, question.put, t)
            return self.log.consult(
                question.iteration,
                t,
                question.put,
                lambda missing, keep: self.guard.answers(sessions, seen, reference, missing, t, keep),
            )
        except TeacherError as error:
            state = question.describe(error.run, error.episode)
            raise error.located(question.iteration, t, state) from error.__cause__

    def final(self, episodes: Episodes) -> Episodes:
        """The episodes with the final distances as the teachers report them."""
        with torch.inference_mode():
            reported = self.guard.final(self.sessions, episodes.final_distance)
        return replace(episodes, final_distance=reported.clone())
