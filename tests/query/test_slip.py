"""SLIP: where hindsight finds a slip, and the score against its formula worked out in another way."""

from __future__ import annotations

import itertools
import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

import apil
from apil.query.protocol import QuerySetup
from apil.query.slip import ANSWERS, REACH, REPEAT, RETURNED, Slip, slip, slips
from apil.rng import Streams
from apil.types import Answer, Belief, Episodes, Uncertainty


def _by_hand(way: list[int], horizon: int, success: bool) -> tuple[list[float], list[bool]]:
    """The same as `slips` of one episode whose states are numbers, read off the definition."""
    circles = [(j, i) for i, j in itertools.combinations(range(len(way)), 2) if way[i] == way[j]]
    if circles:
        end = min(j for j, _ in circles)
        start = max(i for j, i in circles if j == end)
        return [float(start <= t < end) for t in range(horizon)], [t < end for t in range(horizon)]
    known = [t < len(way) for t in range(horizon)]
    if success:
        return [0.0] * horizon, known
    if len(way) < horizon:
        return [float(t == len(way) - 1) for t in range(horizon)], known
    return [1 / horizon] * horizon, known


@pytest.mark.parametrize("success", [True, False])
def test_hindsight_finds_the_first_circle_an_early_end_or_lost_time(success: bool) -> None:
    rng, horizon = np.random.default_rng(0), 6
    ways = [rng.integers(0, 9, size=rng.integers(1, horizon + 1)).tolist() for _ in range(300)]
    padded = torch.tensor([[*way, *[way[-1]] * (horizon - len(way))] for way in ways])
    live = torch.tensor([[t < len(way) for t in range(horizon)] for way in ways])
    found, known = slips(padded.unsqueeze(2) == padded.unsqueeze(1), live, torch.full((len(ways),), success))
    for way, own, counts in zip(ways, found, known, strict=True):
        expected, of = _by_hand(way, horizon, success)
        assert counts.tolist() == of
        assert torch.where(counts, own, 0.0).tolist() == pytest.approx(
            [e * k for e, k in zip(expected, of, strict=True)]
        )


def _policy(threshold: float = 0.5) -> Slip:
    return slip(QuerySetup(Streams([7]), 4, 3, 5, torch.tensor([threshold]), features=6))


def _episodes() -> Episodes:
    """Two episodes of five steps on a line of features; the second step of each is answered."""
    generator = torch.Generator().manual_seed(1)
    features = torch.rand(1, 2, 5, 6, generator=generator)
    answered = torch.zeros(1, 2, 5, dtype=torch.bool)
    answered[:, :, 1] = True
    zeros = torch.zeros(1, 2, 5)
    return Episodes(
        features=features,
        state=torch.rand(1, 2, 5, 4, generator=generator),
        valid_actions=torch.ones(1, 2, 5, 3, dtype=torch.bool),
        answered=answered,
        action=zeros.long(),
        distance=zeros,
        identity=zeros.long(),
        live=torch.ones(1, 2, 5, dtype=torch.bool),
        mean=torch.full((1, 2, 5, 3), 1 / 3),
        identity_belief=torch.ones(1, 2, 5, 1),
        unanswered=torch.zeros_like(answered),
        taken=zeros.long(),
        final_distance=torch.ones(1, 2),
        success=torch.zeros(1, 2, dtype=torch.bool),
        uncertainty=Uncertainty(**{f.name: zeros for f in fields(Uncertainty)}),
        notes=torch.zeros(1, 2, 5, 0),
    )


def _belief(features: torch.Tensor, remaining: int) -> Belief:
    nothing = torch.zeros(1, 1)
    return Belief(
        state=features[..., :4],
        mean=torch.full((1, 1, 3), 1 / 3),
        identity=torch.ones(1, 1, 1),
        uncertainty=Uncertainty(**{f.name: nothing for f in fields(Uncertainty)}),
        remaining=remaining,
        features=features,
    )


def test_the_score_is_its_formula() -> None:
    """Features, answers and the network's own probabilities give the score of every step."""
    policy = _policy()
    episodes = _episodes()
    policy.observe(episodes)
    seen = episodes.features.reshape(-1, 6).double().numpy()
    deviation = seen.std(0)
    known = episodes.features[0, :, 1].double().numpy() / deviation
    way = [*torch.rand(3, 6, generator=torch.Generator().manual_seed(2)), episodes.features[0, 0, 1]]
    way.append(way[0])  # back where it began
    network, session = policy.network.begin(1), policy.begin(1)
    clean = 1.0
    for t, features in enumerate(way):
        belief = _belief(features.view(1, 1, 6), 5 - t)
        own = network(belief)[0, 0].double()
        slipping = 1 / (1 + math.exp(float(own[0] - own[1]) + math.log(4)))  # one step in five before it has learned
        apart = ((features.double().numpy() / deviation - known) ** 2).mean(1)
        alike = np.exp(-apart / (2 * REACH**2)).sum()
        expected = slipping * clean / (1 + REPEAT * alike) * (RETURNED if t == 4 else 1.0)
        asks = session.ask(belief, torch.full((1, 1), 0.5))
        assert float(session.notes) == pytest.approx(expected, rel=1e-3)
        assert bool(asks) == (float(session.notes) > 0.5)
        answered = torch.tensor([[t == 2]])
        session.hear(
            belief, Answer(torch.zeros(1, 1).long(), torch.zeros(1, 1), torch.zeros(1, 1).long(), answered), answered
        )
        if t == 2:
            known = np.concatenate([known, (features.double().numpy() / deviation)[None]])
        else:
            clean *= 1 - slipping


def test_only_the_newest_answers_are_remembered() -> None:
    policy = _policy()
    episodes = _episodes()
    for number in range(ANSWERS // 2 + 3):
        policy.observe(replace(episodes, features=torch.full_like(episodes.features, float(number))))
    kept = policy.memory["answers"][0, :, 0]
    assert float(policy.memory["given"]) == ANSWERS + 6
    assert sorted(kept.tolist()) == sorted([float(n) for n in range(3, ANSWERS // 2 + 3) for _ in range(2)])


def test_questions_of_one_step_count_for_each_other() -> None:
    """Episodes side by side in the same state: one is asked about, the others are less worth asking."""
    policy = _policy(threshold=0.1)
    policy.observe(_episodes())
    features = torch.rand(1, 1, 6, generator=torch.Generator().manual_seed(3)).expand(1, 3, 6)
    one = _belief(features, 5)
    belief = replace(one, mean=one.mean.expand(1, 3, 3))
    session = policy.begin(3)
    asks = session.ask(belief, torch.full((1, 3), 0.5))
    first, second, third = session.notes[0, :, 0].tolist()
    alone = policy.begin(1)
    alone.ask(_belief(features[:, :1], 5), torch.full((1, 1), 0.5))
    assert first == pytest.approx(float(alone.notes))
    assert second == pytest.approx(first / (1 + REPEAT), rel=1e-4)
    assert third == pytest.approx(first / (1 + 2 * REPEAT), rel=1e-4)
    assert asks.tolist() == [[True, False, False]]


def test_a_budget_of_answers_is_spent_exactly_and_the_agent_learns() -> None:
    trained = apil.train("maze", "twodifdetm", "slip", answer_budget=150, progress=False)
    assert trained.rows[-1]["answers"] == 150
    assert trained.evaluate(200)["success_alone"] > 0.6  # a walk by chance ends at the goal in a quarter of episodes
