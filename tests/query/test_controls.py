"""Controls that ask by chance: each state that they may ask about is as likely as they say."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from apil.errors import ApilError
from apil.learning.build import build
from apil.learning.collect import collect, review
from apil.learning.trainer import Trainer
from apil.learning.walk import Agents
from apil.query import QUERY_POLICIES
from apil.query.check import check_query_policy
from apil.runs.calibration import load_calibration
from apil.runs.resolve import resolve
from apil.settings import RunSettings
from apil.studies.plan import plan
from apil.types import Episodes

_EPISODES = 4000


def _agents(query: str, **settings: float) -> Agents:
    """An agent that knows nothing, on MAZE: its episodes are of different lengths."""
    return build([RunSettings.of("maze", "detm", query, asking="review", hidden=4, models=1, **settings)])


def _reviewed(query: str, **settings: float) -> Episodes:
    return review(_agents(query, **settings), 0, _EPISODES)


def _near(found: Tensor, chances: Tensor) -> None:
    """`found` [N, ...] bool happened as often as independent events with `chances` [N, ...] do."""
    expected, spread = chances.sum(0), (chances * (1 - chances)).sum(0).sqrt()
    assert bool(((found.sum(0) - expected).abs() <= 5 * spread + 1e-6).all())


def test_one_an_episode_asks_about_each_visited_state_alike() -> None:
    episodes = _reviewed("one-an-episode")
    live, asked = episodes.live[0], episodes.answered[0]
    lengths = live.sum(-1, keepdim=True)
    assert len(set(lengths.flatten().tolist())) > 3
    assert bool((asked.sum(-1) == 1).all())
    assert not bool((asked & ~live).any())
    _near(asked, live / lengths)


def test_random_review_asks_about_each_visited_state_alike() -> None:
    episodes = _reviewed("random-review", threshold=0.3)
    _near(episodes.answered[0], 0.3 * episodes.live[0])
    assert not bool((episodes.answered & ~episodes.live).any())


def test_random_review_follows_no_answer() -> None:
    asked, unasked = (_reviewed("random-review", threshold=chance) for chance in (1.0, 0.0))
    assert torch.equal(asked.answered, asked.live)
    assert torch.equal(asked.taken, unasked.taken)


def test_one_an_episode_asks_once_where_nobody_knows_the_length() -> None:
    episodes = collect(_agents("one-an-episode"), 0, _EPISODES, "alone", "evaluation/")
    fired, live = episodes.unanswered[0], episodes.live[0]
    horizon = live.shape[-1]
    assert bool((fired.sum(-1) <= 1).all())
    assert bool((fired.sum(-1) == 1)[live.all(-1)].all())
    whole = fired[:, 0]  # every episode has a first step
    assert abs(float(whole.double().mean()) - 1 / horizon) <= 5 * math.sqrt(1 / horizon / _EPISODES)


@pytest.mark.parametrize("name", ["random-review", "one-an-episode", "every-k"])
def test_controls_keep_the_protocol(name: str) -> None:
    check_query_policy(name)


@pytest.mark.parametrize("name", ["random-review", "one-an-episode"])
def test_a_control_that_asks_in_review_needs_no_setting_for_it(name: str) -> None:
    given = {"answer_budget": 20}
    assert resolve("grid", "detm", name, given, load_calibration(None)).settings.query.asking == "review"
    assert resolve("grid", "detm", "random", given, load_calibration(None)).settings.query.asking == "live"
    with pytest.raises(ApilError, match=f"'{name}' asks in review, and asking is 'live': leave it out"):
        resolve("grid", "detm", name, {**given, "asking": "live"}, load_calibration(None))
    base = RunSettings.of("grid", "detm", "never")
    cells = plan(base, ["detm"], [name, "random"], 1, {"random": 0.1, "random-review": 0.1})
    assert [cell.config.query.asking for cell in cells] == ["review", "live"]


def test_controls_are_listed_and_trained_by_name() -> None:
    controls = {"never", "dagger", "bc", "random", "random-review", "one-an-episode", "every-k"}
    assert controls <= set(QUERY_POLICIES.names())
    given = {"answer_budget": 12, "hidden": 4, "models": 2}
    trainer = Trainer([resolve("grid", "detm", "one-an-episode", given, load_calibration(None)).settings])
    trainer.train()
    assert trainer.rows[0][-1]["answers"] == 12
