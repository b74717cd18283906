"""APIL's labels against the definition in the paper's text, and the query policy that imitates them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apil.errors import ApilError
from apil.learning.build import build
from apil.learning.collect import collect
from apil.query.progress import apil, reference_queries
from apil.query.protocol import QuerySetup
from apil.query.scored import ScoredPolicy
from apil.rng import Streams
from apil.settings import RunSettings
from apil.types import Belief, Episodes, Uncertainty


def _label(answered: list[bool], distance: list[float], final: float, sigma: float, epsilon: float, t: int) -> bool:
    """By search: *query* unless a good end, or from step t on some known distance shrinks by the factor sigma."""
    if final <= epsilon:
        return False
    horizon = len(answered)
    queried = [i for i in range(horizon) if answered[i]]
    later = {i: [distance[j] for j in queried if j > i] + [final] for i in queried}
    return not any(i >= t and any(distance[i] >= sigma * d for d in later[i]) for i in queried)


@st.composite
def _batches(draw: st.DrawFn) -> dict[str, Any]:
    """Episodes with ties, zeros, unknown distances where nobody answered, and ends before the horizon."""
    episodes, horizon = draw(st.integers(1, 3)), draw(st.integers(1, 7))
    distances = st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0])

    def grid(values: Any) -> Any:
        return draw(st.lists(st.lists(values, min_size=horizon, max_size=horizon), min_size=episodes, max_size=episodes))  # fmt: skip  # noqa: E501

    answered = grid(st.booleans())
    unknown = draw(st.sampled_from([math.nan, 0.0, 1e9]))
    distance = [
        [d if a else unknown for d, a in zip(*rows, strict=True)]
        for rows in zip(grid(distances), answered, strict=True)
    ]
    return {
        "answered": answered,
        "distance": distance,
        "final": draw(st.lists(distances, min_size=episodes, max_size=episodes)),
        "lengths": draw(st.none() | st.lists(st.integers(0, horizon), min_size=episodes, max_size=episodes)),
        "sigma": draw(st.sampled_from([1.5, 2.0, 3.0])),
        "epsilon": draw(st.sampled_from([0.0, 0.5, 1.0])),
    }


@given(_batches())
def test_labels_are_those_of_a_search_of_the_definition(batch: dict[str, Any]) -> None:
    answered, lengths = batch["answered"], batch["lengths"]
    horizon = len(answered[0])
    valid = None if lengths is None else torch.tensor([[t < n for t in range(horizon)] for n in lengths])
    labels = reference_queries(
        torch.tensor(answered),
        torch.tensor(batch["distance"]),
        torch.tensor(batch["final"]),
        sigma=batch["sigma"],
        epsilon=batch["epsilon"],
        valid=valid,
    )
    assert labels.dtype == torch.bool
    for e in range(len(answered)):
        length = horizon if lengths is None else lengths[e]
        known = [a and t < length for t, a in enumerate(answered[e])]
        expected = [
            t < length and _label(known, batch["distance"][e], batch["final"][e], batch["sigma"], batch["epsilon"], t)
            for t in range(horizon)
        ]
        assert labels[e].tolist() == expected


@st.composite
def _with_gaps(draw: st.DrawFn) -> dict[str, Any]:
    """The same, with answers without a distance, at the end too, and infinite ones."""
    batch = draw(_batches())
    holes = st.sampled_from([None, None, math.nan, math.inf])

    def hole(value: float) -> float:
        other = draw(holes)
        return value if other is None else other

    batch["distance"] = [[hole(d) for d in row] for row in batch["distance"]]
    batch["final"] = [hole(d) for d in batch["final"]]
    return batch


@given(_with_gaps())
def test_a_distance_that_was_not_told_proves_nothing(batch: dict[str, Any]) -> None:
    sigma, epsilon = batch["sigma"], batch["epsilon"]
    labels = reference_queries(
        torch.tensor(batch["answered"]),
        torch.tensor(batch["distance"]),
        torch.tensor(batch["final"]),
        sigma=sigma,
        epsilon=epsilon,
        missing=True,
    )
    for e, (answered, distance, final) in enumerate(
        zip(batch["answered"], batch["distance"], batch["final"], strict=True)
    ):
        # The distances that are known, as (time, distance); the end is later than every step.
        known = [(t, d) for t, (a, d) in enumerate(zip(answered, distance, strict=True)) if a and not math.isnan(d)]
        later = known if math.isnan(final) else [*known, (len(answered), final)]
        shrinks = [i for i, d in known if any(j > i and d >= sigma * other for j, other in later)]
        good = not math.isnan(final) and final <= epsilon
        expected = [not good and not any(i >= t for i in shrinks) for t in range(len(answered))]
        assert labels[e].tolist() == expected


@pytest.mark.parametrize(
    ("answered", "distance", "final", "labels"),
    [
        ([0, 0, 0], [0, 0, 0], 0.0, [0, 0, 0]),  # A good end: every step is progress.
        ([0, 0, 0], [0, 0, 0], 5.0, [1, 1, 1]),  # A bad end of which nothing is known.
        ([1, 0, 0], [6, 0, 0], 3.0, [0, 1, 1]),  # Half the way after the only question.
        ([1, 0, 0], [6, 0, 0], 3.1, [1, 1, 1]),  # Not quite half.
        ([0, 0, 1], [0, 0, 6], 3.0, [0, 0, 0]),  # Progress ahead counts for the steps before.
        ([1, 0, 1], [6, 0, 3], 9.0, [0, 1, 1]),  # Progress between two questions, lost afterwards.
        ([1, 1, 1], [8, 6, 5], 4.5, [1, 1, 1]),  # Steady, but never by the factor.
    ],
)
def test_labels_of_cases_to_read(answered: list[int], distance: list[float], final: float, labels: list[int]) -> None:
    found = reference_queries(
        torch.tensor([answered]).bool(), torch.tensor([distance]).float(), torch.tensor([final]), sigma=2.0, epsilon=0.0
    )
    assert found[0].long().tolist() == labels


_ANSWERED = torch.ones(2, 3, dtype=torch.bool)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sigma": 1.0}, "sigma is 1: progress needs a factor above 1"),
        ({"sigma": math.nan}, "sigma is nan"),
        ({"epsilon": -1.0}, "epsilon is -1"),
        ({"distance": torch.full((2, 3), math.nan)}, "NaN where a teacher answered"),
        ({"final_distance": torch.tensor([1.0, math.nan])}, "or at the end"),
        ({"final_distance": torch.ones(3)}, r"final_distance \[3\] do not fit"),
        ({"distance": torch.ones(3)}, "do not fit"),
        ({"answered": _ANSWERED[0], "distance": torch.ones(3)}, "do not fit"),
    ],
)
def test_what_cannot_be_labelled_is_refused(change: dict[str, Any], message: str) -> None:
    good = {
        "answered": _ANSWERED,
        "distance": torch.ones(2, 3),
        "final_distance": torch.ones(2),
        "sigma": 2.0,
        "epsilon": 0.0,
    }
    with pytest.raises(ApilError, match=message):
        reference_queries(**{**good, **change})


# The query policy.

_CONFIGS = [RunSettings.of("maze", "twodifdetm", "apil", seed=seed, batch=6) for seed in (0, 1)]


@pytest.fixture(scope="module")
def episodes() -> Episodes:
    return collect(build(_CONFIGS), 0, 6)


def _policy(gap: float = 0.0, epsilon: float = 0.0) -> ScoredPolicy:
    task = build(_CONFIGS).task
    return apil(
        QuerySetup(
            streams=Streams([0, 1]),
            state_size=task.state_size,
            actions=task.actions,
            horizon=task.horizon,
            thresholds=torch.full((2,), math.nan),
            gap=gap,
            epsilon=epsilon,
        )
    )


def _belief_at(episodes: Episodes, t: int) -> Belief:
    nothing = torch.zeros(episodes.answered.shape[:2])
    return Belief(
        state=episodes.state[:, :, t],
        mean=episodes.mean[:, :, t],
        identity=episodes.identity_belief[:, :, t],
        uncertainty=Uncertainty(*[nothing] * 5),
        remaining=episodes.answered.shape[2] - t,
    )


def _chance(policy: ScoredPolicy, belief: Belief) -> torch.Tensor:
    """[runs, episodes]: the probability of asking, by bisection on the luck that just misses."""
    low, high = torch.zeros(belief.state.shape[:2]), torch.ones(belief.state.shape[:2])
    for _ in range(30):
        middle = (low + high) / 2
        asks = policy.begin(belief.state.shape[1]).ask(belief, middle)
        low, high = torch.where(asks, middle, low), torch.where(asks, high, middle)
    return low.double()


def test_the_loss_is_a_likelihood_at_every_live_step_asked_or_not(episodes: Episodes) -> None:
    policy = _policy()
    loss = policy.loss(episodes)
    assert loss is not None
    runs, batch, horizon = episodes.answered.shape
    assert bool((episodes.live & ~episodes.answered).any())
    assert bool(loss.active.all())
    chances = torch.stack([_chance(policy, _belief_at(episodes, t)) for t in range(horizon)], dim=2)
    for run in range(runs):
        total = wasted = no_progress = 0.0
        for b in range(batch):
            answered, distance = episodes.answered[run, b].tolist(), episodes.distance[run, b].tolist()
            for t in range(horizon):
                if episodes.live[run, b, t]:
                    label = _label(answered, distance, float(episodes.final_distance[run, b]), 2.0, 0.0, t)
                    chance = float(chances[run, b, t])
                    total -= math.log(chance if label else 1 - chance)
                    no_progress += label
                    wasted += 0 if label else chance
        steps = int(episodes.live[run].sum())
        assert float(loss.loss[run]) == pytest.approx(total / batch, rel=1e-4)
        assert float(loss.logs["no_progress"][run]) == pytest.approx(no_progress / steps, rel=1e-5)
        assert float(loss.logs["query_on_progress"][run]) == pytest.approx(wasted / steps, rel=1e-4)


def test_the_query_action_is_sampled(episodes: Episodes) -> None:
    policy, belief = _policy(), _belief_at(episodes, 0)
    chance = _chance(policy, belief)
    assert bool(((chance > 0.05) & (chance < 0.95)).all()), "an untrained policy is sure of nothing"
    luck = Streams([0, 1]).draws("luck", 0).uniform(4000, 6)
    share = (
        torch.stack([policy.begin(belief.state.shape[1]).ask(belief, luck[:, n]) for n in range(4000)]).double().mean(0)
    )
    assert bool(((share - chance).abs() <= 5 * (chance * (1 - chance) / 4000).sqrt()).all())


def test_epsilon_and_gap_forgive_a_final_distance(episodes: Episodes) -> None:
    failed = replace(episodes, final_distance=torch.full_like(episodes.final_distance, 2.0))
    strict, near, gap = (
        found.logs["no_progress"]
        for p in (_policy(), _policy(epsilon=2.0), _policy(gap=2.0))
        if (found := p.loss(failed)) is not None
    )
    assert bool((strict > 0).all())
    assert torch.equal(near, torch.zeros(2))
    assert torch.equal(gap, torch.zeros(2))
