"""Walks that yield questions, their caps and scripts, and reviews of finished episodes."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from apil.errors import ApilError
from apil.learning.build import Parts, build
from apil.learning.collect import Agents, Script, collect, review
from apil.learning.group import Group, take
from apil.learning.sound import no_answer
from apil.learning.walk import Question, advance, walk
from apil.query.rules import Coin
from apil.rng import Draws
from apil.settings import RunSettings
from apil.tasks.gymnasium import from_gymnasium
from apil.teachers import Team
from apil.types import Answer, Episodes, Observation, Reference


def _config(query: str, task: str = "grid", teacher: str = "twodifdetm", **settings: Any) -> RunSettings:
    return RunSettings.of(task, teacher, query, **{"threshold": 0.3, "seed": 1, **settings})


def _agents(query: str, task: str = "grid", runs: int = 1, **settings: Any) -> Agents:
    return build([_config(query, task, seed=seed, **settings) for seed in range(1, runs + 1)])


class _Target(gymnasium.Env[Any, Any]):
    """A place on a line, to be brought to 0."""

    observation_space = spaces.Box(-20, 20, (2,), np.float32)
    action_space = spaces.Discrete(2)
    luck: np.random.Generator | None = None
    """Moves the agent, if given: it is not seeded by a reset."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.wind = int(self.np_random.integers(-3, 4)), 0.0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += 1 if action else -1
        self.wind = float(self.np_random.normal() if self.luck is None else self.luck.normal())
        return self._seen(), 0.0, self.place == 0, False, {}

    def _seen(self) -> Any:
        return np.array([self.place, np.clip(self.wind, -20, 20)], np.float32)


class _Unseeded(_Target):
    luck = np.random.default_rng(0)


def _line(query: str, make: type[_Target] = _Target, **settings: Any) -> Agents:
    task = from_gymnasium(make, distance=lambda env: abs(env.unwrapped.place), horizon=6, name="line")
    team = Team({"anna": lambda seen, rng: int(seen[0] < 0), "ben": lambda seen, rng: 1})
    return build([_config(query, "line", "anna+ben", **settings)], Parts(task=task, teacher=team))


def _same(one: Episodes, other: Episodes, *without: str) -> bool:
    names = [f.name for f in fields(Episodes) if f.name not in ("uncertainty", *without)]
    pairs = [(getattr(one, name), getattr(other, name)) for name in names]
    return all(torch.equal(a.nan_to_num(-1), b.nan_to_num(-1)) for a, b in pairs)


# Walks


def test_a_walk_asks_where_collect_has_answers_and_leaves_no_mode_behind() -> None:
    agents = _agents("random", "maze")
    expected = collect(agents, 3, 4)
    steps, asked = walk(agents, 3, 4), torch.zeros_like(expected.answered)
    found = advance(steps)
    while isinstance(found, Question):
        assert not torch.is_inference_mode_enabled(), "the walk waits"
        asked[:, :, found.t] = found.put
        t = found.t
        answer = Answer(*(getattr(expected, name)[:, :, t] for name in ("action", "distance", "identity")))
        found = advance(steps, answer)
    assert torch.equal(asked, expected.answered)
    assert _same(found, expected)
    assert not found.features.is_inference()


def test_a_walk_whose_questions_nobody_answers_goes_on_alone() -> None:
    agents = _agents("bc", "maze")
    steps = walk(agents, 0, 5)
    found = advance(steps)
    while isinstance(found, Question):
        found = advance(steps, no_answer(found.put, None))
    alone = collect(agents, 0, 5, "alone")
    assert _same(found, alone)
    assert torch.equal(found.unanswered, found.live)


def test_an_abandoned_walk_leaves_no_mode_behind() -> None:
    steps = walk(_agents("bc"), 0, 2)
    advance(steps)
    steps.close()
    assert not torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()


# Caps


@pytest.mark.parametrize("query", ["bc", "dagger", "random", "apil"])
@pytest.mark.parametrize("task", ["grid", "maze"])
def test_no_run_gets_more_answers_than_are_left_and_none_fewer_than_it_asks_for(task: str, query: str) -> None:
    agents = _agents(query, task, runs=4)
    left = torch.tensor([0, 3, 17, 10**6])
    capped = collect(agents, 0, 6, left=left)
    assert left.tolist() == [0, 3, 17, 10**6]
    answers = capped.answered.sum((1, 2))
    assert bool((answers <= left).all())
    short = capped.unanswered.any(-1).any(-1)
    assert torch.equal(answers[short], left[short]), "who goes without has had all of them"
    assert int(answers[3]) == int(collect(agents, 0, 6).answered[3].sum())


def test_the_first_episodes_come_first() -> None:
    capped = collect(_agents("bc"), 0, 5, left=torch.tensor([8]))
    assert capped.answered[0, :, :3].T.tolist() == [[True] * 5, [True] * 3 + [False] * 2, [False] * 5]


def test_a_question_that_stays_unanswered_is_not_counted() -> None:
    class Away:
        members = ("anna",)

        def begin(self, draws: Draws, episodes: int, horizon: int) -> Away:
            return self

        def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
            answer = Answer(reference.actions[..., 0], reference.distance, torch.zeros_like(reference.count))
            return replace(answer, given=asked & (torch.arange(asked.shape[1]) % 2 == 1))

    agents = build([_config("bc")], Parts(teacher=Away()))
    capped = collect(agents, 0, 4, left=torch.tensor([6]))
    # Of four questions at each of the first two steps two are answered. Then two are left: for the first two episodes,
    # one of which gets an answer. The last one is always kept for the first episode, which never gets one.
    assert capped.answered[0].sum(0).tolist() == [2, 2, 1, 0, 0, 0, 0, 0]


# Scripts and reviews


def test_a_script_is_followed_whatever_is_answered() -> None:
    agents = _agents("bc", "maze")
    alone = collect(_agents("never", "maze"), 0, 6)
    ask = torch.zeros_like(alone.live)
    ask[:, ::2, 1] = True
    walked = collect(agents, 0, 6, script=Script(alone.taken, ask, alone.features))
    assert torch.equal(walked.features, alone.features)
    assert torch.equal(walked.taken, alone.taken)
    assert torch.equal(walked.success, alone.success)
    assert torch.equal(walked.answered, ask & alone.live)


def _r2r(data: Path) -> Agents:
    return build([_config("random", "r2r", hidden=8, models=2, persona=4, options={"data": str(data)})])


@pytest.mark.parametrize("task", ["grid", "maze", "line", "r2r"])
def test_a_review_asks_about_the_episodes_that_were_walked_alone(task: str, request: pytest.FixtureRequest) -> None:
    if task == "r2r":
        agents = _r2r(request.getfixturevalue("houses_data"))
    else:
        agents = _line("random") if task == "line" else _agents("random", task, runs=2)
    alone, found = collect(agents, 5, 4, "alone"), review(agents, 5, 4)
    assert _same(found, alone, "answered", "unanswered", "action", "distance", "identity")
    assert torch.equal(found.answered, alone.unanswered), "where the query policy fired"
    assert bool(found.answered.any())
    assert not bool(found.answered.all())
    assert bool((found.distance[found.answered] >= 0).all())


def test_each_query_policy_of_a_stack_chooses_for_its_own_runs() -> None:
    queries: tuple[tuple[str, dict[str, Any]], ...] = (
        ("entropy", {"budget": 0.2, "threshold": None}),
        ("bc", {}),
        ("entropy", {"budget": 0.5, "threshold": None}),
    )
    agents = build([_config(query, "maze", seed=seed, **settings) for seed, (query, settings) in enumerate(queries)])
    found = review(agents, 2, 8)
    alone = collect(agents, 2, 8, "alone")
    luck = agents.streams.draws("query", 2).uniform(alone.live.shape[2], 8).transpose(1, 2)
    for group in agents.queries:
        chosen = group.part.review(take(alone, group.runs), luck[group.runs])
        assert torch.equal(found.answered[group.runs], chosen)
    assert torch.equal(found.answered[1], found.live[1])
    assert not torch.equal(found.answered[0], alone.unanswered[0]), "who sees all of it chooses better"
    assert found.notes.shape == alone.notes.shape
    assert found.notes.shape[-1] > 0, "what was noted in the walk alone"


def test_a_review_keeps_to_what_is_left() -> None:
    found = review(_agents("bc", "maze", runs=2), 0, 4, left=torch.tensor([5, 0]))
    assert found.answered.sum((1, 2)).tolist() == [5, 0]
    assert torch.equal(found.unanswered, found.live & ~found.answered)


def test_a_review_opens_one_session_of_the_query_policy() -> None:
    opened = []

    class Counted(Coin):
        def begin(self, *args: Any, **options: Any) -> Coin:
            opened.append(args)
            return self

    agents = _agents("bc")
    group = agents.queries[0]
    counted = [Group(group.runs, group.streams, Counted(torch.ones(1)), group.name)]
    review(replace(agents, queries=counted), 0, 3)
    assert len(opened) == 1


def test_an_environment_that_does_not_repeat_itself_is_refused_before_anyone_is_asked() -> None:
    agents, asked = _line("bc", _Unseeded), []

    class Silent:
        members = ("anna", "ben")

        def begin(self, draws: Draws, episodes: int, horizon: int) -> Silent:
            return self

        def answer(self, observation: Observation, reference: Reference, put: Tensor, t: int) -> Answer:
            asked.append(t)
            return no_answer(put, None)

    group = agents.teachers[0]
    teachers = [Group(group.runs, group.streams, Silent(), group.name)]
    with pytest.raises(ApilError, match=r"not repeatable.* step 1.*--asking live"):
        review(replace(agents, teachers=teachers), 0, 3)
    assert set(asked) == {0}, "the first states are the same"
