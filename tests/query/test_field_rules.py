"""The rules of the field, each against its formula worked out in another way."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from toy_environments import Shows

import apil
from apil.errors import ApilError
from apil.learning.build import build
from apil.learning.collect import Agents, Step, collect
from apil.query import QUERY_POLICIES
from apil.query.protocol import QuerySetup
from apil.query.safety import discrepancy
from apil.query.scored import ScoredPolicy
from apil.rng import Streams
from apil.settings import RunSettings
from apil.tasks import from_gymnasium
from apil.teachers import Team
from apil.types import ActionBox, Belief, Episodes


def _agents(query: str, **settings: Any) -> Agents:
    return build([RunSettings.of("maze", "twodifdetm", query, seed=3, batch=6, **settings)])


def _policy(agents: Agents) -> ScoredPolicy:
    policy = agents.queries[0].part
    assert isinstance(policy, ScoredPolicy)
    return policy


def _watched(agents: Agents, iteration: int = 0) -> tuple[Episodes, list[Belief]]:
    """Six episodes and the beliefs of every step."""
    beliefs: list[Belief] = []

    def watch(state: Any, step: Step) -> None:
        beliefs.append(step.belief)

    return collect(agents, iteration, 6, watch=watch), beliefs


def _scores(policy: ScoredPolicy, beliefs: list[Belief]) -> Any:
    """[episodes, T] of the one run."""
    step = policy.score.begin(6)
    with torch.no_grad():
        return torch.stack([step(belief) for belief in beliefs], -1)[0].double().numpy()


def _means(beliefs: list[Belief]) -> Any:
    """[episodes, T, A]"""
    return torch.stack([belief.mean for belief in beliefs], 2)[0].double().numpy()


def _spread(beliefs: list[Belief]) -> Any:
    """[episodes, T]: the sum over actions of mean of squares less square of mean, over the ten models."""
    assert all(belief.of_model is not None for belief in beliefs)
    of_model = np.stack([belief.of_model[0].double().numpy() for belief in beliefs], 1)  # type: ignore[index]
    return ((of_model**2).mean(2) - of_model.mean(2) ** 2).sum(-1)


def test_least_confidence_is_one_minus_the_highest_probability() -> None:
    _, beliefs = _watched(_agents("random", threshold=0.5))
    found = _scores(_policy(_agents("least-confidence", threshold=0.1)), beliefs)
    expected = [[1 - max(p) for p in episode] for episode in _means(beliefs)]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_margin_is_one_minus_the_lead_of_the_first_action() -> None:
    _, beliefs = _watched(_agents("random", threshold=0.5))
    found = _scores(_policy(_agents("margin", threshold=0.1)), beliefs)
    ordered = [[sorted(p, reverse=True) for p in episode] for episode in _means(beliefs)]
    np.testing.assert_allclose(found, [[1 - (p[0] - p[1]) for p in episode] for episode in ordered], atol=1e-6)


def test_entropy_is_that_of_the_mean_policy_in_bits() -> None:
    _, beliefs = _watched(_agents("random", threshold=0.5))
    found = _scores(_policy(_agents("entropy", threshold=0.1)), beliefs)
    expected = [[-sum(x * math.log2(x) for x in p if x > 0) for p in episode] for episode in _means(beliefs)]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_variance_is_that_of_the_models_whose_mean_is_the_mean_policy() -> None:
    _, beliefs = _watched(_agents("random", threshold=0.5))
    found = _scores(_policy(_agents("variance", threshold=0.1)), beliefs)
    np.testing.assert_allclose(found, _spread(beliefs), atol=1e-6)
    assert found.max() > 1e-4
    for belief in beliefs:
        assert belief.of_model is not None
        torch.testing.assert_close(belief.of_model.mean(2), belief.mean)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_every_asks_at_each_kth_step(k: int) -> None:
    episodes, _ = _watched(_agents("every", query_options={"k": k}))
    due = torch.arange(episodes.live.shape[-1]) % k == 0
    assert torch.equal(episodes.asked, episodes.live & due)


def test_always_is_bc() -> None:
    always, bc = (_watched(_agents(query))[0] for query in ("always", "bc"))
    assert torch.equal(always.asked, bc.asked)
    assert torch.equal(always.taken, bc.taken)


def test_rnd_is_the_error_against_a_network_that_never_changes() -> None:
    agents = _agents("rnd", threshold=0.0)
    policy: Any = _policy(agents)
    episodes, beliefs = _watched(agents)
    networks = [{n: v[0].detach().numpy() for n, v in p.items()} for p in (policy.parameters, policy.score._target)]
    states = torch.stack([belief.state for belief in beliefs], 2)[0].numpy()

    def forward(w: dict[str, Any]) -> Any:
        return np.maximum(states @ w["w1"] + w["b1"], 0) @ w["w2"] + w["b2"]

    expected = ((forward(networks[0]) - forward(networks[1])) ** 2).mean(-1)
    np.testing.assert_allclose(_scores(policy, beliefs), expected, rtol=1e-4)
    loss = policy.loss(episodes)
    assert loss is not None
    asked = episodes.asked[0].numpy()
    assert float(loss.loss[0]) == pytest.approx(expected[asked].sum() / 6, rel=1e-4)


def _apart(episodes: Episodes) -> Any:
    """[episodes, T]: 1 - pi(a* | s), NaN where not asked."""
    mean, action = episodes.mean[0].double().numpy(), episodes.action[0].numpy()
    found = np.array([[1 - mean[b, t, action[b, t]] for t in range(mean.shape[1])] for b in range(6)])
    return np.where(episodes.asked[0].numpy(), found, np.nan)


def test_safedagger_learns_to_tell_states_where_it_parts_from_its_teacher() -> None:
    agents = _agents("safedagger", threshold=0.45, query_options={"deviation": 0.7, "warm": 0})
    policy = _policy(agents)
    episodes, beliefs = _watched(agents)
    chance = _scores(policy, beliefs)
    live = episodes.live[0].numpy()
    np.testing.assert_array_equal(episodes.asked[0].numpy(), (chance > 0.45) & live)
    apart, expected = _apart(episodes), 0.0
    for place in zip(*np.nonzero(episodes.asked[0].numpy()), strict=True):
        expected -= math.log(chance[place] if apart[place] > 0.7 else 1 - chance[place])
    loss = policy.loss(episodes)
    assert loss is not None
    assert expected > 0
    assert float(loss.loss[0]) == pytest.approx(expected / 6, rel=1e-4)


def test_it_begins_with_full_teaching() -> None:
    agents = _agents("safedagger", threshold=1.0, query_options={"warm": 2})
    rates = []
    for iteration in range(4):
        episodes, _ = _watched(agents, iteration)
        rates.append(float(episodes.asked.sum() / episodes.live.sum()))
        _policy(agents).loss(episodes)
    assert rates == [1.0, 1.0, 0.0, 0.0]


def test_a_lazy_teacher_keeps_control_until_the_agent_agrees() -> None:
    agents = _agents("lazydagger", threshold=0.5, query_options={"deviation": 0.9, "release": 0.72, "warm": 0})
    episodes, beliefs = _watched(agents)
    fired, apart = _scores(_policy(agents), beliefs) > 0.5, _apart(episodes)
    held_somewhere = False
    for b in range(6):
        control = False
        for t in range(int(episodes.live[0, b].sum())):
            control = control or bool(fired[b, t])
            assert bool(episodes.asked[0, b, t]) == control
            held_somewhere |= control and not fired[b, t]
            control = control and not apart[b, t] < 0.72
    assert held_somewhere, "the case that tells it from SafeDAgger came up"


def test_alone_a_lazy_agent_would_ask_where_its_classifier_says_so() -> None:
    agents = _agents("lazydagger", threshold=0.5, query_options={"warm": 0})
    alone = collect(agents, 0, 6, "alone")
    safe = _agents("safedagger", threshold=0.5, query_options={"warm": 0})
    # The same weights: the two networks differ by their names alone.
    for name, value in _policy(safe).parameters.items():
        value.copy_(_policy(agents).parameters[name])
    assert torch.equal(alone.unanswered, collect(safe, 0, 6, "alone").unanswered)


def test_ensembledagger_takes_the_worse_of_doubt_and_discrepancy() -> None:
    chi = float(np.median(_spread(_watched(_agents("never"))[1])))
    agents = _agents("ensembledagger", query_options={"chi": chi, "tau": 0.6, "warm": 0})
    policy: Any = _policy(agents)
    episodes, beliefs = _watched(agents)
    predict = policy.score._predicted.begin(6)
    predicted = torch.stack([predict(belief) for belief in beliefs], -1)[0].detach().double().numpy()
    doubts, apart = _spread(beliefs) > chi, predicted > 0.6
    live = episodes.live[0].numpy()
    np.testing.assert_array_equal(episodes.asked[0].numpy(), (doubts | apart) & live)
    assert 0 < (doubts & live).sum() < live.sum()


def _thrifty(alpha: float) -> tuple[Agents, list[tuple[Episodes, Any, Any]]]:
    """A policy after five batches, and each batch with the novelty and the risk of its states, [episodes, T]."""
    agents = _agents("thriftydagger", threshold=alpha, query_options={"warm": 1})
    policy: Any = _policy(agents)
    batches = []
    for iteration in range(5):
        episodes, beliefs = _watched(agents, iteration)
        seen = torch.stack(policy.score._seen, -1)[0].double().numpy()
        np.testing.assert_allclose(seen[0], _spread(beliefs), atol=1e-6)
        batches.append((episodes, *seen))
        policy.loss(episodes)
    return agents, batches


def test_thriftydagger_switches_in_the_share_alpha_of_novel_and_of_risky_states() -> None:
    agents, batches = _thrifty(0.2)
    kept: tuple[list[float], list[float]] = ([], [])
    for episodes, *seen in batches:
        for b in range(6):
            for t in range(int(episodes.live[0, b].sum())):
                taught_on = t > 0 and bool(episodes.asked[0, b, t] and episodes.asked[0, b, t - 1])
                if not taught_on:
                    for values, quantity in zip(kept, seen, strict=True):
                        values.append(quantity[b, t])
    policy: Any = _policy(agents)
    known = policy.memory["known"][0].numpy()
    np.testing.assert_allclose(policy.memory["recent"][0].double().numpy()[:, known], kept, atol=1e-7)
    _, beliefs = _watched(agents, 9)
    score = _scores(policy, beliefs)
    now = torch.stack(policy.score._seen, -1)[0].double().numpy()
    limits = [np.sort(values)[math.ceil(0.8 * len(values))] for values in kept]
    switches = (now[0] > limits[0]) | (now[1] > limits[1])
    # States right at a limit may fall on either side: the rank counts them from below.
    near = (np.abs(now[0] - limits[0]) < 1e-7) | (np.abs(now[1] - limits[1]) < 1e-7)
    rank = [[(np.array(v) < x).mean() for x in q.flatten()] for v, q in zip(kept, now, strict=True)]
    np.testing.assert_allclose(score.flatten(), np.max(rank, 0), atol=2e-3)
    wrong = ((score > 0.8) != switches) & ~near & (np.abs(score - 0.8) > 1e-2)
    assert not wrong.any()


def test_thriftydagger_learns_the_discounted_chance_of_success() -> None:
    agents = _agents("thriftydagger", query_options={"gamma": 0.8, "warm": 1})
    policy = _policy(agents)
    episodes, beliefs = _watched(agents)
    step: Any = policy.score._network.begin(6)  # type: ignore[attr-defined]
    quality = torch.stack([step.logits(b).softmax(-1)[..., 1] for b in beliefs], -1)[0].detach().double().numpy()
    expected = 0.0
    for b in range(6):
        last = int(episodes.live[0, b].sum()) - 1
        for t in range(last + 1):
            target = float(episodes.success[0, b]) if t == last else 0.8 * quality[b, t + 1]
            expected += (quality[b, t] - target) ** 2
    loss = policy.loss(episodes)
    assert loss is not None
    assert float(loss.loss[0]) == pytest.approx(expected / 6, rel=1e-4)


# Continuous actions.


_BOX = ActionBox(torch.tensor([-2.0, 0.0]), torch.tensor([2.0, 10.0]))


def test_the_discrepancy_of_continuous_actions_is_that_of_the_scaled_mean_action() -> None:
    # Mean actions (0, 5) and, beyond the box, (2, 10); the last two numbers are deviations.
    mean = torch.tensor([[0.0, 0.0, 0.3, 0.3], [1.5, 1.2, 0.3, 0.3]])
    answer = torch.tensor([[1.0, 10.0], [2.0, 7.5]])
    torch.testing.assert_close(discrepancy(mean, answer, _BOX), torch.tensor([0.5**2 + 1.0**2, 0.5**2]))


def _reach() -> Any:
    """A place in a square, to be led to the middle of it by steps of two numbers."""
    space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    make = lambda: Shows(space, action_space=spaces.Box(_BOX.low.numpy(), _BOX.high.numpy()))  # noqa: E731
    return from_gymnasium(make, distance=lambda env: float(np.abs(env.observation).max()), horizon=4, name="reach")


@pytest.mark.parametrize("query", ["variance", "rnd", "safedagger", "lazydagger", "ensembledagger", "thriftydagger"])
def test_rules_for_both_kinds_of_actions_train_where_an_action_has_two_numbers(query: str) -> None:
    team = Team({"one": lambda seen, rng: np.clip([-seen[0], 5 - seen[1]], [-2, 0], [2, 10])})
    options: dict[str, Any] = {} if query in ("variance", "rnd") else {"query_options": {"warm": 1}}
    trained = apil.train(_reach(), team, query, iterations=3, batch=3, budget=0.3, log_every=1, **options)
    assert all(math.isfinite(row["query_loss"]) for row in trained.rows if row.get("query_loss") is not None)


# What a rule refuses.


def test_a_rule_of_probabilities_refuses_continuous_actions() -> None:
    setup = QuerySetup(
        Streams([0]), 4, 2, 5, torch.tensor([0.1]), box=ActionBox(torch.tensor([-1.0]), torch.tensor([1.0]))
    )
    for name in ("least-confidence", "margin", "entropy"):
        with pytest.raises(ApilError, match=f"'{name}' reads action probabilities"):
            QUERY_POLICIES.load(name)(setup)
    QUERY_POLICIES.load("variance")(setup)


def test_a_model_that_does_not_tell_its_ensemble_apart_is_told() -> None:
    _, beliefs = _watched(_agents("never"))
    step = _policy(_agents("variance", threshold=0.1)).score.begin(6)
    with pytest.raises(ApilError, match="does not tell its ensemble apart"):
        step(replace(beliefs[0], of_model=None))


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("every", {"k": 0}, "k of the query policy 'every' is 0"),
        ("every", {"kk": 3}, "Unknown option of the query policy 'every' 'kk'. Did you mean 'k'?"),
        ("never", {"k": 3}, "Unknown option of the query policy 'never' 'k'"),
        ("safedagger", {"deviation": 0.0}, "deviation of the query policy 'safedagger' is 0"),
        ("lazydagger", {"release": 0.6}, "release of 'lazydagger' is 0.6"),
        ("ensembledagger", {"chi": -1.0}, "chi of the query policy 'ensembledagger' is -1"),
        ("thriftydagger", {"gamma": 1.5}, "gamma of the query policy 'thriftydagger' is 1.5"),
    ],
)
def test_a_wrong_option_is_named(query: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ApilError, match=message.replace("?", "\\?")):
        _agents(query, query_options=options)
