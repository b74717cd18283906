"""Simulated teachers: who answers, how often, and what."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from apil.errors import ApilError
from apil.rng import Streams
from apil.teachers.committee import Committee, committee
from apil.types import Answer, Observation, Reference

_ACTIONS = [3, 0, 2, 1]
_EPISODES, _HORIZON = 20_000, 3


def _states(count: int, runs: int = 1, episodes: int = _EPISODES) -> tuple[Observation, Reference]:
    """The same state everywhere: four actions in an order of their own, the first `count` of them good."""
    shape = (runs, episodes)
    actions = torch.tensor(_ACTIONS).expand(*shape, -1)
    seen = Observation(torch.zeros(*shape, 1), torch.ones(*shape, 4, dtype=torch.bool))
    return seen, Reference(actions, torch.full(shape, count), torch.full(shape, 7.0))


def _answers(teachers: Committee, count: int, seeds: tuple[int, ...] = (0,)) -> list[Answer]:
    session = teachers.begin(Streams(seeds).draws("teacher", 0), _EPISODES, _HORIZON)
    seen, reference = _states(count, runs=len(seeds))
    asked = torch.ones(len(seeds), _EPISODES, dtype=torch.bool)
    return [session.answer(seen, reference, asked, t) for t in range(_HORIZON)]


def _close(drawn: Tensor, chances: list[float]) -> bool:
    """The frequencies of 0, 1, ... are within 5 standard errors of their chances."""
    total = drawn.numel()
    frequency = (torch.bincount(drawn.flatten(), minlength=len(chances)) / total).tolist()
    return len(frequency) == len(chances) and all(
        abs(f - p) <= 5 * math.sqrt(p * (1 - p) / total) for f, p in zip(frequency, chances, strict=True)
    )


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_first_and_last_are_deterministic_and_uniform_takes_any_good_action(count: int) -> None:
    good = _ACTIONS[:count]
    for t in range(_HORIZON):
        assert set(_answers(committee("first"), count)[t].action.flatten().tolist()) == {good[0]}
        assert set(_answers(committee("last"), count)[t].action.flatten().tolist()) == {good[-1]}
        chances = [1 / count if action in good else 0.0 for action in range(4)]
        assert _close(_answers(committee("rand"), count)[t].action, chances)


def test_an_answer_tells_the_distance_and_who_spoke() -> None:
    for answer in _answers(committee("twodifdetm"), 3):
        assert bool((answer.distance == 7.0).all())
        said = torch.where(answer.identity == 0, _ACTIONS[0], _ACTIONS[2])
        assert torch.equal(answer.action, said)


@pytest.mark.parametrize("selection", ["episode", "query"])
@pytest.mark.parametrize("weights", [(0.5, 0.5), (0.1, 0.9), (0.2, 0.0, 0.5, 0.3), (0.0, 1.0), (1.0, 0.0)])
def test_members_answer_as_often_as_their_weights_say(weights: tuple[float, ...], selection: Any) -> None:
    teachers = committee("+".join(["first"] * len(weights)), weights, selection)
    for answer in _answers(teachers, 1):
        assert _close(answer.identity, list(weights))


def test_a_member_is_drawn_for_an_episode_or_for_each_query() -> None:
    for_episode = torch.stack([a.identity for a in _answers(committee("twodifdetm"), 2)])
    assert bool((for_episode == for_episode[0]).all())
    for_query = torch.stack([a.identity for a in _answers(committee("twodifdetm", selection="query"), 2)])
    # Three independent draws of two agree with chance 1/4.
    assert _close((for_query == for_query[0]).all(0).long(), [0.75, 0.25])


def test_a_uniform_teacher_varies_from_step_to_step_within_an_episode() -> None:
    actions = torch.stack([a.action for a in _answers(committee("rand"), 2)])
    assert _close((actions == actions[0]).all(0).long(), [0.75, 0.25])


def test_a_run_gets_the_same_answers_alone_and_in_a_stack() -> None:
    teachers = committee("first+uniform", (0.3, 0.7), "query")
    stack, alone = _answers(teachers, 4, seeds=(8, 9)), _answers(teachers, 4, seeds=(9,))
    for together, single in zip(stack, alone, strict=True):
        assert torch.equal(together.action[1], single.action[0])
        assert torch.equal(together.identity[1], single.identity[0])


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("detm", ("first",)),
        ("rand", ("uniform",)),
        ("tworand", ("uniform", "uniform")),
        ("twodifdetm", ("first", "last")),
        ("first+last+uniform", ("first", "last", "uniform")),
        ("uniform", ("uniform",)),
    ],
)
def test_teachers_by_name(name: str, members: tuple[str, ...]) -> None:
    teachers = committee(name)
    assert teachers.members == members
    assert teachers.weights == pytest.approx([1 / len(members)] * len(members))
    assert teachers.selection == "episode", "the paper's rule"


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_true_distributions_are_those_of_the_answers(count: int) -> None:
    teachers = committee("first+last+uniform")
    _, reference = _states(count, episodes=1)
    distributions = teachers.distribution(reference)[0, 0].tolist()
    good = _ACTIONS[:count]
    assert distributions[0] == [float(action == good[0]) for action in range(4)]
    assert distributions[1] == [float(action == good[-1]) for action in range(4)]
    assert distributions[2] == pytest.approx([(action in good) / count for action in range(4)])


@pytest.mark.parametrize(
    ("name", "weights", "selection", "message"),
    [
        ("twodifdetm", (0.5, 0.6), "episode", r"weights \[0\.5, 0\.6\] sum to 1\.1: they must sum to 1"),
        ("twodifdetm", (1.0,), "episode", "1 weights for 2 members"),
        ("twodifdetm", (1.5, -0.5), "episode", "-0.5 of the committee is not a probability"),
        ("twodifdetm", (float("nan"), 1.0), "episode", "nan of the committee is not a probability"),
        ("first+lst", None, "episode", "Unknown committee member 'lst'. Did you mean 'last'"),
        ("twodifdet", None, "episode", "Unknown teacher 'twodifdet'. Did you mean 'twodifdetm'"),
        ("detm", None, "step", "Unknown selection rule 'step'"),
    ],
)
def test_a_committee_that_cannot_be_is_refused(name: str, weights: Any, selection: Any, message: str) -> None:
    with pytest.raises(ApilError, match=message) as caught:
        committee(name, weights, selection)
    assert "\n" not in str(caught.value)


def test_a_committee_needs_a_member() -> None:
    with pytest.raises(ApilError, match="at least one member"):
        Committee((), ())
