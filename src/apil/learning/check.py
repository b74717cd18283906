"""`check_teacher`: finds what is wrong with teachers of your own."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from apil.contract import GivenUp, Problems, problems_of
from apil.errors import ApilError, in_one_line
from apil.learning.ask import Guard, TeacherError
from apil.learning.group import Group, Groups, take
from apil.rng import Streams
from apil.tasks.check import EPISODES, SEEDS, random_action
from apil.tasks.protocol import Task
from apil.teachers.protocol import Session, Teacher, costs_of
from apil.types import Answer, Observation, Reference


class _Step(NamedTuple):
    """What was put, answered and done at a step of a walk."""

    put: Tensor
    answer: Answer
    action: Tensor


class _Once:
    """A session that is asked each question once, however often its answer is read."""

    def __init__(self, inner: Session) -> None:
        self._inner = inner
        self._outcomes: dict[tuple[int, str], Answer | BaseException] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        """The answer of the teacher, or what it raised."""
        which = t, str(asked.nonzero().tolist())
        if which not in self._outcomes:
            try:
                self._outcomes[which] = self._inner.answer(observation, reference, asked, t)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self._outcomes[which] = error
        outcome = self._outcomes[which]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def check_teacher(teacher: Teacher, task: Task[Any]) -> None:
    """Checks teachers of your own; raises an `ApilError` that lists every problem, else returns None.

    They are asked at every step of a few episodes of `task`, in a stack of two runs; then at half of the same steps;
    then for one run alone. Answers must be sound (a valid action, a distance, a known identity), and the same each
    time: they may depend only on the draws, the step and the observation. No global random state may be
    touched.

    Examples:
        >>> from apil.tasks.grid import Grid
        >>> from apil.teachers import Member, Team
        >>> along_the_row = lambda observation, rng: int(observation.argmax() % 5 == 4)  # right, or down at the wall
        >>> apil.check_teacher(Team([Member("ann", along_the_row)]), Grid())
    """
    name = "+".join(str(member) for member in getattr(teacher, "members", None) or [type(teacher).__name__])
    with problems_of(f"Teacher '{name}'", "use the rng or the draws") as problems:
        _check_attributes(teacher, problems)
        _check_lessons(teacher, task, problems)


def _check_attributes(teacher: Any, problems: Problems) -> None:
    members: Any = getattr(teacher, "members", None)
    weights: Any = getattr(teacher, "weights", None)
    named = isinstance(members, tuple) and members and all(isinstance(m, str) and m for m in members)
    problems.require(bool(named), f"members is {members!r}, expected a tuple with a name for each")
    joined = any("+" in member for member in members)
    problems.expect(not joined, f"members is {members!r}, but '+' joins names and cannot be in one")
    if weights is not None and problems.expect(
        len(weights) == len(members), f"{len(weights)} weights for {len(members)} members"
    ):
        sound = all(w >= 0 for w in weights) and math.isclose(sum(weights), 1, abs_tol=1e-6)
        problems.expect(sound, f"weights is {list(weights)}, expected probabilities that sum to 1")
    costs = costs_of(teacher)
    sound = len(costs) == len(members) and all(0 <= cost < math.inf for cost in costs)
    problems.expect(sound, f"costs is {list(costs)}, expected a number from 0 up for each of {len(members)} members")
    problems.expect(callable(getattr(teacher, "begin", None)), "it has no method begin")
    if problems.found:
        raise GivenUp


def _check_lessons(teacher: Teacher, task: Task[Any], problems: Problems) -> None:
    half = Streams(SEEDS).draws("check/half", 0).uniform(task.horizon, EPISODES) < 0.5
    everywhere = torch.ones_like(half)
    first = _lesson(teacher, task, problems, SEEDS, everywhere)
    questions = sum(int(step.put.sum()) for step in first)
    problems.require(any(_given(step.answer).any() for step in first), f"it answered none of {questions} questions")
    actions = [step.action for step in first]
    again = _lesson(teacher, task, problems, SEEDS, everywhere, actions)
    some = _lesson(teacher, task, problems, SEEDS, half, actions)
    alone = _lesson(teacher, task, problems, SEEDS[1:], everywhere[1:], [action[1:] for action in actions])
    for t, step in enumerate(first):
        its = f"its answers at step {t}"
        second = take(step.answer, slice(1, None))
        problems.require(_same(step.answer, again[t]), f"{its} are not the same with the same draws")
        problems.require(_same(step.answer, some[t]), f"{its} depend on which other questions were asked")
        problems.require(_same(second, alone[t]), f"{its} to a run are not the same alone as beside another run")


def _lesson(
    teacher: Teacher,
    task: Task[Any],
    problems: Problems,
    seeds: tuple[int, ...],
    ask: Tensor,
    actions: list[Tensor] | None = None,
) -> list[_Step]:
    """Asks where `ask` [runs, T, episodes] along a walk: by the answers where there are some, or by given actions."""
    steps: list[_Step] = []
    streams = Streams(seeds)
    session = problems.attempt("begin", teacher.begin, streams.draws("teacher", 0), EPISODES, task.horizon)
    group: Group[Session] = Group(slice(0, len(seeds)), streams, _Once(session), "+".join(teacher.members))
    chance = streams.draws("check/action", 0)
    state = task.reset(streams.draws("task", 0), EPISODES)
    for t in range(task.horizon):
        seen, put = task.observe(state), ask[:, t] & ~task.done(state)
        answer = _answered(problems, group, task, state, put, t)
        own = random_action(task, seen, chance)
        given = put & _given(answer)
        follow = given if task.box is None else given.unsqueeze(-1)
        action = torch.where(follow, answer.action, own) if actions is None else actions[t]
        steps.append(_Step(put, answer, action))
        state = task.step(state, action)
    try:
        Guard().final(Groups([group]), task.distance(state))
    except ApilError as error:
        problems.expect(False, str(error).rpartition(": ")[0])
    except Exception as error:
        problems.expect(False, f"final raised {in_one_line(error)}")
    return steps


def _answered(problems: Problems, group: Group[Session], task: Task[Any], state: Any, put: Tensor, t: int) -> Answer:
    """The answers of a step; what is wrong with them is noted, and those answers count as not given."""
    seen, reference = task.observe(state), task.reference(state)
    try:
        return Guard(box=task.box).answers(Groups([group]), seen, reference, put, t)
    except TeacherError as error:
        problem = error.problem.removeprefix(f"Teacher '{group.name}'").strip(", ")
        problems.expect(False, f"at step {t}, {problem}")
        return Guard(on_error="skip", box=task.box).answers(Groups([group]), seen, reference, put, t)


def _given(answer: Answer) -> Tensor:
    assert answer.given is not None
    return answer.given


def _same(one: Answer, other: _Step) -> bool:
    """Whether an answer agrees with that of another walk wherever that one asked."""
    given, two = other.put & _given(one), other.answer
    pairs = [(getattr(one, name)[given], getattr(two, name)[given]) for name in ("action", "distance", "identity")]
    same = all(torch.allclose(a, b, rtol=0, atol=0, equal_nan=True) for a, b in pairs)
    return same and torch.equal(given, other.put & _given(two))
