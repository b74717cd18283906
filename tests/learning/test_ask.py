"""Teachers that raise, hang or answer nonsense: one named error, or an unanswered question."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from apil.errors import ApilError
from apil.learning.build import Parts, build
from apil.learning.collect import Agents, collect
from apil.learning.group import Group
from apil.rng import Draws
from apil.settings import RunSettings
from apil.teachers import Team
from apil.types import Answer, Observation, Reference

Change = Callable[[Answer, Tensor], Answer]


@dataclass(frozen=True)
class _Teacher:
    """Answers with the first reference action, changed by `change` from step 2 on."""

    change: Change
    members: tuple[str, ...] = ("first",)

    def begin(self, draws: Draws, episodes: int, horizon: int) -> _Teacher:
        return self

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        answer = Answer(reference.actions[..., 0], reference.distance, torch.zeros_like(reference.count))
        return self.change(answer, asked) if t >= 2 else answer


def _raises(answer: Answer, asked: Tensor) -> Answer:
    raise RuntimeError("no connection\nto the service")


def _hangs(answer: Answer, asked: Tensor) -> Answer:
    threading.Event().wait(60)
    return answer


_FAULTS: dict[str, tuple[Change, str]] = {
    "raises": (_raises, "raised RuntimeError: no connection"),
    "hangs": (_hangs, "did not answer within 0.5 s"),
    "action": (
        lambda a, _: replace(a, action=torch.full_like(a.action, 2)),
        "answered action 2, but valid actions are",
    ),
    "negative": (lambda a, _: replace(a, distance=-a.distance - 1), "which is not a distance"),
    "nan": (lambda a, _: replace(a, distance=a.distance * torch.nan), "reported the distance nan"),
    "identity": (lambda a, _: replace(a, identity=a.identity + 4), "identity 4, but has 1 member,"),
}


def _agents(change: Change, on_error: str) -> Agents:
    # Only the teacher that hangs needs a deadline; the others are never late, however slow the machine.
    deadline = 0.5 if change is _hangs else None
    config = RunSettings.of(
        "grid",
        "detm",
        "bc",
        teacher_deadline=deadline,
        on_teacher_error=on_error,
    )
    agents = build([config])
    group = agents.teachers[0]
    return replace(agents, teachers=[Group(group.runs, group.streams, _Teacher(change), group.name)])


@pytest.mark.parametrize("fault", _FAULTS)
def test_a_fault_stops_the_run_with_one_line_that_names_teacher_and_place(fault: str) -> None:
    change, message = _FAULTS[fault]
    with pytest.raises(ApilError, match=message) as caught:
        collect(_agents(change, "stop"), 7, 3)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith("Teacher 'first'")
    assert "iteration 7, episode 0, step 2 (agent at row 0, column 2)" in text


@pytest.mark.parametrize("fault", sorted(set(_FAULTS) - {"hangs"}))
def test_a_fault_may_leave_the_question_unanswered(fault: str) -> None:
    episodes = collect(_agents(_FAULTS[fault][0], "skip"), 0, 3)
    answered = torch.arange(8) < 2
    assert torch.equal(episodes.answered, answered.expand_as(episodes.answered))
    assert torch.equal(episodes.unanswered, ~episodes.answered)
    assert bool(episodes.distance[~episodes.answered].isnan().all())


def _unlucky(seen: np.ndarray[Any, Any], rng: np.random.Generator) -> int:
    """Fails on a tenth of the questions: half of those raise, half are no action."""
    luck = rng.random()
    if luck < 0.05:
        sys.exit(0)
    return 9 if luck < 0.1 else int(rng.integers(2))


@dataclass(frozen=True)
class _Fussy:
    """Answers whole batches, unless there is a question of step 3 in an episode with an odd number among them."""

    members: tuple[str, ...] = ("first",)
    batched: bool = True

    def begin(self, draws: Draws, episodes: int, horizon: int) -> _Fussy:
        return self

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        if t == 3 and bool(asked[:, 1::2].any()):
            raise ValueError("odd")
        return Answer(reference.actions[..., 0], reference.distance, torch.zeros_like(reference.count))


def test_one_bad_answer_leaves_one_question_unanswered() -> None:
    config = RunSettings.of("grid", "detm", "bc", on_teacher_error="skip")
    episodes = collect(build([config], Parts(teacher=_Fussy())), 0, 6)
    assert int(episodes.unanswered.sum()) == 3
    assert torch.equal(episodes.unanswered[0].nonzero(), torch.tensor([[1, 3], [3, 3], [5, 3]]))


def test_what_is_answered_does_not_depend_on_the_batch_or_on_the_stack() -> None:
    team = Parts(teacher=Team({"anna": _unlucky}))
    configs = [RunSettings.of("grid", "anna", "always", seed=seed, on_teacher_error="skip") for seed in range(3)]
    stacked = collect(build(configs, team), 0, 16)
    share = float(stacked.answered.float().mean())
    assert 0.5 < share < 1, "a tenth of 384 questions fails, and those where an action meets the edge of the grid"
    for run, config in enumerate(configs):
        alone = collect(build([config], team), 0, 16)
        assert torch.equal(alone.answered[0], stacked.answered[run])
        assert torch.equal(alone.action[0], stacked.action[run])


def test_a_teacher_that_hangs_is_called_once_and_then_given_up() -> None:
    calls = []

    def hangs(seen: np.ndarray[Any, Any], rng: np.random.Generator) -> int:
        calls.append(1)
        threading.Event().wait(600)
        return 0

    config = RunSettings.of("grid", "anna", "bc", teacher_deadline=0.05, on_teacher_error="skip")
    agents, before = build([config], Parts(teacher=Team({"anna": hangs}))), threading.active_count()
    message = "Teacher 'anna' has not returned from an earlier question, while 1. more waited.*--teacher-deadline"
    for _ in range(3):
        with pytest.raises(ApilError, match=message):
            collect(agents, 0, 16)
    assert len(calls) == 1
    assert threading.active_count() <= before + 1


def test_a_question_that_a_teacher_does_not_answer_goes_on_as_one_not_asked() -> None:
    def every_other(answer: Answer, asked: Tensor) -> Answer:
        given = asked.clone()
        given[:, ::2] = False
        return replace(answer, given=given)

    episodes = collect(_agents(every_other, "stop"), 0, 4)
    assert episodes.answered[0].sum(-1).tolist() == [2, 8, 2, 8]
    assert torch.equal(episodes.unanswered, ~episodes.answered)
    assert bool(episodes.success.all()), "the agent goes on by itself"


def test_the_place_of_a_fault_is_that_of_the_run_at_fault() -> None:
    configs = [RunSettings.of("maze", teacher, "bc", seed=seed) for seed, teacher in enumerate(["rand", "detm"])]
    agents = build(configs)
    good, bad = agents.teachers
    broken = replace(agents, teachers=[good, Group(bad.runs, bad.streams, _Teacher(_raises), bad.name)])
    state = agents.task.reset(agents.streams.draws("task", 0), 1)
    goals = [agents.task.describe(state, run, 0).split(", goal at ")[1] for run in (0, 1)]
    assert goals[0] != goals[1]
    with pytest.raises(ApilError) as caught:
        collect(broken, 0, 1)
    assert f"goal at {goals[1]})" in str(caught.value)
