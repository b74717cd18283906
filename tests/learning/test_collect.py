"""Alg 1: whose action is executed, what the learner gets to see, and when an episode ends."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import apil
from apil.errors import ApilError
from apil.learning.build import build
from apil.learning.collect import Acting, Agents, collect
from apil.query import QUERY_POLICIES
from apil.query.rules import Coin
from apil.query.scored import scored
from apil.settings import RunSettings
from apil.types import Belief, Episodes

_SIZE = 5


def _config(query: str, task: str = "grid", teacher: str = "last", **settings: Any) -> RunSettings:
    return RunSettings.of(task, teacher, query, **{"threshold": 0.3, "seed": 1, **settings})


def _collect(config: RunSettings, episodes: int = 20, acting: Acting = "training") -> Episodes:
    return collect(build([config]), 0, episodes, acting)


def _cells(episodes: Episodes) -> Tensor:
    """[runs, episodes, T]: where the agent stood on the grid; its cell has the highest value."""
    return episodes.features.argmax(-1)


def _moved(cells: Tensor) -> Tensor:
    """[runs, episodes, T - 1]: the executed actions, 0 right and 1 down."""
    return (cells.diff(dim=-1) == _SIZE).long()


def test_behaviour_cloning_does_what_the_teacher_says() -> None:
    episodes = _collect(_config("bc"))
    assert bool(episodes.answered.all())
    assert torch.equal(_moved(_cells(episodes)), episodes.action[..., :-1])
    # The teacher that prefers the last reference action goes down first, then right.
    assert _cells(episodes)[0, 0].tolist() == [0, 5, 10, 15, 20, 21, 22, 23]


def test_dagger_asks_everywhere_and_acts_by_itself() -> None:
    dagger, never = _collect(_config("dagger")), _collect(_config("never"))
    assert bool(dagger.answered.all())
    assert torch.equal(_cells(dagger), _cells(never)), "it walks as if it had not asked"
    assert not torch.equal(_moved(_cells(dagger)), dagger.action[..., :-1])
    # The label is the teacher's action in the state where the agent stands: down unless on the bottom row.
    assert torch.equal(dagger.action, (_cells(dagger) < _SIZE * (_SIZE - 1)).long())


@pytest.mark.parametrize("query", ["random", "apil"])
def test_an_active_learner_executes_the_answer_where_it_asked_and_its_own_action_elsewhere(query: str) -> None:
    episodes = _collect(_config(query), episodes=50)
    answered = episodes.answered[..., :-1]
    moved = _moved(_cells(episodes))
    both_valid = episodes.valid_actions[..., :-1, :].all(-1)
    assert torch.equal(moved[answered], episodes.action[..., :-1][answered])
    own = moved[~answered & both_valid]
    assert 0 < int(own.sum()) < len(own), "the agent's own actions are sampled"


@pytest.mark.parametrize("query", ["bc", "dagger", "random"])
def test_evaluation_alone_executes_no_answer_and_with_help_every_answer(query: str) -> None:
    alone, helped = (_collect(_config(query), acting=acting) for acting in ("alone", "helped"))
    assert torch.equal(_cells(alone), _cells(_collect(_config("never"))))
    where = helped.answered[..., :-1]
    assert torch.equal(_moved(_cells(helped))[where], helped.action[..., :-1][where])
    if query == "dagger":
        assert torch.equal(_cells(helped), _cells(_collect(_config("bc"))))


@pytest.mark.parametrize("task", ["grid", "maze"])
@pytest.mark.parametrize("query", QUERY_POLICIES.names())
def test_the_learner_sees_of_the_teacher_only_what_it_asked_for(task: str, query: str) -> None:
    agents = build([_config(query, task, "twodifdetm"), _config(query, task, "twodifdetm", seed=2)])
    episodes = collect(agents, 0, 10)
    answered = episodes.answered
    assert bool(episodes.distance[~answered].isnan().all())
    assert bool((episodes.distance[answered] >= 0).all())
    assert not bool(episodes.action[~answered].any())
    assert not bool(episodes.identity[~answered].any())
    assert not bool((answered & ~episodes.live).any()), "nothing is asked after the end"
    assert torch.equal(answered, episodes.live) or query not in ("bc", "dagger")
    chosen = episodes.valid_actions.gather(-1, episodes.action.unsqueeze(-1)).squeeze(-1)
    assert bool(chosen[answered].all())
    assert torch.equal(episodes.success, episodes.final_distance == 0)


def test_a_follower_of_the_teacher_walks_a_shortest_path_and_stops_at_the_goal() -> None:
    episodes = _collect(_config("bc", "maze", "rand"), episodes=200)
    length = episodes.distance[..., 0]
    assert bool((episodes.final_distance == 0).all())
    assert torch.equal(episodes.live.sum(-1).float(), length)
    steps = torch.arange(episodes.live.shape[-1])
    assert torch.equal(episodes.live, steps < length.unsqueeze(-1))
    expected = (length.unsqueeze(-1) - steps)[episodes.live]
    assert torch.equal(episodes.distance[episodes.live], expected)


def test_an_agent_can_fail_in_the_maze_and_its_last_distance_is_known() -> None:
    episodes = _collect(_config("never", "maze"), episodes=200)
    assert 0 < int(episodes.success.sum()) < 200
    failed = ~episodes.success
    assert bool(episodes.live[failed].all()), "who does not arrive walks to the horizon"
    assert bool((episodes.final_distance[failed] > 0).all())


@pytest.mark.parametrize("task", ["grid", "maze"])
def test_invalid_actions_are_never_believed_in(task: str) -> None:
    episodes = _collect(_config("random", task, "twodifdetm"), episodes=30)
    assert bool((episodes.mean[~episodes.valid_actions] == 0).all())
    assert torch.allclose(episodes.mean.sum(-1), torch.ones(()), atol=1e-5)


def test_another_iteration_or_prefix_is_another_batch_and_the_same_is_the_same() -> None:
    agents: Agents = build([_config("random", "maze")])
    batch = collect(agents, 3, 10)
    same, later, other = collect(agents, 3, 10), collect(agents, 4, 10), collect(agents, 3, 10, prefix="evaluation/")
    assert torch.equal(batch.features, same.features)
    assert torch.equal(batch.mean, same.mean)
    assert not torch.equal(batch.features, later.features)
    assert not torch.equal(batch.features, other.features)


@pytest.mark.parametrize(
    ("decide", "told"),
    [
        (lambda belief, luck: belief.mean.amax(-1), r"\[1, 4\] of type torch.float32 where decisions are due"),
        (lambda belief, luck: (luck < 0.5).unsqueeze(-1), r"\[1, 4, 1\] of type torch.bool where decisions are due"),
        (lambda belief, luck: True, "returned True where decisions are due"),
    ],
)
@pytest.mark.parametrize("beside", [(), ("dagger",)])
def test_a_query_policy_that_does_not_decide_is_named(decide: Any, told: str, beside: tuple[str, ...]) -> None:
    class Undecided(Coin):
        def ask(self, belief: Belief, luck: Tensor) -> Any:
            return decide(belief, luck)

    apil.register_query_policy("undecided", lambda setup: Undecided(torch.ones(1)))
    try:
        with pytest.raises(ApilError, match=f"query policy 'undecided' returned .*{told.removeprefix('returned ')}"):
            collect(build([_config(query) for query in ("undecided", *beside)]), 0, 4)
    finally:
        QUERY_POLICIES.forget("undecided")


def test_a_score_of_another_shape_is_named() -> None:
    apil.register_query_policy("wide", scored(lambda belief: belief.mean))
    try:
        with pytest.raises(ApilError, match=r"'wide': its score is a tensor \[1, 4, 2\], expected \[1, 4\]"):
            collect(build([_config("wide")]), 0, 4)
    finally:
        QUERY_POLICIES.forget("wide")
