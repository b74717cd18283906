"""The gap to what the teachers themselves reach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from apil.learning.build import build
from apil.learning.collect import collect
from apil.query.progress import ProgressPrediction, reference_queries
from apil.query.protocol import QuerySetup
from apil.runs.train import resume_run, start_run
from apil.settings import RunSettings
from apil.tasks.maze import Maze
from apil.types import Episodes


def episodes_too_short(query: str) -> Episodes:
    """Mazes of three steps: the teachers cannot always reach the goal."""
    agents = build([RunSettings.of("maze", "rand", query, seed=seed, threshold=0.7) for seed in (0, 1)])
    return collect(replace(agents, task=Maze(horizon=3)), 0, 40)


def policy(gap: float | str) -> ProgressPrediction:
    agents = build([RunSettings.of("maze", "rand", "never", seed=seed) for seed in (0, 1)])
    setup = QuerySetup(agents.streams, Maze().state_size, 4, 3, torch.full((2,), torch.nan), gap=gap)  # type: ignore[arg-type]
    return ProgressPrediction(setup)


def test_the_estimate_is_the_mean_final_distance_where_the_teachers_were_followed() -> None:
    followed, partly = episodes_too_short("bc"), episodes_too_short("random")
    learner = policy("estimate")
    for episodes in (partly, followed):
        learner.observe(episodes)
        learner.loss(episodes)
        learner.loss(partly)  # may be repeated: it remembers nothing
    own = (partly.answered | ~partly.live).all(-1)
    assert 0 < int(own.sum()) < own.numel()
    for run in range(2):
        distances = torch.cat([partly.final_distance[run][own[run]], followed.final_distance[run]])
        estimate = learner.memory["distance"][run] / learner.memory["followed"][run]
        assert float(estimate) == pytest.approx(float(distances.mean()))
        assert float(estimate) > 0


@pytest.mark.parametrize("gap", [0.0, 1.0, 2.5])
def test_distances_count_from_the_gap_on(gap: float) -> None:
    """The share of states without progress is that of the labelling on distances less the gap."""
    episodes = episodes_too_short("random")
    logged = policy(gap).loss(episodes).logs["no_progress"]
    for run in range(2):
        labels = reference_queries(
            episodes.answered[run],
            (episodes.distance[run] - gap).clamp_min(0.0),
            (episodes.final_distance[run] - gap).clamp_min(0.0),
            sigma=2.0,
            epsilon=0.0,
            valid=episodes.live[run],
        )
        assert float(logged[run]) == pytest.approx(float(labels.sum() / episodes.live[run].sum()))


def test_the_estimate_survives_a_stop(tmp_path: Path) -> None:
    config = RunSettings.of("grid", "rand", "apil", iterations=30, save_every=7, log_every=5, gap="estimate", hidden=8)
    start_run(config, tmp_path / "whole", progress=lambda done: None)
    start_run(config.changed(iterations=10), tmp_path / "cut", progress=lambda done: None)
    resume_run(tmp_path / "cut", iterations=30, progress=lambda done: None)
    name = "checkpoint-00000030.safetensors"
    assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_an_end_as_good_as_that_of_the_teachers_asks_for_less() -> None:
    """Where the teachers reach the goal only sometimes, d*_T = 0 sees no progress where it is good enough."""
    followed, partly = episodes_too_short("bc"), episodes_too_short("random")
    estimated = policy("estimate")
    estimated.observe(followed)
    none, some = (own.loss(partly).logs["no_progress"] for own in (policy(0.0), estimated))
    assert (some < none - 0.05).all()
