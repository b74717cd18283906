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
from apil.learning.update import Learner
from apil.optim import optimizer_factory
from apil.query import QUERY_POLICIES
from apil.query.errpred import discrepancy
from apil.query.protocol import QuerySetup
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


def _predicted(policy: ScoredPolicy, beliefs: list[Belief]) -> Any:
    """[episodes, T]: the probability of its network's second output, from the policy's parameters."""
    own = {name: value[0].detach().double().numpy() for name, value in policy.parameters.items()}
    rows = []
    for belief in beliefs:
        left = np.broadcast_to(own["time"][belief.remaining], (6, own["time"].shape[-1]))
        inputs = np.concatenate([belief.state[0].double().numpy(), belief.mean[0].double().numpy(), left], -1)
        logits = np.maximum(inputs @ own["w1"] + own["b1"], 0) @ own["w2"] + own["b2"]
        rows.append(1 / (1 + np.exp(logits[:, 0] - logits[:, 1])))
    return np.stack(rows, -1)


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
@pytest.mark.parametrize("name", ["every", "every-k"])
def test_every_asks_at_each_kth_step(name: str, k: int) -> None:
    episodes, _ = _watched(_agents(name, query_options={"k": k}))
    due = torch.arange(episodes.live.shape[-1]) % k == 0
    assert torch.equal(episodes.answered, episodes.live & due)


def test_always_is_bc() -> None:
    always, bc = (_watched(_agents(query))[0] for query in ("always", "bc"))
    assert torch.equal(always.answered, bc.answered)
    assert torch.equal(always.taken, bc.taken)


def _copied_network(policy: ScoredPolicy, beliefs: list[Belief]) -> Any:
    """[episodes, T, outputs] of the network that `rnd` learns to copy, from scores alone.

    A copy with the constant output c scores mean((c - f0)^2). The scores of c = 0 and of each unit vector tell f0.
    """
    kept = {name: value.detach().clone() for name, value in policy.parameters.items()}
    with torch.no_grad():
        for value in policy.parameters.values():
            value.zero_()
        nothing, found = _scores(policy, beliefs), []
        outputs = policy.parameters["b2"].shape[-1]
        for place in range(outputs):
            policy.parameters["b2"].zero_()[:, place] = 1.0
            found.append((1 - outputs * (_scores(policy, beliefs) - nothing)) / 2)
        for name, value in policy.parameters.items():
            value.copy_(kept[name])
    return np.stack(found, -1)


def test_rnd_is_the_error_against_a_network_that_never_changes() -> None:
    agents = _agents("rnd", threshold=0.0)
    policy = _policy(agents)
    episodes, beliefs = _watched(agents)
    states = torch.stack([belief.state for belief in beliefs], 2)[0].double().numpy()
    copied = _copied_network(policy, beliefs)
    assert copied.std((0, 1)).min() > 1e-3, "it sees the state"
    learner = Learner(agents, optimizer_factory("adam", 1e-3))
    for iteration in range(3):
        w = {name: value[0].detach().double().numpy() for name, value in policy.parameters.items()}
        copy = np.maximum(states @ w["w1"] + w["b1"], 0) @ w["w2"] + w["b2"]
        expected = ((copy - copied) ** 2).mean(-1)
        np.testing.assert_allclose(_scores(policy, beliefs), expected, rtol=1e-4)
        loss = policy.loss(episodes)
        assert loss is not None
        answered = episodes.answered[0].numpy()
        assert float(loss.loss[0].detach()) == pytest.approx(expected[answered].sum() / 6, rel=1e-4)
        learner.update(episodes, iteration)


def _apart(episodes: Episodes) -> Any:
    """[episodes, T]: 1 - pi(a* | s), NaN where not answered."""
    mean, action = episodes.mean[0].double().numpy(), episodes.action[0].numpy()
    found = np.array([[1 - mean[b, t, action[b, t]] for t in range(mean.shape[1])] for b in range(6)])
    return np.where(episodes.answered[0].numpy(), found, np.nan)


def test_safedagger_learns_to_tell_states_where_it_parts_from_its_teacher() -> None:
    agents = _agents("safedagger", threshold=0.45, query_options={"deviation": 0.7, "warm": 0})
    policy = _policy(agents)
    episodes, beliefs = _watched(agents)
    chance = _scores(policy, beliefs)
    live = episodes.live[0].numpy()
    np.testing.assert_array_equal(episodes.answered[0].numpy(), (chance > 0.45) & live)
    apart, expected = _apart(episodes), 0.0
    for place in zip(*np.nonzero(episodes.answered[0].numpy()), strict=True):
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
        rates.append(float(episodes.answered.sum() / episodes.live.sum()))
        _policy(agents).observe(episodes)
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
            assert bool(episodes.answered[0, b, t]) == control
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
    agents = _agents("ensembledagger", query_options={"chi": chi, "tau": 0.54, "warm": 0})
    policy = _policy(agents)
    episodes, beliefs = _watched(agents)
    doubt, predicted = _spread(beliefs) / chi, _predicted(policy, beliefs) / 0.54
    worse = np.maximum(doubt, predicted)
    np.testing.assert_allclose(_scores(policy, beliefs), worse, rtol=1e-4)
    live = episodes.live[0].numpy()
    clear = live & (np.abs(worse - 1) > 1e-3)
    np.testing.assert_array_equal(episodes.answered[0].numpy()[clear], worse[clear] > 1)
    for part in (doubt, predicted):
        assert 0 < (part[clear] > 1).sum() < clear.sum()


def _thrifty(alpha: float) -> tuple[Agents, list[tuple[Episodes, Any, Any]]]:
    """A policy after five batches, and each batch with the novelty and the risk of its states, [episodes, T]."""
    agents = _agents("thriftydagger", threshold=alpha, query_options={"warm": 1})
    policy = _policy(agents)
    batches = []
    for iteration in range(5):
        episodes, beliefs = _watched(agents, iteration)
        batches.append((episodes, _spread(beliefs), 1 - _predicted(policy, beliefs)))
        policy.observe(episodes)
    return agents, batches


def test_thriftydagger_switches_in_the_share_alpha_of_novel_and_of_risky_states() -> None:
    agents, batches = _thrifty(0.2)
    kept: tuple[list[float], list[float]] = ([], [])
    for episodes, *seen in batches:
        for b in range(6):
            for t in range(int(episodes.live[0, b].sum())):
                taught_on = t > 0 and bool(episodes.answered[0, b, t] and episodes.answered[0, b, t - 1])
                if not taught_on:
                    for values, quantity in zip(kept, seen, strict=True):
                        values.append(quantity[b, t])
    policy = _policy(agents)
    known = policy.memory["known"][0].numpy()
    np.testing.assert_allclose(policy.memory["recent"][0].double().numpy()[:, known], kept, atol=1e-6)
    _, beliefs = _watched(agents, 9)
    score = _scores(policy, beliefs)
    now = np.stack([_spread(beliefs), 1 - _predicted(policy, beliefs)])
    # States within rounding of one that is kept may be ranked on either side of it.
    ranks = [[[(np.array(v) < x + nudge).mean() for x in q.flatten()] for v, q in zip(kept, now, strict=True)]
             for nudge in (-1e-6, 1e-6)]  # fmt: skip
    low, high = (np.max(rank, 0) for rank in ranks)
    assert ((low - 1e-6 <= score.flatten()) & (score.flatten() <= high + 1e-6)).all()
    assert (high - low).max() < 0.05
    limits = [np.quantile(values, 0.8) for values in kept]
    switches = (now[0] > limits[0]) | (now[1] > limits[1])
    clear = np.abs(score - 0.8) > 1e-2
    np.testing.assert_array_equal((score > 0.8)[clear], switches[clear])
    assert 0 < switches[clear].sum() < clear.sum()


def test_thriftydagger_learns_the_discounted_chance_of_success() -> None:
    agents = _agents("thriftydagger", query_options={"gamma": 0.8, "warm": 1})
    policy = _policy(agents)
    episodes, beliefs = _watched(agents)
    quality = _predicted(policy, beliefs)
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


def test_the_greedy_action_of_continuous_actions_is_the_mean_one() -> None:
    team = Team({"one": lambda seen, rng: np.clip([-seen[0], 5 - seen[1]], [-2, 0], [2, 10])})
    trained = apil.train(_reach(), team, "random", iterations=3, batch=3, budget=0.3)
    greedy, sampled = (collect(trained.agents, 0, 4, "alone", "evaluation/", greedy=greedy) for greedy in (True, False))
    torch.testing.assert_close(greedy.taken, _BOX.unscaled(greedy.mean[..., :2]))
    assert not torch.equal(greedy.taken, sampled.taken)
    assert 0 <= trained.evaluate(5)["success_greedy"] <= 1


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
