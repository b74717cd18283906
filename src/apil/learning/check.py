"""`check_teacher`: says in words what is wrong with teachers of your own."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.learning.ask import Guard, TeacherError
from apil.learning.group import Group, Groups
from apil.rng import Streams, global_random_state
from apil.tasks.check import EPISODES, SEEDS, GivenUp, Problems, random_action
from apil.tasks.protocol import Task
from apil.teachers.protocol import Session, Teacher, costs_of
from apil.types import Answer, Observation, Reference


@dataclass
class _Lesson:
    """What was asked and answered on a walk, step by step."""

    asked: list[Tensor] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    actions: list[Tensor] = field(default_factory=list)
    """Those that were taken."""


class _Once:
    """A session that is asked once a step, however often its answer is read."""

    def __init__(self, inner: Session) -> None:
        self._inner = inner
        self._t = -1
        self._outcome: Answer | Exception = RuntimeError("not asked yet")
        self.missing_distances = bool(getattr(inner, "missing_distances", False))

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        """The answer of the teacher, or what it raised."""
        if t != self._t:
            self._t = t
            try:
                self._outcome = self._inner.answer(observation, reference, asked, t)
            except Exception as error:
                self._outcome = error
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


def check_teacher(teacher: Teacher, task: Task[Any]) -> None:
    """Raises an `ApilError` that lists everything found wrong with teachers; returns quietly if nothing is.

    They are asked at every step of a few episodes of `task`, in a stack of two runs; then at half of the same steps;
    then for one run alone. Answers must be sound (a valid action, a distance, a known identity), and the same each
    time: they may depend on the draws, the step and what is seen, and on nothing else. No global random state may be
    touched.
    """
    name = "+".join(str(member) for member in getattr(teacher, "members", None) or [type(teacher).__name__])
    problems = Problems(f"Teacher '{name}'")
    for message in _attributes(teacher):
        problems.add(message, message)
    problems.tell()
    before = global_random_state()
    with suppress(GivenUp):
        _check_lessons(teacher, task, problems)
    if global_random_state() != before:
        problems.add(
            "global", "it touches global random state (torch, numpy.random or random): use the rng or the draws"
        )
    problems.tell()


def _attributes(teacher: Any) -> Iterator[str]:
    members = getattr(teacher, "members", None)
    if not isinstance(members, tuple) or not members or not all(isinstance(m, str) and m for m in members):
        yield f"members is {members!r}, expected a tuple with a name for each"
        return
    if any("+" in member for member in members):
        yield f"members is {members!r}, but '+' joins names and cannot be in one"
    weights = getattr(teacher, "weights", None)
    if weights is not None and len(weights) != len(members):
        yield f"{len(weights)} weights for {len(members)} members"
    elif weights is not None and not (all(w >= 0 for w in weights) and math.isclose(sum(weights), 1, abs_tol=1e-6)):
        yield f"weights is {list(weights)}, expected probabilities that sum to 1"
    costs = costs_of(teacher)
    if len(costs) != len(members) or not all(0 <= cost < math.inf for cost in costs):
        yield f"costs is {list(costs)}, expected a number from 0 up for each of {len(members)} members"
    if not callable(getattr(teacher, "begin", None)):
        yield "it has no method begin"


def _check_lessons(teacher: Teacher, task: Task[Any], problems: Problems) -> None:
    half = Streams(SEEDS).draws("check/half", 0).uniform(task.horizon, EPISODES) < 0.5
    everywhere = torch.ones_like(half)
    first = _lesson(teacher, task, problems, SEEDS, everywhere)
    if not any(bool(answer.given.any()) for answer in first.answers if answer.given is not None):
        problems.add("silent", f"it answered none of {sum(int(a.sum()) for a in first.asked)} questions")
        return
    again = _lesson(teacher, task, problems, SEEDS, everywhere, first.actions)
    some = _lesson(teacher, task, problems, SEEDS, half, first.actions)
    alone = _lesson(teacher, task, problems, SEEDS[1:], everywhere[1:], [action[1:] for action in first.actions])
    for t, answer in enumerate(first.answers):
        if not _same(answer, again.answers[t], first.asked[t]):
            problems.add("repeat", f"its answers at step {t} are not the same with the same draws")
            return
        if not _same(answer, some.answers[t], some.asked[t]):
            problems.add("memory", f"its answers at step {t} depend on which other questions were asked")
            return
        if not _same(_part(answer), alone.answers[t], alone.asked[t]):
            problems.add("alone", f"its answers at step {t} to a run are not the same alone as beside another run")
            return


def _lesson(
    teacher: Teacher,
    task: Task[Any],
    problems: Problems,
    seeds: tuple[int, ...],
    ask: Tensor,
    actions: list[Tensor] | None = None,
) -> _Lesson:
    """Asks where `ask` [runs, T, episodes] along a walk: by the answers where there are some, or by given actions."""
    streams, lesson = Streams(seeds), _Lesson()
    inner = problems.attempt("begin", lambda: teacher.begin(streams.draws("teacher", 0), EPISODES, task.horizon))
    session = _Once(inner)
    group: Group[Session] = Group(slice(0, len(seeds)), streams, session, "+".join(teacher.members))
    chance = streams.draws("check/action", 0)
    state = task.reset(streams.draws("task", 0), EPISODES)
    for t in range(task.horizon):
        seen, asked = task.observe(state), ask[:, t] & ~task.done(state)
        answer = _asked(problems, group, seen, task.reference(state), asked, t, task)
        lesson.asked.append(asked)
        lesson.answers.append(answer)
        own = random_action(task, seen, chance)
        given = asked & answer.given if answer.given is not None else asked
        follow = given if task.box is None else given.unsqueeze(-1)
        lesson.actions.append(torch.where(follow, answer.action, own) if actions is None else actions[t])
        state = task.step(state, lesson.actions[-1])
    final: Group[Session] = Group(group.runs, streams, inner, group.name)
    try:
        Guard().final(Groups([final]), task.distance(state))
    except ApilError as error:
        problems.add("final", str(error).split(": mend")[0])
    except Exception as error:
        problems.add("final", f"final raised {type(error).__name__}: {error}")
    return lesson


def _asked(
    problems: Problems,
    group: Group[Session],
    seen: Observation,
    reference: Reference,
    asked: Tensor,
    t: int,
    task: Task[Any],
) -> Answer:
    """The answers of a step; what is wrong with them is noted, and they count as not given."""
    try:
        return Guard(box=task.box).answers(Groups([group]), seen, reference, asked, t)
    except TeacherError as error:
        told = error.problem.removeprefix(f"Teacher '{group.name}'").strip(", ")
        problems.add(re.sub(r"[\d.]+", "#", told), f"at step {t}, {told}")
        return Guard(on_error="skip", box=task.box).answers(Groups([group]), seen, reference, asked, t)


def _same(one: Answer, two: Answer, asked: Tensor) -> bool:
    """Whether two answers agree wherever `asked`."""
    assert one.given is not None
    assert two.given is not None
    if not torch.equal(one.given[asked], two.given[asked]):
        return False
    both = asked & one.given
    pairs = ((one.action, two.action), (one.distance, two.distance), (one.identity, two.identity))
    return all(bool(((a[both] == b[both]) | (a[both] != a[both])).all()) for a, b in pairs)


def _part(answer: Answer) -> Answer:
    """Without the first run."""
    assert answer.given is not None
    return Answer(answer.action[1:], answer.distance[1:], answer.identity[1:], answer.given[1:])
