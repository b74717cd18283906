"""Teams of anything that can answer: who is asked, who is away, and what reaches whom."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from apil.errors import ApilError
from apil.rng import Streams
from apil.teachers import Drift, Member, NoisyDistance, Predicting, Team
from apil.teachers.committee import committee
from apil.teachers.protocol import MemberError, Teacher
from apil.types import Answer, Observation, Reference

_EPISODES, _HORIZON = 4000, 3
_ACTIONS = 4


def _states(runs: int, episodes: int) -> tuple[Observation, Reference]:
    """Every state is told apart by its one feature, run + episode / 10000; all four actions are good, in order."""
    features = torch.arange(runs).view(-1, 1) + torch.arange(episodes) / 10_000
    seen = Observation(features.unsqueeze(-1).float(), torch.ones(runs, episodes, _ACTIONS, dtype=torch.bool))
    actions = torch.arange(_ACTIONS).expand(runs, episodes, -1)
    return seen, Reference(actions, torch.full((runs, episodes), _ACTIONS), torch.full((runs, episodes), 7.0))


def _ask(
    teacher: Teacher,
    *,
    seeds: tuple[int, ...] = (0,),
    episodes: int = _EPISODES,
    iteration: int = 0,
    time: float | None = None,
    asked: Tensor | None = None,
) -> list[Answer]:
    session = teacher.begin(Streams(seeds).draws("teacher", iteration, time), episodes, _HORIZON)
    seen, reference = _states(len(seeds), episodes)
    everywhere = torch.ones(len(seeds), episodes, dtype=torch.bool) if asked is None else asked
    return [session.answer(seen, reference, everywhere, t) for t in range(_HORIZON)]


def _given(answer: Answer) -> Tensor:
    assert answer.given is not None
    return answer.given


def _near(share: Tensor, chance: float, total: int) -> bool:
    """Within 5 standard errors."""
    return abs(float(share) - chance) <= 5 * math.sqrt(max(chance * (1 - chance), 1e-12) / total) + 1e-6


def _constant(action: int) -> Any:
    return lambda observation, rng: action


def test_a_callable_gets_its_own_observation_and_a_generator_of_its_own() -> None:
    heard: dict[float, float] = {}

    def script(observation: np.ndarray[Any, np.dtype[np.float32]], rng: np.random.Generator) -> int:
        heard[round(float(observation[0]), 4)] = rng.random()
        with pytest.raises(ValueError, match="read-only"):
            observation[0] = 5
        return int(observation[0] * 10_000) % 4

    answer = _ask(Team({"me": script}), seeds=(0, 1), episodes=8)[0]
    assert sorted(heard) == [round(run + e / 10_000, 4) for run in (0, 1) for e in range(8)]
    assert len(set(heard.values())) == 16, "no two questions share their luck"
    assert answer.action.dtype == torch.long
    assert bool((answer.distance == 7.0).all())


def test_answers_are_a_function_of_seed_iteration_episode_and_step() -> None:
    team = Team({"a": lambda seen, rng: int(rng.integers(4)), "b": "uniform"}, selection="query")
    stack = _ask(team, seeds=(8, 9), episodes=50)
    again = _ask(team, seeds=(8, 9), episodes=50, asked=torch.rand(2, 50, generator=torch.Generator()) < 0.5)
    for t, (one, two, alone) in enumerate(zip(stack, again, _ask(team, seeds=(9,), episodes=50), strict=True)):
        where = _given(two)
        assert torch.equal(one.action[where], two.action[where]), "which other questions are asked makes no difference"
        assert torch.equal(one.action[1], alone.action[0]), t
        assert torch.equal(one.identity[1], alone.identity[0])
    later = _ask(team, seeds=(8, 9), episodes=50, iteration=1)
    assert not torch.equal(later[0].action, stack[0].action)


@pytest.mark.parametrize("selection", ["episode", "query"])
def test_members_answer_as_often_as_their_weights_say(selection: Any) -> None:
    weights = (1.0, 0.0, 5.0, 2.0)
    team = Team([Member(str(k), _constant(k), weight) for k, weight in enumerate(weights)], selection=selection)
    assert team.weights == pytest.approx((1 / 8, 0, 5 / 8, 2 / 8))
    answers = _ask(team)
    for answer in answers:
        assert torch.equal(answer.identity, answer.action)
        for k, weight in enumerate(weights):
            assert _near((answer.action == k).float().mean(), weight / 8, _EPISODES)
    same = (answers[0].identity == answers[1].identity).float().mean()
    assert _near(same, 1.0 if selection == "episode" else sum((w / 8) ** 2 for w in weights), _EPISODES)


def test_turns_go_round_over_episodes_and_iterations_or_over_steps() -> None:
    members = {str(k): _constant(k) for k in range(3)}
    by_episode = Team(members, turn="rotate")
    said = [_ask(by_episode, episodes=4, iteration=i)[1].action[0].tolist() for i in range(3)]
    assert [action for batch in said for action in batch] == [0, 1, 2] * 4
    by_step = _ask(Team(members, turn="rotate", selection="query"), episodes=4)
    assert [answer.action[0].tolist() for answer in by_step] == [[0, 1, 2, 0], [1, 2, 0, 1], [2, 0, 1, 2]]


def test_who_is_away_is_stood_in_for_by_the_weights_of_those_who_are_there() -> None:
    team = Team([Member("a", _constant(0), 2, available=0.5), Member("b", _constant(1)), Member("c", _constant(2), 3)])
    action = _ask(team)[0].action
    # a is drawn with 2/6 if there; if not, b and c share by 1 to 3.
    assert _near((action == 0).float().mean(), 0.5 * 2 / 6, _EPISODES)
    assert _near((action == 1).float().mean(), 0.5 * 1 / 6 + 0.5 * 1 / 4, _EPISODES)


def test_without_a_substitute_or_with_all_away_the_question_stays_unanswered() -> None:
    people = [Member("a", _constant(0), available=0.5), Member("b", _constant(1), available=0.2)]
    alone = _ask(Team(people, substitute=False))[0]
    assert _near(_given(alone).float().mean(), 0.5 * 0.5 + 0.5 * 0.2, _EPISODES)
    helped = _ask(Team(people))
    assert _near(_given(helped[0]).float().mean(), 1 - 0.5 * 0.8, _EPISODES)
    assert torch.equal(_given(helped[0]), _given(helped[1])), "away for the whole episode"
    by_query = _ask(Team(people, absence="query"))
    assert not torch.equal(_given(by_query[0]), _given(by_query[1]))
    gone = _ask(Team([Member("a", _constant(0), available=0.0)]))[0]
    assert not bool(_given(gone).any())


def test_a_rotation_passes_to_the_next_who_is_there() -> None:
    away = Member("b", _constant(1), available=0.0)
    team = Team([Member("a", _constant(0)), away, Member("c", _constant(2))], turn="rotate")
    assert _ask(team, episodes=6)[0].action[0].tolist() == [0, 2, 2, 0, 2, 2]


def test_availability_and_behaviour_change_with_the_iteration() -> None:
    retires = Member("old", _constant(0), available=lambda time: float(time < 10))
    team = Team([retires, Member("new", Drift(_constant(1), _constant(2), at=20), weight=0.001)])
    assert _near((_ask(team, iteration=9)[0].action == 0).float().mean(), 1 / 1.001, _EPISODES)
    assert set(_ask(team, iteration=10)[0].action.flatten().tolist()) == {1}
    assert set(_ask(team, iteration=20)[0].action.flatten().tolist()) == {2}
    assert set(_ask(team, iteration=0, time=math.inf)[0].action.flatten().tolist()) == {2}, "measured at the end"


def test_a_gradual_drift_mixes_and_leaves_each_side_its_own_chance() -> None:
    team = Team({"a": Drift("uniform", Drift("first", "last", lambda time: 0.5), lambda time: time / 10)})
    action = _ask(team, iteration=4)[0].action
    for k, chance in enumerate([0.6 / 4 + 0.2, 0.6 / 4, 0.6 / 4, 0.6 / 4 + 0.2]):
        assert _near((action == k).float().mean(), chance, _EPISODES)


class _Trained:
    """Like a policy of Stable-Baselines3: returns an array and a state."""

    def predict(self, observation: Any, state: Any = None, deterministic: bool = False) -> tuple[Any, None]:
        return np.array(3 if deterministic else int(torch.randint(4, ()))), None


class _Agent:
    def get_action(self, observation: Any) -> Any:
        return np.int64(2)


def test_policies_with_predict_and_agents_teach_too() -> None:
    before = torch.get_rng_state()
    assert set(_ask(Team({"sb3": _Trained()}), episodes=5)[0].action.flatten().tolist()) == {3}
    assert set(_ask(Team({"agent": _Agent()}), episodes=5)[0].action.flatten().tolist()) == {2}
    sampling = Team({"sb3": Predicting(_Trained(), deterministic=False)})
    one, two = _ask(sampling, episodes=200), _ask(sampling, episodes=200)
    assert set(one[0].action.flatten().tolist()) == {0, 1, 2, 3}
    assert torch.equal(one[0].action, two[0].action)
    assert torch.equal(before, torch.get_rng_state())


def test_none_is_no_answer() -> None:
    shy = Team({"shy": lambda seen, rng: None if seen[0] < 0.00045 else 1})
    assert _given(_ask(shy, episodes=10)[0])[0].tolist() == [False] * 5 + [True] * 5


def test_simulated_members_answer_as_in_a_committee() -> None:
    for answers in (_ask(Team({"x": "first", "y": "last"})), _ask(committee("first+last"))):
        assert torch.equal(answers[0].action, torch.where(answers[0].identity == 0, 0, 3))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (1.5, "answered '1.5'"),
        ("left", "answered 'left'"),
        (4, "from 0 to 3"),
        (np.array([1, 2]), "expected an action"),
    ],
)
def test_what_is_no_action_is_told_with_the_member_that_said_it(value: Any, told: str) -> None:
    with pytest.raises(MemberError, match=told) as caught:
        _ask(Team({"me": lambda seen, rng: value}), episodes=2)
    assert str(caught.value).startswith("(member 'me') ")


def test_a_member_that_raises_is_named() -> None:
    with pytest.raises(MemberError, match=r"\(member 'me'\) raised ZeroDivisionError: integer division"):
        _ask(Team({"me": lambda seen, rng: 1 // 0}), episodes=2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Team({}), "at least one member"),
        (lambda: Team({"a+b": "first"}), "cannot be a member's name"),
        (lambda: Team({"a": "frist"}), "Unknown simulated teacher 'frist'. Did you mean 'first'"),
        (lambda: Team(["first"]), "'first' has no name: give a dict of names and scripts, or Member records"),  # type: ignore[list-item]
        (lambda: NoisyDistance(lambda seen, rng: 1), "is no teacher: put scripts and policies into a team"),  # type: ignore[arg-type]
        (lambda: Team({"a": 5}), "'5' cannot teach: give a callable"),
        (lambda: Team([Member("a", "first", weight=-1)]), "weight of 'a' is -1"),
        (lambda: Team([Member("a", "first", cost=math.nan)]), "cost of 'a' is nan"),
        (lambda: Team([Member("a", "first", weight=0)]), "All weights of the team are 0"),
        (lambda: Team([Member("a", "first", available=1.5)]), "available with probability 1.5"),
        (lambda: Team({"a": "first"}, selection="step"), "Unknown selection rule 'step'"),  # type: ignore[arg-type]
        (lambda: Team({"a": "first"}).reweighted((0.5, 0.5), None), "2 weights for 1 members"),
        (lambda: NoisyDistance(Team({"a": "first"}), noise=-1), "noise is -1"),
    ],
)
def test_a_team_that_cannot_be_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ApilError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
