"""check_teacher is quiet about every registered teacher, and names each thing that is wrong with a broken one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import apil
from apil.errors import ApilError
from apil.rng import Draws
from apil.tasks.maze import Maze
from apil.teachers import TEACHERS, Anonymous, Drift, Member, NoisyDistance, NoisyIdentity, Team
from apil.types import Answer, Observation, Reference


@pytest.mark.parametrize("name", [entry.name for entry in TEACHERS if not entry.own and entry.name != "people"])
def test_every_registered_teacher_is_sound(name: str) -> None:
    apil.check_teacher(TEACHERS.load(name)(), Maze())


def test_teams_and_lies_are_sound() -> None:
    people = [
        Member("a", "uniform", cost=2, available=0.7),
        Member("b", Drift("first", "last", lambda time: 0.5)),
        Member("c", "last", available=lambda time: 0.5),
    ]
    rules: list[dict[str, Any]] = [
        {},
        {"selection": "query", "absence": "query"},
        {"turn": "rotate", "substitute": False},
    ]
    for settings in rules:
        team = Team(people, **settings)
        apil.check_teacher(team, Maze())
        apil.check_teacher(Anonymous(NoisyIdentity(NoisyDistance(team, 0.5, 1.0, 0.5, 0.2), 0.3)), Maze())


@dataclass(frozen=True)
class _Teacher:
    """Answers with the first reference action, changed."""

    change: Callable[[Answer, int], Any]
    members: tuple[str, ...] = ("me", "you")

    def begin(self, draws: Draws, episodes: int, horizon: int) -> _Teacher:
        return self

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        answer = Answer(reference.actions[..., 0], reference.distance, torch.zeros_like(reference.count))
        changed: Answer = self.change(answer, t)
        return changed


def _blocked(answer: Answer, t: int) -> Answer:
    """The four actions one after the other, walls or not."""
    return replace(answer, action=torch.full_like(answer.action, t % 4))


def _raises(answer: Answer, t: int) -> Answer:
    raise RuntimeError("gone home\nsince noon")


_CALLS: Iterator[int] = count()


def _flips(answer: Answer, t: int) -> Answer:
    """Its identity depends on how often it was called."""
    return replace(answer, identity=torch.full_like(answer.identity, next(_CALLS) % 7 % 2))


_FAULTS: list[tuple[Callable[[Answer, int], Any], str]] = [
    (_blocked, r"member 0 \(me\), answered action \d, but valid actions are"),
    (lambda a, t: replace(a, action=a.action + 9), r"answered action \d+, but valid"),
    (lambda a, t: replace(a, action=a.action.float()), "answered with action of type torch.float32"),
    (lambda a, t: replace(a, action=a.action[0]), r"action \[6\], expected a tensor \[2, 6\]"),
    (lambda a, t: replace(a, distance=a.distance - 99), "which is not a distance"),
    (lambda a, t: replace(a, distance=a.distance * torch.nan), "reported the distance nan"),
    (lambda a, t: replace(a, identity=a.identity + 2), "answered as identity 2, but has 2 members"),
    (lambda a, t: a.action, "answered with Tensor instead of an Answer"),
    (_raises, "raised RuntimeError: gone home"),
    (_flips, "are not the same with the same draws"),
    (lambda a, t: replace(a, given=torch.zeros_like(a.action, dtype=torch.bool)), "answered none of \\d+ questions"),
]


@pytest.mark.parametrize(("change", "message"), _FAULTS)
def test_each_fault_is_named(change: Callable[[Answer, int], Any], message: str) -> None:
    with pytest.raises(ApilError, match=message) as caught:
        apil.check_teacher(_Teacher(change), Maze())
    assert str(caught.value).startswith("Teacher 'me+you' has ")
    assert "\n" not in str(caught.value)


def _legal(seen: Any) -> list[int]:
    """The moves that stay on the board, from the agent's cell: the first 49 numbers of a maze's state."""
    row, column = divmod(int(np.argmax(seen[:49])), 7)
    return [move for move, free in enumerate([row > 0, column < 6, row < 6, column > 0]) if free]


def _counts(calls: Iterator[int]) -> Any:
    return lambda seen, rng: next(calls) % 4


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (lambda seen, rng: "up", r"\(member 'me'\) answered 'up', expected an action from 0 to 3"),
        (lambda seen, rng: 1 // 0, r"\(member 'me'\) raised ZeroDivisionError"),
        (lambda seen, rng: np.random.randint(4), "touches global random state"),  # noqa: NPY002
        (lambda seen, rng: random.randrange(4), "touches global random state"),
        (lambda seen, rng: int(torch.randint(4, ())), "touches global random state"),
        (_counts(count()), "are not the same with the same draws"),
    ],
)
def test_faults_of_a_script_are_named(script: Any, message: str) -> None:
    open_maze = Maze(walls=0)
    with torch.random.fork_rng(), pytest.raises(ApilError, match=message):
        apil.check_teacher(Team({"me": script}), open_maze)


def test_a_script_that_uses_its_generator_is_sound() -> None:
    def wanders(seen: Any, rng: np.random.Generator) -> int:
        return int(rng.choice(_legal(seen)))

    apil.check_teacher(Team({"wanders": wanders, "first": "first"}, selection="query"), Maze(walls=0))


def test_an_answer_that_depends_on_the_other_questions_is_found() -> None:
    class Remembers:
        """Knows how many questions a step had."""

        members = ("me", "you")
        batched = True

        def begin(self, draws: Draws, episodes: int, horizon: int) -> Remembers:
            return self

        def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
            crowd = (asked.sum(1, keepdim=True) > 3).long().expand_as(reference.count)
            return Answer(reference.actions[..., 0], reference.distance, crowd)

    with pytest.raises(ApilError, match="depend on which other questions were asked"):
        apil.check_teacher(Remembers(), Maze())


@dataclass(frozen=True)
class _Described:
    members: Any = ("a", "b")
    weights: Any = (0.5, 0.5)
    costs: Any = (1.0, 1.0)

    def begin(self, draws: Draws, episodes: int, horizon: int) -> Any:
        raise AssertionError("not reached")


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        (_Described(members=()), "members is "),
        (_Described(members=("a", "b+c")), "'\\+' joins names"),
        (_Described(weights=(1.0,)), "1 weights for 2 members"),
        (_Described(weights=(0.7, 0.7)), "expected probabilities that sum to 1"),
        (_Described(costs=(1.0, -2.0)), "costs is .*, expected a number from 0 up for each of 2 members"),
        (_Described(), "begin raised AssertionError: not reached"),
    ],
)
def test_what_a_teacher_says_of_itself_must_fit(teacher: Any, message: str) -> None:
    with pytest.raises(ApilError, match=message):
        apil.check_teacher(teacher, Maze())


def test_a_final_distance_that_is_none_is_found() -> None:
    class Ends(_Teacher):
        def final(self, distance: Tensor) -> Tensor:
            return distance - 99

    with pytest.raises(ApilError, match="reported the final distance -99, which is not a distance"):
        apil.check_teacher(Ends(lambda answer, t: answer), Maze())
