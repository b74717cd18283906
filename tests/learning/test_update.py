"""What an iteration changes: each loss its own part, and nothing without a label."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from apil.errors import ApilError
from apil.learning.build import build
from apil.learning.collect import Agents, collect
from apil.learning.state import weights
from apil.learning.trainer import Trainer
from apil.learning.update import Learner
from apil.optim import optimizer_factory
from apil.query import QUERY_POLICIES
from apil.settings import RunSettings
from apil.types import Episodes

Weights = dict[str, torch.Tensor]


def _config(query: str, teacher: str = "twodifdetm", seed: int = 1) -> RunSettings:
    return RunSettings.of("maze", teacher, query, seed=seed, threshold=0.3, batch=4)


def _weights(agents: Agents, run: int = 0) -> Weights:
    """What a run has learned; what a query policy remembers beside that is none of its weights."""
    named = weights(agents, run).items()
    return {name: value.clone() for name, value in named if not name.startswith("memory.")}


def _changed(before: Weights, after: Weights) -> set[str]:
    return {name for name, value in before.items() if not torch.equal(value, after[name])}


def _silent(episodes: Episodes) -> Episodes:
    """The same episodes as if nobody had answered."""
    answered = torch.zeros_like(episodes.answered)
    return replace(
        episodes,
        answered=answered,
        action=torch.zeros_like(episodes.action),
        distance=torch.full_like(episodes.distance, torch.nan),
        identity=torch.zeros_like(episodes.identity),
    )


@pytest.mark.parametrize("query", QUERY_POLICIES.names())
def test_all_parts_learn_where_there_are_answers(query: str) -> None:
    agents = build([_config(query)])
    # Episodes of a run that asks everywhere, so that every policy has labels.
    episodes = collect(build([_config("bc")]), 0, 4)
    before = _weights(agents)
    Learner(agents, optimizer_factory("adam", 1e-3)).update(episodes, 0)
    assert _changed(before, _weights(agents)) == set(before)


@pytest.mark.parametrize("query", QUERY_POLICIES.names())
def test_without_answers_only_predictors_of_the_end_learn_and_only_when_to_ask(query: str) -> None:
    agents = build([_config(query)])
    learner = Learner(agents, optimizer_factory("adam", 1e-3))
    episodes = collect(build([_config("bc")]), 0, 4)
    learner.update(episodes, 0)
    before = _weights(agents)
    # Moments of the first update are there, but without a label they move nothing.
    learner.update(_silent(episodes), 1)
    query_weights = {name for name in before if name.startswith("query.")}
    assert _changed(before, _weights(agents)) == (
        query_weights if query in ("apil", "slip", "thriftydagger") else set()
    )


def test_a_run_that_never_asks_keeps_its_weights_beside_one_that_learns() -> None:
    trainer = Trainer([replace(_config(query), iterations=3, log_every=3) for query in ("never", "bc")])
    before = [_weights(trainer.agents, run) for run in (0, 1)]
    trainer.train()
    assert _changed(before[0], _weights(trainer.agents, 0)) == set()
    assert _changed(before[1], _weights(trainer.agents, 1)) == set(before[1])


@pytest.mark.parametrize("query", ["apil", "errpred"])
def test_a_query_loss_does_not_reach_policy_or_identity(query: str) -> None:
    episodes = collect(build([_config("bc")]), 0, 4)
    found = []
    for name in (query, "bc"):
        agents = build([_config(name)])
        learner = Learner(agents, optimizer_factory("adam", 1e-3))
        for iteration in range(3):
            learner.update(episodes, iteration)
        found.append(_weights(agents))
    assert all(torch.equal(found[0][name], value) for name, value in found[1].items())


def test_the_identity_loss_does_not_reach_the_policy() -> None:
    episodes = collect(build([_config("bc")]), 0, 4)
    found = []
    for scale in (1.0, 5.0):
        agents = build([_config("bc")])
        # Another identity model gives another identity loss; the policy must not notice.
        for value in agents.model.identity.values():
            value *= scale
        Learner(agents, optimizer_factory("adam", 1e-3)).update(episodes, 0)
        found.append(_weights(agents))
    assert {name for name in _changed(*found) if name.startswith("policy.")} == set()
    assert _changed(*found)


def test_a_loss_that_is_not_finite_stops_the_run_with_a_remedy() -> None:
    with pytest.raises(ApilError, match=r"is not finite at iteration .*query bc, seed 1.*lower --learning-rate"):
        Trainer([_config("bc").changed(learning_rate=1e30, iterations=20)]).train()
