"""Fixed rules, and that every registered query policy keeps the protocol."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
import torch
from torch import Tensor

from apil.errors import ApilError
from apil.learning.build import build
from apil.learning.collect import collect
from apil.learning.group import take
from apil.query import QUERY_POLICIES, THRESHOLD_POLICIES, default_threshold
from apil.query.protocol import QueryPolicy, QuerySetup
from apil.rng import Streams
from apil.settings import RunSettings
from apil.types import Belief, Uncertainty

_STATE, _ACTIONS, _HORIZON = 4, 3, 5
_LEARNERS = ("apil", "slip", "errpred", "rnd", "safedagger", "lazydagger", "ensembledagger", "thriftydagger")


def _policy(name: str, thresholds: list[float]) -> QueryPolicy:
    setup = QuerySetup(
        streams=Streams(list(range(len(thresholds)))),
        state_size=_STATE,
        actions=_ACTIONS,
        horizon=_HORIZON,
        thresholds=torch.tensor(thresholds),
    )
    policy: QueryPolicy = QUERY_POLICIES.load(name)(setup)
    return policy


def _belief(runs: int, episodes: int, **parts: Tensor) -> Belief:
    nothing = torch.zeros(runs, episodes)
    return Belief(
        state=torch.rand(runs, episodes, _STATE, generator=torch.Generator().manual_seed(0)),
        mean=torch.full((runs, episodes, _ACTIONS), 1 / _ACTIONS),
        identity=torch.ones(runs, episodes, 1),
        uncertainty=Uncertainty(**{f.name: parts.get(f.name, nothing) for f in fields(Uncertainty)}),
        remaining=_HORIZON,
        of_model=torch.rand(runs, episodes, 10, _ACTIONS, generator=torch.Generator().manual_seed(1)).softmax(-1),
    )


def _luck(runs: int, episodes: int) -> Tensor:
    return Streams(list(range(runs))).draws("query", 0).uniform(episodes)


@pytest.mark.parametrize(
    ("name", "part"),
    [("intrun", "intrinsic"), ("extrun", "extrinsic"), ("behvun", "behavioral"), ("modlun", "model")],
)
def test_an_uncertainty_rule_asks_where_its_own_part_is_above_the_runs_threshold(name: str, part: str) -> None:
    value = torch.tensor([[0.1, 0.25, 0.3, 0.9]] * 2)
    policy = _policy(name, [0.25, 0.5])
    asks = policy.begin(4).ask(_belief(2, 4, **{part: value}), _luck(2, 4))
    assert asks.tolist() == [[False, False, True, True], [False, False, False, True]]
    others = {f.name: value for f in fields(Uncertainty) if f.name != part}
    assert not bool(policy.begin(4).ask(_belief(2, 4, **others), _luck(2, 4)).any())


def test_always_and_never_are_certain() -> None:
    count = 100_000
    luck = _luck(1, count)
    for name, asks in (("bc", True), ("dagger", True), ("never", False)):
        assert bool((_policy(name, [math.nan]).begin(count).ask(_belief(1, count), luck) == asks).all())


def test_random_asks_with_each_runs_own_probability() -> None:
    count = 20_000
    chances = [0.0, 0.1, 0.7, 1.0]
    asks = _policy("random", chances).begin(count).ask(_belief(4, count), _luck(4, count))
    for share, chance in zip(asks.double().mean(1).tolist(), chances, strict=True):
        assert abs(share - chance) <= 5 * math.sqrt(chance * (1 - chance) / count)


def test_only_dagger_acts_by_itself_where_it_asked() -> None:
    follows = {name: _policy(name, [0.1]).executes_answer for name in QUERY_POLICIES.names()}
    assert [name for name, answer in follows.items() if not answer] == ["dagger"]


@pytest.mark.parametrize("name", QUERY_POLICIES.names())
def test_every_policy_decides_for_a_run_the_same_alone_and_in_a_stack(name: str) -> None:
    belief, luck = _belief(3, 7, **{f.name: _luck(3, 7) for f in fields(Uncertainty)}), _luck(3, 7)
    stack = _policy(name, [0.3, 0.5, 0.7]).begin(7).ask(belief, luck)
    first = take(belief, slice(0, 1))
    assert stack.dtype == torch.bool
    assert torch.equal(_policy(name, [0.3]).begin(7).ask(first, luck[:1]), stack[:1])


@pytest.mark.parametrize("name", QUERY_POLICIES.names())
def test_a_policy_has_a_loss_if_and_only_if_it_has_something_to_learn(name: str) -> None:
    agents = build([RunSettings.of("grid", "detm", name, threshold=0.2)])
    policy = agents.queries[0].part
    loss = policy.loss(collect(agents, 0, 2))
    assert (loss is not None) == bool(policy.parameters) == (name in _LEARNERS)


@pytest.mark.parametrize("name", [name for name in THRESHOLD_POLICIES if default_threshold(name) is None])
def test_a_policy_without_its_threshold_is_refused_with_the_remedy(name: str) -> None:
    with pytest.raises(ApilError, match=f"No threshold is known for '{name}' on 'grid': run `apil calibrate"):
        build([RunSettings.of("grid", "detm", name)])
