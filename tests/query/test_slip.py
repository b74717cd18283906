"""SLIP: where hindsight finds a slip, and the score against its formula worked out in another way."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import apil
from apil.query.protocol import QuerySetup
from apil.query.slip import ANSWERS, FLOOR, REACH, REPEAT, RETURNED, Slip, slip, slips
from apil.rng import Streams
from apil.runs.resolve import resolve
from apil.types import Answer, Belief, Episodes, Uncertainty


def _by_hand(way: list[int], horizon: int, success: bool, sudden: bool) -> tuple[list[bool], list[bool]]:
    """The same as `slips` of one episode whose states are numbers, read off the definition."""
    circles = [(j, i) for i, j in itertools.combinations(range(len(way)), 2) if way[i] == way[j]]
    if circles:
        end = min(j for j, _ in circles)
        start = max(i for j, i in circles if j == end)
        return [start <= t < end for t in range(horizon)], [t < end for t in range(horizon)]
    known = [t < len(way) for t in range(horizon)]
    if success:
        return [False] * horizon, known
    if len(way) < horizon and sudden:
        return [t == len(way) - 1 for t in range(horizon)], known
    return known, known


@pytest.mark.parametrize("success", [True, False])
@pytest.mark.parametrize("sudden", [True, False])
def test_hindsight_finds_the_first_circle_an_early_end_or_lost_time(success: bool, sudden: bool) -> None:
    rng, horizon = np.random.default_rng(0), 6
    ways = [rng.integers(0, 9, size=rng.integers(1, horizon + 1)).tolist() for _ in range(300)]
    padded = torch.tensor([[*way, *[way[-1]] * (horizon - len(way))] for way in ways])
    live = torch.tensor([[t < len(way) for t in range(horizon)] for way in ways])
    ended = (torch.full((len(ways),), flag) for flag in (success, sudden))
    among, known = slips(padded.unsqueeze(2) == padded.unsqueeze(1), live, *ended)
    for way, own, counts in zip(ways, among, known, strict=True):
        assert (own.tolist(), counts.tolist()) == _by_hand(way, horizon, success, sudden)


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


def _chances(policy: Slip, features: NDArray[np.float64], horizon: int) -> tuple[NDArray[np.float64], ...]:
    """The probabilities, each [n, A], of a mistake and of an early end in states [n, F], worked out with numpy.

    What `policy` has observed are the states of `_episodes`. Before it has learned one step of an episode is either.
    """
    seen = _episodes().features.reshape(-1, 6).double().numpy()
    own = {name: value[0].detach().double().numpy() for name, value in policy.parameters.items()}
    inputs = np.clip((features - seen.mean(0)) / seen.std(0), -5, 5)
    hidden = np.maximum(inputs @ own["w1"] + own["b1"], 0)
    logits = (hidden @ own["w2"] + own["b2"]).reshape(len(features), -1, 4)
    odds = [np.exp(logits[..., k + 1] - logits[..., k]) / (horizon - 1) for k in (0, 2)]
    return tuple(own / (1 + own) for own in odds)


def test_the_score_is_its_formula() -> None:
    """Features, answers and the weights of the network give the score of every step."""
    policy = _policy()
    episodes = _episodes()
    policy.observe(episodes)
    seen = episodes.features.reshape(-1, 6).double().numpy()
    deviation = seen.std(0)
    known = episodes.features[0, :, 1].double().numpy() / deviation
    way = [*torch.rand(3, 6, generator=torch.Generator().manual_seed(2)), episodes.features[0, 0, 1]]
    way.append(way[0])  # back where it began
    chance = np.array([0.5, 0.3, 0.2])
    session = policy.begin(1)
    clean = 1.0
    for t, features in enumerate(way):
        belief = replace(_belief(features.view(1, 1, 6), 5 - t), mean=torch.tensor(chance).float().view(1, 1, 3))
        own = features.double().numpy()
        mistaken = _chances(policy, own[None], 5)[0][0]
        slipping = chance @ mistaken - mistaken.min() + FLOOR / 5
        wrong = 1 - (1 - slipping) * chance.max()
        apart = ((own / deviation - known) ** 2).mean(1)
        alike = np.exp(-apart / (2 * REACH**2)).sum()
        expected = (wrong * clean / (1 + REPEAT * alike) * (RETURNED if t == 4 else 1.0)) ** 4
        asks = session.ask(belief, torch.full((1, 1), 0.5))
        assert float(session.notes) == pytest.approx(expected, rel=5e-3)
        assert bool(asks) == (float(session.notes) > 0.5)
        answered, took = torch.tensor([[t == 2]]), t % 3
        nothing = torch.zeros(1, 1)
        session.hear(
            replace(belief, taken=torch.tensor([[took]])),
            Answer(nothing.long(), nothing, nothing.long(), answered),
            answered,
        )
        if t == 2:
            known = np.concatenate([known, (own / deviation)[None]])
        else:
            clean *= (1 - (mistaken[took] - mistaken.min() + FLOOR / 5)) * chance[took] / chance.max()


def _cross_entropy(predicted: NDArray[np.float64], wanted: NDArray[np.float64] | float) -> float:
    return float(-(wanted * np.log(predicted) + (1 - wanted) * np.log(1 - predicted)).sum())


def _taken(policy: Slip, episodes: Episodes) -> list[NDArray[np.float64]]:
    """`_chances` of the actions taken, each [2, 5]."""
    found = _chances(policy, episodes.features.reshape(-1, 6).double().numpy(), 5)
    return [own[np.arange(10), episodes.taken.flatten().numpy()].reshape(2, 5) for own in found]


def test_the_loss_blames_all_steps_where_time_ran_out_and_none_in_success() -> None:
    """Without a circle each step but the answered one has a fifth of the blame."""
    policy = _policy()
    episodes = replace(_episodes(), taken=torch.randint(3, (1, 2, 5), generator=torch.Generator().manual_seed(4)))
    policy.observe(episodes)
    mistaken, ends = _taken(policy, episodes)
    blame = np.where(np.arange(5) == 1, 0.0, 0.2) * np.ones((2, 1))
    expected = (_cross_entropy(mistaken, blame) + _cross_entropy(ends, 0.0)) / 2
    assert policy.loss(episodes).loss.item() == pytest.approx(expected, rel=1e-4)
    well = policy.loss(replace(episodes, success=torch.ones(1, 2, dtype=torch.bool)))
    expected = (_cross_entropy(mistaken, 0.0) + _cross_entropy(ends, 0.0)) / 2
    assert well.loss.item() == pytest.approx(expected, rel=1e-4)


def test_the_loss_blames_the_steps_of_a_circle_as_far_as_they_are_likely_mistakes() -> None:
    """Step 3 is back in the state of step 0: step 0 or 2 was a mistake, step 1 was answered, the rest says nothing."""
    policy = _policy()
    episodes = replace(_episodes(), taken=torch.randint(3, (1, 2, 5), generator=torch.Generator().manual_seed(4)))
    policy.observe(episodes)
    way = episodes.features.clone()
    way[:, :, 3] = way[:, :, 0]
    episodes = replace(episodes, features=way)
    mistaken, ends = _taken(policy, episodes)
    blame = np.where(np.isin(np.arange(3), [0, 2]), mistaken[:, :3], 0.0)
    blame /= blame.sum(1, keepdims=True)
    expected = (_cross_entropy(mistaken[:, :3], blame) + _cross_entropy(ends, 0.0)) / 2
    assert policy.loss(episodes).loss.item() == pytest.approx(expected, rel=1e-4)


def test_a_step_that_changes_little_is_no_circle() -> None:
    """Picking something up changes one number of many; the step is not to blame for what follows."""
    policy = _policy()
    episodes = _episodes()
    episodes.features[:, :, 3] = episodes.features[:, :, 2]
    episodes.features[:, :, 3, 5] += 0.01
    policy.observe(episodes)
    with torch.no_grad():
        seen, taken = episodes.features.flatten(1, 2), episodes.taken.flatten(1, 2)
        mistaken, ends = (own.exp()[..., 1].double().numpy().reshape(2, 5) for own in policy.predict_taken(seen, taken))
    blame = np.where(np.arange(5) == 1, 0.0, 0.2) * np.ones((2, 1))  # time ran out, and that is all that is known
    expected = (_cross_entropy(mistaken, blame) + _cross_entropy(ends, 0.0)) / 2
    assert policy.loss(episodes).loss.item() == pytest.approx(expected, rel=1e-4)


_OWN = ("features", "taken", "live", "success", "answered", "uncertainty")


def _falls(by_action: bool, number: int, seed: int) -> Episodes:
    """Episodes of at most five steps that end badly where the first feature is above 0.8: after action 1 alone, or
    whatever is done."""
    generator, base = torch.Generator().manual_seed(seed), _episodes()
    features = torch.rand(1, number, 5, 6, generator=generator)
    taken = torch.randint(3, (1, number, 5), generator=generator)
    fatal = (features[..., 0] > 0.8) & ((taken == 1) | (not by_action))
    first = torch.where(fatal, torch.arange(5), 5).amin(-1)
    # At the very last step an early end is none: leave these out.
    first = torch.where(first == 4, 5, first)
    return Episodes(
        **{
            f.name: getattr(base, f.name)[:, :1].expand(1, number, *getattr(base, f.name).shape[2:]).clone()
            for f in fields(base)
            if f.name not in _OWN
        },
        features=features,
        taken=taken,
        live=torch.arange(5) <= first.unsqueeze(-1),
        success=first == 5,
        answered=torch.zeros(1, number, 5, dtype=torch.bool),
        uncertainty=base.uncertainty,
    )


def _learned(by_action: bool, batches: int) -> Slip:
    """A policy that has learned from such falls."""
    policy = _policy()
    weights = [weight.requires_grad_() for weight in policy.parameters.values()]
    optimizer = torch.optim.Adam(weights, lr=0.01)
    for seed in range(batches):
        episodes = _falls(by_action, 32, seed)
        policy.observe(episodes)
        for _ in range(8):
            gradients = torch.autograd.grad(policy.loss(episodes).loss.sum(), weights)
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.grad = gradient
            optimizer.step()
    return policy


def test_where_the_last_action_ends_an_episode_it_alone_is_to_blame() -> None:
    policy = _learned(by_action=True, batches=80)
    assert float(policy.memory["sudden"]) > 0.8
    seen = torch.rand(1, 300, 6, generator=torch.Generator().manual_seed(100))
    mistaken = policy.predict(seen)[0].exp()[..., 1]
    near = seen[..., 0] > 0.85
    assert mistaken[near][:, 1].mean() > 0.5
    assert mistaken[near][:, [0, 2]].mean() < 0.2
    assert mistaken[~near].mean() < 0.1
    # Who takes that action there is asked there.
    always = torch.zeros(1, 300, 3).index_fill(-1, torch.tensor([1]), 1.0)
    own = policy.wrong(seen, policy.mistakes(seen), always)
    assert own[near].mean() > 5 * own[~near].mean()


def test_where_an_end_comes_whatever_is_done_the_whole_episode_is_to_blame() -> None:
    policy = _learned(by_action=False, batches=40)
    assert float(policy.memory["sudden"]) < 0.5
    assert float(policy.memory["narrowed"]) < 0.5
    seen = torch.rand(1, 300, 6, generator=torch.Generator().manual_seed(100))
    every, taken = policy.mistakes(seen), torch.arange(300).unsqueeze(0) % 3
    own = policy.went_wrong(seen, every, torch.full((1, 300, 3), 1 / 3), taken)
    near = seen[..., 0] > 0.85
    assert own[near].mean() < 3 * own[~near].mean(), "the moment before the end is not asked about much more"


def _asked_at(policy: Slip, steps: int) -> float:
    """How often a question is drawn where the agent is certain and where it is not, side by side."""
    asked = torch.zeros(2)
    for t in range(steps):
        seen = _belief(torch.rand(1, 2, 6, generator=torch.Generator().manual_seed(t)), 5)
        belief = replace(seen, mean=torch.tensor([[[0.98, 0.01, 0.01], [0.4, 0.3, 0.3]]]))
        asked += policy.begin(2).ask(belief, Streams([7]).draws("luck", t).uniform(2))[0]
    return float(asked[0] / asked.sum())


@pytest.mark.parametrize("narrowed", [True, False])
def test_where_hindsight_does_not_narrow_mistakes_down_questions_are_drawn_at_random(narrowed: bool) -> None:
    """Two kinds of failure: the state is seen again at once, or time runs out with nothing to see."""
    policy = slip(QuerySetup(Streams([7]), 4, 3, 5, torch.tensor([0.5]), budgets=torch.tensor([0.2]), features=6))
    for number in range(40):
        episodes = _episodes()
        way = torch.rand(1, 2, 5, 6, generator=torch.Generator().manual_seed(number))
        if narrowed:
            way[:, :, 1] = way[:, :, 0]
        scores = torch.full((1, 2, 5, 1), 0.05 if narrowed else 1.0)
        policy.observe(replace(episodes, features=way, notes=scores))
    assert bool(policy.memory["narrowed"] > 0.5) == narrowed
    share = _asked_at(policy, 2000)
    assert share < 0.2 if narrowed else share == pytest.approx(0.5, abs=0.1)


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
    features = torch.rand(1, 1, 6, generator=torch.Generator().manual_seed(3)).expand(1, 3, 6)
    one = _belief(features, 5)
    belief = replace(one, mean=one.mean.expand(1, 3, 3))

    def scores(threshold: float, seen: Belief) -> tuple[list[bool], list[float]]:
        policy = _policy(threshold)
        policy.observe(_episodes())
        session = policy.begin(seen.mean.shape[1])
        asks = session.ask(seen, torch.full(seen.mean.shape[:2], 0.5))
        return asks[0].tolist(), session.notes[0, :, 0].tolist()

    alone = scores(0.0, _belief(features[:, :1], 5))[1][0]
    asks, found = scores(0.9 * alone, belief)
    first, second, third = sorted(found, reverse=True)
    assert first == pytest.approx(alone, rel=1e-3)
    assert second == pytest.approx(first / (1 + REPEAT) ** 4, rel=1e-3)
    assert third == pytest.approx(first / (1 + 2 * REPEAT) ** 4, rel=1e-3)
    assert asks == [score == first for score in found]


def test_it_asks_slowly_where_answers_are_counted() -> None:
    """Then only answers cost. With a number of iterations instead, there must be something to learn from in time."""
    spent = resolve("maze", "detm", "slip", {"answer_budget": 300}, {}).settings.query
    assert (spent.budget, spent.answer_budget) == (1 / 160, 300)
    assert resolve("maze", "detm", "slip", {}, {}).settings.query.budget == 1 / 40
    assert resolve("maze", "detm", "random", {"answer_budget": 300}, {}).settings.query.budget == 1 / 40


def test_a_budget_of_answers_is_spent_exactly_and_the_agent_learns() -> None:
    trained = apil.train("maze", "twodifdetm", "slip", answer_budget=150, progress=False)
    assert trained.rows[-1]["answers"] == 150
    assert trained.evaluate(200)["success_alone"] > 0.6  # a walk by chance ends at the goal in a quarter of episodes
