"""ErrPred: the margin it predicts, and where it learns it."""

from __future__ import annotations

import math

import pytest
import torch

from apil.learning.build import build
from apil.learning.collect import Agents, collect
from apil.learning.group import take
from apil.learning.update import Learner
from apil.optim import optimizer_factory
from apil.query.errpred import errpred
from apil.query.protocol import QuerySetup
from apil.rng import Streams
from apil.settings import RunSettings
from apil.types import Belief, Episodes, Uncertainty


def _agents(threshold: float, learning_rate: float = 1e-3) -> Agents:
    config = RunSettings.of(
        "maze", "rand", "errpred", seed=1, batch=8, threshold=threshold, learning_rate=learning_rate
    )
    return build([config])


def _belief_at(episodes: Episodes, t: int) -> Belief:
    nothing = Uncertainty(*[torch.zeros(episodes.answered.shape[:2])] * 5)
    features, mean, identity = (x[:, :, t] for x in (episodes.state, episodes.mean, episodes.identity_belief))
    return Belief(features, mean, identity, nothing, episodes.answered.shape[2] - t)


def _predictions(episodes: Episodes) -> torch.Tensor:
    """[1, episodes, T]: the predicted margin, found by 255 runs that differ in their threshold alone."""
    task = _agents(0.5).task
    thresholds = torch.arange(1, 256) / 256
    policy = errpred(
        QuerySetup(
            streams=Streams([1] * 255),
            state_size=task.state_size,
            actions=task.actions,
            horizon=task.horizon,
            thresholds=thresholds,
        )
    )
    stack: Episodes = take(episodes, torch.zeros(255, dtype=torch.long))
    luck = torch.full(stack.answered.shape[:2], 0.5)
    asks = torch.stack(
        [policy.begin(luck.shape[1]).ask(_belief_at(stack, t), luck) for t in range(task.horizon)], dim=2
    )
    return asks.double().sum(0, keepdim=True) / 256 + 1 / 512


@pytest.fixture(scope="module")
def episodes() -> Episodes:
    """The untrained margins lie around a threshold of one half: some steps are asked, some not."""
    found = collect(_agents(0.5), 0, 8)
    assert 0 < int(found.answered.sum()) < int(found.live.sum())
    return found


def test_the_loss_is_the_squared_error_of_the_margin_at_asked_steps(episodes: Episodes) -> None:
    loss = _agents(0.5).queries[0].part.loss(episodes)
    assert loss is not None
    predicted = _predictions(episodes)
    expected = 0.0
    _, batch, horizon = episodes.answered.shape
    for b in range(batch):
        for t in range(horizon):
            if episodes.answered[0, b, t]:
                margin = 1 - float(episodes.mean[0, b, t, episodes.action[0, b, t]])
                expected += (float(predicted[0, b, t]) - margin) ** 2
    # The predictions are known to 1/512.
    assert float(loss.loss[0]) == pytest.approx(expected / batch, rel=0.03)
    assert bool(loss.active[0])


def test_training_brings_the_prediction_to_the_margin(episodes: Episodes) -> None:
    agents = _agents(0.5, learning_rate=1e-2)
    learner = Learner(agents, optimizer_factory("adam", 1e-2))
    first = float(learner.update(episodes, 0)["query_loss"][0])
    for iteration in range(1, 60):
        last = float(learner.update(episodes, iteration)["query_loss"][0])
    assert math.isfinite(last)
    assert last < first / 4
