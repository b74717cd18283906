"""A teacher made of demonstrations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from apil.errors import ApilError
from apil.rng import Streams
from apil.teachers import Demonstrations, Team
from apil.teachers.policies import flat
from apil.types import Answer, Observation, Reference


def _answer(demonstrations: Demonstrations, states: list[list[float]], valid: list[bool] | None = None) -> Answer:
    episodes = len(states)
    seen = Observation(torch.tensor([states]), torch.tensor(valid or [True] * 4).expand(1, episodes, 4))
    none = torch.zeros(1, episodes, 0, dtype=torch.long)
    reference = Reference(none, torch.zeros(1, episodes, dtype=torch.long), torch.full((1, episodes), 2.0))
    session = Team({"demos": demonstrations}).begin(Streams([0]).draws("teacher", 0), episodes, 1)
    return session.answer(seen, reference, torch.ones(1, episodes, dtype=torch.bool), 0)


def test_the_nearest_demonstrated_state_answers() -> None:
    rng = np.random.default_rng(0)
    states, actions = rng.normal(size=(60, 3)), rng.integers(4, size=60)
    asked = rng.normal(size=(40, 3)).astype(np.float32)
    answer = _answer(Demonstrations(list(states), list(actions)), asked.tolist())
    for e, here in enumerate(asked.astype(np.float64)):
        far = [math.dist(here, state) for state in states]
        assert int(answer.action[0, e]) == actions[far.index(min(far))]
    assert answer.given is not None
    assert bool(answer.given.all())
    assert bool((answer.distance == 2.0).all()), "the distance is the task's"


def test_far_from_every_demonstration_there_is_no_answer() -> None:
    states, actions = [[0.0, 0.0], [1.0, 0.0]], [0, 1]
    near = _answer(Demonstrations(states, actions, within=0.5), [[0.4, 0.0], [0.0, 0.6], [1.5, 0.0]])
    assert near.given is not None
    assert near.given[0].tolist() == [True, False, True]
    exact = _answer(Demonstrations(states, actions, within=0), [[1.0, 0.0], [1.0, 1e-6]])
    assert exact.given is not None
    assert exact.given[0].tolist() == [True, False]
    assert int(exact.action[0, 0]) == 1


def test_a_state_that_was_shown_with_several_actions_is_answered_with_them_as_often() -> None:
    shown = [2, 2, 2, 1]
    answer = _answer(Demonstrations([[1.0]] * 4, shown), [[1.2]] * 4000)
    share = float((answer.action == 2).float().mean())
    assert abs(share - 0.75) < 5 * math.sqrt(0.75 * 0.25 / 4000)


def test_an_action_that_cannot_be_taken_here_is_passed_over() -> None:
    demonstrations = Demonstrations([[0.0], [5.0]], [0, 1])
    assert int(_answer(demonstrations, [[0.0]], [False, True, True, True]).action[0, 0]) == 1
    nothing = _answer(demonstrations, [[0.0]], [False, False, True, True])
    assert nothing.given is not None
    assert not bool(nothing.given.any())


def test_structured_observations_are_laid_end_to_end() -> None:
    assert flat({"b": np.ones((2, 2)), "a": (3, [4.0, 5.0])}).tolist() == [3, 4, 5, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("observations", "actions", "within", "message"),
    [
        ([[0.0]], [], 1.0, "1 observations and 0 actions"),
        ([], [], 1.0, "at least one"),
        ([[0.0]], [0], -1.0, "within is -1"),
    ],
)
def test_demonstrations_that_cannot_be_are_refused(
    observations: list[list[float]], actions: list[int], within: float, message: str
) -> None:
    with pytest.raises(ApilError, match=message):
        Demonstrations(observations, actions, within)


def test_demonstrations_of_another_task_are_told() -> None:
    with pytest.raises(ApilError, match="was shown with observations of 2 numbers, and this"):
        _answer(Demonstrations([[0.0, 1.0]], [0]), [[0.0]])
