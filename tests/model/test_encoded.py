from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from apil.model.encoded import EncodedModel, StateEncoder
from apil.model.persona import PersonaModel
from apil.rng import Streams
from apil.settings import ModelSettings
from apil.types import Episodes, Uncertainty

SIZES = ModelSettings(hidden=8, persona=4, models=2)


def _network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.ReLU(), nn.Linear(5, 3))


def _model(seeds: list[int]) -> EncodedModel:
    streams = Streams(seeds)
    encoder = StateEncoder(streams, _network, 6)
    samples = [0] * len(seeds)
    inner = PersonaModel(streams, state_size=encoder.state_size, actions=2, teachers=2, samples=samples, sizes=SIZES)
    return EncodedModel(encoder, inner)


def _episodes(runs: int) -> Episodes:
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(runs, 4, 5, 6, generator=generator)
    answered = torch.rand(runs, 4, 5, generator=generator) < 0.5
    whole = torch.zeros(runs, 4, 5, dtype=torch.long)
    nothing = torch.zeros(runs, 4, 5)
    return Episodes(
        features, features[..., :3], torch.ones(runs, 4, 5, 2, dtype=torch.bool), nothing, nothing, answered,
        torch.zeros_like(answered), whole + answered, nothing, whole, whole, answered, nothing[..., 0],
        answered[..., 0], Uncertainty(*[nothing] * 5), features[..., :0],
    )  # fmt: skip


def test_initial_weights_depend_on_the_seed_alone_and_leave_torch_as_it_was() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    stacked = _model([3, 4])
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    alone = _model([4])
    for name, value in stacked.policy.items():
        assert torch.equal(value[1], alone.policy[name][0]), name
    assert not torch.equal(stacked.policy["encoder.0.weight"][0], stacked.policy["encoder.0.weight"][1])


def test_the_policy_loss_reaches_the_encoder_and_the_identity_loss_does_not() -> None:
    model = _model([0])
    for part in (model.policy, model.identity):
        for value in part.values():
            value.requires_grad_(True)
    policy, identity = model.losses(_episodes(1), Streams([0]).draws("dropout", 0))
    names = [name for name in model.policy if name.startswith("encoder.")]
    assert names
    values = [model.policy[name] for name in names]
    assert all(float(g.abs().sum()) > 0 for g in torch.autograd.grad(policy.sum(), values, retain_graph=True))
    unreached = torch.autograd.grad(identity.sum(), values, allow_unused=True)
    assert all(gradient is None for gradient in unreached)


def test_losses_are_those_of_the_model_on_encoded_states() -> None:
    model, episodes = _model([0, 1]), _episodes(2)
    streams = Streams([0, 1])
    losses = model.losses(episodes, streams.draws("dropout", 0))
    encoder = StateEncoder(streams, _network, 6)
    inner = PersonaModel(streams, state_size=3, actions=2, teachers=2, samples=[0, 0], sizes=SIZES)
    states = encoder(episodes.features.flatten(1, 2)).view(2, 4, 5, 3)
    expected = inner.losses(replace(episodes, features=states), streams.draws("dropout", 0))
    for ours, theirs in zip(losses, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_nothing_asked_leaves_every_parameter_in_the_loss() -> None:
    model, episodes = _model([0]), _episodes(1)
    for value in model.policy.values():
        value.requires_grad_(True)
    none = replace(episodes, answered=torch.zeros_like(episodes.answered))
    policy, _ = model.losses(none, Streams([0]).draws("dropout", 0))
    gradients = torch.autograd.grad(policy.sum(), list(model.policy.values()))
    assert all(float(gradient.abs().sum()) == 0 for gradient in gradients)
