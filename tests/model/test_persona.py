"""The persona model: what it believes, against sums over its own parts, and what it learns from."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from apil.learning.build import build
from apil.learning.collect import collect
from apil.model.persona import PersonaModel
from apil.rng import Streams
from apil.settings import ModelSettings, RunSettings
from apil.types import Belief, Episodes, Observation
from apil.uncertainty import decompose

_STATE, _ACTIONS = 6, 3


def _model(teachers: int, samples: int = 0, dropout: float = 0.0, models: int = 4, seed: int = 3) -> PersonaModel:
    sizes = ModelSettings(hidden=16, persona=8, dropout=dropout, models=models)
    made = PersonaModel(
        Streams([seed]), state_size=_STATE, actions=_ACTIONS, teachers=teachers, samples=[samples], sizes=sizes
    )
    # Beyond the small initial weights, so that teachers and states differ visibly.
    for part in (made.policy, made.identity):
        for name in ("w1", "b1", "w2", "b2"):
            part[name] *= 3
    return made


def _states(count: int, repeat: int = 1) -> Observation:
    features = torch.rand(1, count, _STATE, generator=torch.Generator().manual_seed(2))
    valid = torch.ones(1, count, _ACTIONS, dtype=torch.bool)
    valid[:, ::2, 1] = False
    return Observation(features.repeat(1, repeat, 1), valid.repeat(1, repeat, 1))


@pytest.mark.parametrize("teachers", [1, 2])
@pytest.mark.parametrize("samples", [0, 3])
def test_numbered_states_are_believed_as_others_are(teachers: int, samples: int) -> None:
    """Believed once for all episodes that come by, whatever the number of runs."""
    states, place = _states(4), torch.tensor([[3, 0, 0, 2, 3, 1, 1]])
    seen = Observation(states.features[:, place[0]], states.valid[:, place[0]], place)
    plain, numbered = (_model(teachers, samples, dropout=0.2) for _ in range(2))
    numbered.states = states
    for t in range(2):
        expected, found = _belief(plain, seen, t, 2), _belief(numbered, seen, t, 2)
        assert torch.equal(found.state, expected.state)
        for name in ("mean", "identity", "of_model"):
            assert torch.allclose(getattr(found, name), getattr(expected, name), atol=1e-6), name
        for name in ("total", "behavioral", "intrinsic", "extrinsic", "model"):
            one, two = (getattr(belief.uncertainty, name) for belief in (found, expected))
            assert torch.allclose(one, two, atol=1e-5), name


def _belief(model: PersonaModel, seen: Observation, t: int = 0, horizon: int = 1, iteration: int = 0) -> Belief:
    draws = Streams([3]).draws("model", iteration), Streams([3]).draws("identity", iteration)
    return model.begin(*draws, seen.features.shape[1], horizon).belief(seen, t, horizon)


def _mixture(model: PersonaModel, seen: Observation) -> Tensor:
    """[1, n, A]: the sum over all teachers, in double precision, from the model's public parts."""
    rho = model.identity_distribution(seen.features).double()
    return (rho.unsqueeze(-1) * model.policies(seen).double()).sum(2)


@pytest.mark.parametrize("teachers", [1, 2, 5])
def test_without_dropout_the_exact_belief_is_the_sum_over_teachers(teachers: int) -> None:
    model, seen = _model(teachers), _states(10)
    belief = _belief(model, seen)
    assert torch.allclose(belief.mean.double(), _mixture(model, seen), atol=1e-6)
    assert torch.equal(belief.identity, model.identity_distribution(seen.features))
    policies = model.policies(seen)[0].transpose(0, 1).unsqueeze(0)
    expected = decompose(policies, belief.identity[0].T.unsqueeze(0))
    for part in ("total", "behavioral", "intrinsic", "extrinsic"):
        assert torch.allclose(getattr(belief.uncertainty, part)[0], getattr(expected, part), atol=1e-5)
    assert float(belief.uncertainty.model.max()) < 1e-6, "equal masks make equal models"


def test_invalid_actions_have_no_chance_under_any_teacher() -> None:
    model, seen = _model(3, dropout=0.5), _states(10)
    belief = _belief(model, seen)
    assert bool((belief.mean[~seen.valid] == 0).all())
    assert bool((model.policies(seen)[:, ::2, :, 1] == 0).all())
    assert torch.allclose(belief.mean.sum(-1), torch.ones(()), atol=1e-6)


@pytest.mark.parametrize("samples", [0, 5])
def test_one_mask_serves_all_identities(samples: int) -> None:
    model = _model(4, samples=samples, dropout=0.5)
    model.policy["persona"][:, 1:] = model.policy["persona"][:, :1]
    uncertainty = _belief(model, _states(10)).uncertainty
    assert float(uncertainty.model.min()) > 1e-3, "models differ by their masks"
    # Teachers with the same persona act alike under one mask; with masks of their own they would seem to differ.
    assert float(uncertainty.extrinsic.max()) < 1e-5


def test_a_batch_of_episodes_is_decided_by_the_same_models_at_all_steps() -> None:
    model, seen = _model(2, dropout=0.5), _states(5)
    sampled = model.begin(Streams([3]).draws("model", 0), Streams([3]).draws("identity", 0), 5, 4)
    first, later = sampled.belief(seen, 0, 4), sampled.belief(seen, 3, 4)
    assert torch.equal(first.mean, later.mean)
    assert (first.remaining, later.remaining) == (4, 1)
    assert not torch.equal(first.mean, _belief(model, seen, iteration=1).mean), "the next batch has other models"


def test_the_more_is_dropped_the_more_the_models_differ() -> None:
    seen = _states(5)
    beliefs = [_belief(_model(1, dropout=rate, models=200), seen) for rate in (0.0, 0.1, 0.5)]
    spread = [float(belief.uncertainty.model.mean()) for belief in beliefs]
    assert spread[0] < 1e-6 < spread[1] < spread[2]


@pytest.mark.parametrize("samples", [1, 5])
def test_monte_carlo_averages_to_the_exact_expectation(samples: int) -> None:
    repeat, models = 400, 10
    model, seen = _model(3, samples=samples, models=models), _states(4, repeat)
    drawn = _belief(model, seen).mean.view(repeat, 4, _ACTIONS).double()
    exact = _mixture(model, _states(4))[0]
    error = drawn.std(0) / math.sqrt(repeat)
    assert float(error.max()) > 1e-4, "the draws vary"
    assert bool(((drawn.mean(0) - exact).abs() <= 5 * error + 1e-6).all())


def test_sampling_inflates_model_uncertainty_and_the_exact_sum_does_not() -> None:
    seen = _states(50)
    by_samples = [float(_belief(_model(3, samples=n), seen).uncertainty.model.mean()) for n in (1, 5, 50, 0)]
    assert by_samples == sorted(by_samples, reverse=True)
    assert by_samples[-1] < 1e-6, "without dropout all models are the same"


@pytest.mark.parametrize("samples", [0, 5])
def test_with_many_teachers_the_belief_is_a_distribution_around_the_whole_sum(samples: int) -> None:
    repeat = 400
    model, seen = _model(40, samples=samples), _states(4, repeat)
    belief = _belief(model, seen)
    assert torch.allclose(belief.mean.sum(-1), torch.ones(()), atol=1e-5)
    assert torch.allclose(belief.identity.sum(-1), torch.ones(()), atol=1e-5)
    assert bool((belief.mean[~seen.valid] == 0).all())
    drawn = belief.mean.view(repeat, 4, _ACTIONS).double()
    whole = _mixture(model, _states(4))[0]
    error = drawn.std(0) / math.sqrt(repeat)
    assert bool(((drawn.mean(0) - whole).abs() <= 5 * error + 1e-6).all())


def test_exact_with_many_teachers_adds_no_noise_between_models() -> None:
    assert float(_belief(_model(40), _states(50)).uncertainty.model.max()) < 1e-6


# Losses.


@pytest.fixture(scope="module")
def episodes() -> Episodes:
    """Two runs that ask now and then, on the maze: some steps lie after the end of their episodes."""
    configs = [
        RunSettings.of("maze", "twodifdetm", "random", seed=seed, batch=5, threshold=0.5, dropout=0.0)
        for seed in (0, 1)
    ]
    return collect(build(configs), 0, 5)


def _maze_model() -> PersonaModel:
    configs = [RunSettings.of("maze", "twodifdetm", "random", seed=seed, threshold=0.5, dropout=0.0) for seed in (0, 1)]
    model = build(configs).model
    assert isinstance(model, PersonaModel)
    return model


def test_losses_are_likelihoods_summed_over_asked_steps_and_averaged_over_episodes(episodes: Episodes) -> None:
    model = _maze_model()
    policy, identity = model.losses(episodes, Streams([0, 1]).draws("dropout", 0))
    runs, batch, horizon = episodes.answered.shape
    assert 0 < int(episodes.answered.sum()) < int(episodes.live.sum())
    for run in range(runs):
        expected_policy = expected_identity = 0.0
        features = episodes.features.flatten(1, 2)
        policies = model.policies(Observation(features, episodes.valid_actions.flatten(1, 2)))[run].view(
            batch, horizon, 2, -1
        )
        rho = model.identity_distribution(features)[run].view(batch, horizon, 2)
        for b in range(batch):
            for t in range(horizon):
                if episodes.answered[run, b, t]:
                    who, said = int(episodes.identity[run, b, t]), int(episodes.action[run, b, t])
                    expected_policy -= math.log(float(policies[b, t, who, said]))
                    expected_identity -= math.log(float(rho[b, t, who]))
        assert float(policy[run]) == pytest.approx(expected_policy / batch, rel=1e-4)
        assert float(identity[run]) == pytest.approx(expected_identity / batch, rel=1e-4)


def test_steps_without_an_answer_teach_nothing(episodes: Episodes) -> None:
    model = _maze_model()
    # What stands where nobody answered is a placeholder: other placeholders change nothing, an impossible one
    # (action 0 where up is a wall) included.
    other = replace(
        episodes,
        action=torch.where(episodes.answered, episodes.action, 1),
        identity=torch.where(episodes.answered, episodes.identity, 1),
    )
    for mine, theirs in zip(
        model.losses(episodes, Streams([0, 1]).draws("dropout", 0)),
        model.losses(other, Streams([0, 1]).draws("dropout", 0)),
        strict=True,
    ):
        assert torch.equal(mine, theirs)
        assert bool(mine.isfinite().all())
    silent = replace(episodes, answered=torch.zeros_like(episodes.answered))
    for loss in model.losses(silent, Streams([0, 1]).draws("dropout", 0)):
        assert torch.equal(loss, torch.zeros(2))


def test_each_loss_reaches_its_own_part_alone(episodes: Episodes) -> None:
    model = _maze_model()
    parts = {"policy": list(model.policy.values()), "identity": list(model.identity.values())}
    for value in (*parts["policy"], *parts["identity"]):
        value.requires_grad_(True)
    losses = dict(zip(parts, model.losses(episodes, Streams([0, 1]).draws("dropout", 0)), strict=True))
    for of, loss in losses.items():
        for part, parameters in parts.items():
            gradients = torch.autograd.grad(loss.sum(), parameters, allow_unused=True, retain_graph=True)
            if part == of:
                assert all(g is not None and bool((g != 0).any()) for g in gradients)
            else:
                assert all(g is None for g in gradients)
