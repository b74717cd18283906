from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from apil.model.head import Gaussian
from apil.model.persona import PersonaModel
from apil.rng import Streams
from apil.settings import ModelSettings
from apil.types import ActionBox, Lessons, Observation, Uncertainty
from apil.uncertainty import decompose_variance

BOX = ActionBox(torch.tensor([-2.0, 0.0]), torch.tensor([2.0, 10.0]))


def _observation(runs: int, episodes: int) -> Observation:
    return Observation(torch.zeros(runs, episodes, 3), torch.ones(runs, episodes, 2, dtype=torch.bool))


def _outputs(means: Tensor, deviations: Tensor) -> Tensor:
    """Network outputs that give these means and standard deviations: the bends at the bounds taken back."""
    low, high = math.log(0.02**2), math.log(4.0)
    below = low + torch.log(torch.expm1(2 * deviations.log() - low))
    return torch.cat([means, high - torch.log(torch.expm1(high - below))], -1)


def test_scaling_to_the_box_and_back() -> None:
    actions = torch.tensor([[-2.0, 0.0], [0.0, 5.0], [2.0, 10.0], [1.0, 2.5]])
    assert BOX.scaled(actions).tolist() == [[-1, -1], [0, 0], [1, 1], [0.5, -0.5]]
    torch.testing.assert_close(BOX.unscaled(BOX.scaled(actions)), actions)
    assert BOX.unscaled(torch.tensor([7.0, -7.0])).tolist() == [2, 0]
    assert BOX.contains(torch.tensor([[2.0, 10.0], [2.1, 5.0], [math.nan, 5.0]])).tolist() == [True, False, False]


def test_moments_and_draws_are_those_of_the_mixture() -> None:
    """Two models of two policies with unequal weights, against 200,000 draws from the definition of the mixture.

    The standard error of a variance of about 0.2 is below 0.002; the tolerance is five times that.
    """
    means = torch.tensor([[[0.3, -0.2], [-0.4, 0.1]], [[0.1, 0.0], [-0.1, 0.5]]])
    deviations = torch.tensor([[[0.1, 0.2], [0.15, 0.1]], [[0.2, 0.05], [0.1, 0.1]]])
    weights = torch.tensor([[0.7, 0.3], [0.7, 0.3]])
    count = 200_000
    head = Gaussian(BOX)
    luck = head.luck(Streams([3]).draws("x", 0), count, 1)
    assert luck is not None
    outputs = _outputs(means, deviations).expand(1, count, 2, 2, 4)
    mixed = head.mixture(head.parts(outputs, _observation(1, count).valid), weights.expand(1, count, 2, 2), luck[:, 0])
    # The definition, drawn by torch.
    generator = torch.Generator().manual_seed(0)
    model = torch.randint(2, (count,), generator=generator)
    policy = (torch.rand(count, generator=generator) > 0.7).long()
    noise = torch.randn(count, 2, generator=generator)
    sample = means[model, policy] + deviations[model, policy] * noise
    close: Any = {"atol": 0.01, "rtol": 0.0}
    torch.testing.assert_close(mixed.mean[0, 0, :2], sample.mean(0), **close)
    torch.testing.assert_close(mixed.mean[0, 0, 2:].square(), sample.var(0), **close)
    torch.testing.assert_close(mixed.uncertainty.total[0, 0], sample.var(0).sum(), **close)
    # Within a policy, between policies of a model, between models.
    of_model = torch.stack([sample[model == w].mean(0) for w in (0, 1)])
    within = torch.stack([sample[(model == w) & (policy == k)].var(0) for w in (0, 1) for k in (0, 1)]).view(2, 2, 2)
    intrinsic = (within * weights.unsqueeze(-1)).sum(1).mean(0).sum()
    torch.testing.assert_close(mixed.uncertainty.intrinsic[0, 0], intrinsic, **close)
    torch.testing.assert_close(mixed.uncertainty.model[0, 0], of_model.var(0, correction=0).sum(), **close)
    behavioral = torch.stack([sample[model == w].var(0) for w in (0, 1)]).mean(0).sum()
    torch.testing.assert_close(mixed.uncertainty.behavioral[0, 0], behavioral, **close)
    torch.testing.assert_close(mixed.uncertainty.extrinsic[0, 0], behavioral - intrinsic, **close)
    # What was drawn has the same moments (nearly nothing of it is clipped), in every way.
    assert mixed.drawn is not None
    drawn = BOX.scaled(mixed.drawn[0])
    torch.testing.assert_close(drawn.mean(0), sample.mean(0), **close)
    torch.testing.assert_close(drawn.var(0), sample.var(0), **close)
    torch.testing.assert_close(torch.quantile(drawn[:, 0], 0.1), torch.quantile(sample[:, 0], 0.1), **close)


def test_the_parts_are_those_of_decompose_variance() -> None:
    head = Gaussian(BOX)
    outputs = torch.randn(2, 3, 5, 4, 4, generator=torch.Generator().manual_seed(1))
    weights = torch.rand(2, 3, 5, 4, generator=torch.Generator().manual_seed(2))
    weights = weights / weights.sum(-1, keepdim=True)
    mixed = head.mixture(head.parts(outputs, _observation(2, 3).valid), weights, None)
    policies = head.policies(outputs.flatten(2, 3), _observation(2, 3)).view(2, 3, 5, 4, 4)
    means, variances = policies[..., :2], policies[..., 2:].square()
    parts = decompose_variance(
        means.permute(2, 3, 0, 1, 4), variances.permute(2, 3, 0, 1, 4), weights.permute(2, 3, 0, 1)
    )
    for name in Uncertainty.__dataclass_fields__:
        torch.testing.assert_close(getattr(mixed.uncertainty, name), getattr(parts, name).sum(-1))
    assert mixed.drawn is None


def test_the_loss_is_the_likelihood_of_the_scaled_answer_where_asked() -> None:
    head = Gaussian(BOX)
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(2, 6, 4, generator=generator)
    action = torch.rand(2, 6, 2, generator=generator) * (BOX.high - BOX.low) + BOX.low
    answered = torch.rand(2, 6, generator=generator) < 0.5
    policies = head.policies(outputs.unsqueeze(2), _observation(2, 6)).squeeze(2)
    normal: Any = torch.distributions.Normal(policies[..., :2], policies[..., 2:])
    expected = -torch.where(answered, normal.log_prob(BOX.scaled(action)).sum(-1), 0.0).sum(-1)
    torch.testing.assert_close(head.loss(outputs, action, torch.ones(0), answered), expected)


@pytest.mark.parametrize("raw", [-1e3, -5.0, 0.0, 5.0, 1e3])
def test_a_deviation_stays_between_its_bounds(raw: float) -> None:
    policy = Gaussian(BOX).policies(torch.full((1, 1, 1, 4), raw), _observation(1, 1))
    assert float(policy[..., 2].min()) * (1 + 1e-5) >= 0.02
    assert float(policy[..., 2].max()) <= 2.0 * (1 + 1e-2)


def test_a_gaussian_model_learns_two_teachers_who_differ() -> None:
    """One teacher answers 1 and the other -1, with equal chance: the mixture's mean is 0, its variance extrinsic and
    near 1, and each persona acts like its teacher.
    """
    from apil.optim import Adam

    box = ActionBox(torch.tensor([-1.0]), torch.tensor([1.0]))
    model = PersonaModel(
        Streams([0]), state_size=3, actions=box, teachers=2, samples=[0], sizes=ModelSettings(dropout=0.0)
    )
    # Small steps: near its floor the standard deviation makes large ones swing about the answer.
    adam = [Adam(part, 1e-3) for part in (model.policy, model.identity)]
    features = torch.ones(1, 8, 1, 3)
    identity = (torch.arange(8) % 2).view(1, 8, 1)
    answer = torch.where(identity.unsqueeze(-1) == 0, 1.0, -1.0)
    everywhere = torch.ones(1, 8, 1, dtype=torch.bool)
    nothing = torch.zeros(1, 8, 1)
    lessons = Lessons(features, None, everywhere.unsqueeze(-1), everywhere, answer, nothing, identity, everywhere)
    for iteration in range(1500):
        losses = model.losses(lessons, Streams([0]).draws("dropout", iteration))
        for loss, own in zip(losses, adam, strict=True):
            own.step(torch.autograd.grad(loss.sum(), list(own.parameters.values())), torch.ones(1, dtype=torch.bool))
    with torch.no_grad():
        seen = Observation(features[:, :1, 0], torch.ones(1, 1, 1, dtype=torch.bool))
        draws = Streams([0]).draws("model", 0)
        belief = model.begin(draws, Streams([0]).draws("identity", 0), 1, 1).belief(seen, 0, 1)
        policies = model.policies(seen)[0, 0]
    assert policies[:, 0].tolist() == pytest.approx([1, -1], abs=0.1)
    assert float(belief.uncertainty.extrinsic) == pytest.approx(1.0, abs=0.15)
    assert float(belief.uncertainty.intrinsic) < 0.05
    assert belief.mean[0, 0, 0].item() == pytest.approx(0.0, abs=0.15)
