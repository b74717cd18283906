"""The newest episodes, looked at again with the current agent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from apil.learning.build import build
from apil.learning.collect import collect
from apil.learning.rows import RowFormat
from apil.learning.trainer import Trainer
from apil.learning.window import Window, new_window
from apil.settings import RunSettings
from apil.types import Episodes

LEARNS: dict[str, Any] = {"replay": 16, "updates": 3, "window": 6, "batch": 4, "budget": 0.2, "log_every": 5}


def _config(query: str = "apil", **settings: Any) -> RunSettings:
    return RunSettings.of("maze", "twodifdetm", query, **{**LEARNS, "iterations": 10, **settings})


def _last(episodes: list[Episodes], name: str, count: int) -> torch.Tensor:
    """The newest `count` episodes' field, in the order of their places in a ring of that many."""
    values = torch.cat([getattr(own, name) for own in episodes], 1)
    first = values.shape[1] - count
    places = [(first + at) % count for at in range(count)]
    ring = torch.empty_like(values[:, :count])
    ring[:, places] = values[:, first:]
    return ring


def test_it_keeps_what_happened_in_the_newest_episodes() -> None:
    agents = build([_config("bc", seed=1, budget=None), _config("random", seed=2, threshold=0.5, budget=None)])
    window = Window(RowFormat.of(agents.task), 2, agents.task.horizon, 6)
    seen = []
    for iteration in range(3):
        seen.append(collect(agents, iteration, 4))
        window.add(seen[-1])
    found = window.episodes(agents, 3)
    same = ("features", "valid_actions", "answered", "unanswered", "action", "identity", "taken", "live", "success")
    for name in (*same, "final_distance"):
        assert torch.equal(getattr(found, name), _last(seen, name, 6)), name
    assert torch.equal(found.distance.nan_to_num(-1), _last(seen, "distance", 6).nan_to_num(-1))


def test_what_the_agent_thinks_of_them_follows_its_weights() -> None:
    agents = build([_config()])
    window = Window(RowFormat.of(agents.task), 1, agents.task.horizon, 6)
    window.add(collect(agents, 0, 4))
    before = window.episodes(agents, 1)
    # The last layer's bias decides for the first action, whatever is seen.
    agents.model.policy["b2"][:, 0] += 100.0
    after = window.episodes(agents, 1)
    possible = before.valid_actions[..., 0]
    assert bool((before.mean[..., 0][possible] < 0.99).any())
    torch.testing.assert_close(after.mean[..., 0], possible.float())
    assert torch.equal(before.taken, after.taken)


@pytest.mark.parametrize("query", ["apil", "slip", "errpred", "rnd", "thriftydagger"])
def test_a_run_is_the_same_alone_in_a_stack_and_resumed(query: str) -> None:
    config = _config(query, seed=3)
    alone = Trainer([config])
    alone.train()
    stacked = Trainer([_config("random", seed=1), config, _config("apil", seed=2)])
    for _ in range(5):
        stacked.step()
    resumed = Trainer([config])
    resumed.restore(5, [stacked.state(1)])
    assert resumed.store is not None
    assert stacked.store is not None
    # The answers come from the store of the run that was stopped.
    resumed.take_over(0, [stacked.store.shelves[1].room.array[: stacked.store.shelves[1].rows]])
    resumed.train()
    ours, theirs = alone.state(0), resumed.state(0)
    assert set(ours) == set(theirs)
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name


def test_nothing_is_kept_for_rules_that_do_not_learn_or_tasks_too_large() -> None:
    learner = _config().learner
    assert new_window(build([_config("random", seed=1)]), learner) is None
    assert new_window(build([_config()]), replace(learner, window=4)) is None
    assert new_window(build([_config()]), learner) is not None
