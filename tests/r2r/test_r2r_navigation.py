"""The measures of R2R against plain calculations, ground truth, and a published walker."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from made_up_r2r import ALPHA, ALPHA_EDGES
from torch import Tensor

from apil.learning.build import build
from apil.learning.collect import Agents
from apil.r2r.navigation import MEASURES, evaluate_split, follow_teacher, measure, tours
from apil.r2r.task import R2R, Walk
from apil.r2r.world import World
from apil.rng import Streams
from apil.settings import RunSettings

NEAR = 3.0
JOINED = {frozenset(edge.split()) for edge in ALPHA_EDGES if "ax" not in edge}
PLACES = ("a0", "a1", "a2", "a3", "a4", "a5")
"""Those of the first made-up house that hang together."""


def _metres() -> dict[tuple[str, str], float]:
    """Along the shortest way, by trying every place as a stopover."""
    found = {
        (a, b): 0.0 if a == b else math.dist(ALPHA[a], ALPHA[b]) if frozenset((a, b)) in JOINED else math.inf
        for a in PLACES
        for b in PLACES
    }
    for over in PLACES:
        for a in PLACES:
            for b in PLACES:
                found[a, b] = min(found[a, b], found[a, over] + found[over, b])
    return found


def _ndtw(walked: list[str], annotated: list[str], metres: dict[tuple[str, str], float]) -> float:
    """The best of all ways to step through both sequences together, by recursion."""

    def cost(i: int, j: int) -> float:
        here = metres[walked[i], annotated[j]]
        if i == j == 0:
            return here
        steps = [(i - 1, j), (i, j - 1), (i - 1, j - 1)]
        return here + min(cost(a, b) for a, b in steps if a >= 0 and b >= 0)

    return math.exp(-cost(len(walked) - 1, len(annotated) - 1) / (NEAR * len(annotated)))


def _plain(walked: list[str], annotated: list[str], goal: str) -> dict[str, float]:
    metres = _metres()
    length = sum(metres[a, b] for a, b in pairwise(walked))
    error, shortest = metres[walked[-1], goal], metres[walked[0], goal]
    success = float(error <= NEAR)
    ratio = 1.0 if max(length, shortest) == 0 else shortest / max(length, shortest)
    return {
        "success": success,
        "oracle_success": float(any(metres[place, goal] <= NEAR for place in walked)),
        "navigation_error": error,
        # Who starts at the goal cannot be shorter than the shortest way of 0 m: any walk back to it counts in full.
        "spl": success * (ratio if shortest > 0 else 1.0),
        "ndtw": _ndtw(walked, annotated, metres),
        "path_length": length,
    }


def _walk(dice: random.Random, start: str, steps: int) -> list[str]:
    walked = [start]
    for _ in range(steps):
        walked.append(dice.choice([p for p in PLACES if frozenset((p, walked[-1])) in JOINED]))
    return walked


def _padded(world: World, walks: list[list[str]]) -> Tensor:
    longest = max(map(len, walks))
    rows = [[world.viewpoints.index(name) for name in walk] + [-1] * (longest - len(walk)) for walk in walks]
    return torch.tensor(rows)


def test_measures_are_those_of_plain_calculations(made_up_data: Path) -> None:
    world, dice = World.open(made_up_data), random.Random(0)
    walked = [_walk(dice, dice.choice(PLACES), dice.randrange(6)) for _ in range(60)]
    annotated = [_walk(dice, walk[0], dice.randrange(1, 5)) for walk in walked]
    goals = [path[-1] for path in annotated]
    goal = torch.tensor([world.viewpoints.index(name) for name in goals])
    trip = measure(world, _padded(world, walked), _padded(world, annotated), goal, NEAR)
    expected = [_plain(*each) for each in zip(walked, annotated, goals, strict=True)]
    for name in MEASURES:
        assert getattr(trip, name).tolist() == pytest.approx([each[name] for each in expected], abs=1e-5), name
    # All kinds of walks are among them.
    assert {each["success"] for each in expected} == {each["oracle_success"] for each in expected} == {0.0, 1.0}
    assert any(0 < each["spl"] < 1 for each in expected)


def _of_truth(task: R2R, split: str) -> dict[str, float]:
    """Mean measures of the annotated paths."""
    chosen = task.of_split(split).episodes
    path = task.paths[chosen]
    trip = measure(task.world, path, path, task.goals[chosen], task.success_distance)
    return {name: float(getattr(trip, name).double().mean()) for name in MEASURES}


@pytest.mark.parametrize("split", ["train", "val_seen", "val_unseen"])
def test_ground_truth_is_perfect_in_made_up_houses(made_up_data: Path, split: str) -> None:
    found = _of_truth(R2R(str(made_up_data)), split)
    assert [found[name] for name in ("success", "oracle_success", "ndtw", "spl")] == pytest.approx([1.0] * 4)
    assert found["navigation_error"] == 0.0


def _real(world: World, tmp: Path) -> R2R:
    """The task in a world that is open already."""
    task = R2R(str(tmp))
    task.world = world
    task.actions = 1 + world.neighbours.shape[1]
    return task.of_split("val_seen")


@pytest.mark.parametrize(("split", "spl"), [("val_seen", 1.0), ("val_unseen", 0.998)])
def test_ground_truth_is_perfect_on_the_real_data(r2r_world: World, made_up_data: Path, split: str, spl: float) -> None:
    found = _of_truth(_real(r2r_world, made_up_data), split)
    assert (found["success"], found["oracle_success"], found["navigation_error"]) == (1.0, 1.0, 0.0)
    assert found["ndtw"] == pytest.approx(1.0, abs=1e-6)
    assert found["spl"] == pytest.approx(spl, abs=0.0005 if split == "val_unseen" else 1e-6)


VIEW = math.atan(math.tan(math.radians(30)) * 640 / 480)
"""Half the width of what the simulator's camera shows: 640 x 480 pixels, 60 degrees high."""


def _ahead(task: R2R, state: Walk, heading: Tensor) -> Tensor:
    """[1, n, D]: the cosine of the turn towards each exit; -2 where there is none."""
    turn = (task.panoramas.heading[state.at] - heading.unsqueeze(-1)).cos()
    return turn.masked_fill(~task.panoramas.exits[state.at], -2.0)


def _straight_on(task: R2R, split: str, seed: int) -> Tensor:
    """[n, 6]: the walks of an agent that turns to a random one of twelve headings and then goes forward five times,
    to the place nearest to straight ahead; where none is in view it turns right, by 30 degrees at a time."""
    chosen = task.of_split(split).episodes.unsqueeze(0)
    state = task.start(chosen)
    heading = (Streams([seed]).draws("walker", 0).uniform(chosen.shape[1]) * 12).floor() * (math.pi / 6)
    walked = [state.at[0]]
    for _ in range(5):
        for _ in range(11):
            blocked = _ahead(task, state, heading).amax(-1) < math.cos(VIEW)
            heading = torch.where(blocked, heading + math.pi / 6, heading)
        state = task.step(state, 1 + _ahead(task, state, heading).argmax(-1))
        walked.append(state.at[0])
    return torch.stack(walked, 1)


@pytest.mark.parametrize(("split", "published"), [("val_seen", 0.159), ("val_unseen", 0.163)])
def test_a_walker_without_eyes_is_as_good_as_published(
    r2r_world: World, made_up_data: Path, split: str, published: float
) -> None:
    task = _real(r2r_world, made_up_data)
    chosen = task.of_split(split).episodes
    success = []
    # The mean over ten walks of each episode; one alone has a standard error of about a point.
    for seed in range(10):
        trip = measure(r2r_world, _straight_on(task, split, seed), task.paths[chosen], task.goals[chosen], NEAR)
        success.append(float(trip.success.mean()))
    assert sum(success) / len(success) == pytest.approx(published, abs=0.02)


def _agents(data: Path, query: str, teacher: str = "detm") -> Agents:
    sizes: dict[str, str | int] = {"width": 8, "heads": 2, "data": str(data)}
    return build([RunSettings.of("r2r", teacher, query, hidden=8, models=2, persona=4, threshold=0.0, options=sizes)])


def _evaluated(data: Path, query: str, **settings: Any) -> dict[str, Any]:
    return evaluate_split(_agents(data, query), "val_seen", **settings)


def test_who_follows_a_teacher_at_every_step_walks_the_shortest_way(houses_data: Path) -> None:
    result = _evaluated(houses_data, "bc")
    assert result["query_rate"] == result["query_rate_with_help"] == 1.0
    assert result["success_with_help"] == pytest.approx(1.0)
    assert result["spl_with_help"] == pytest.approx(1.0)
    assert result["navigation_error_with_help"] == 0.0
    # An agent that has learned nothing does not.
    assert result["success_alone"] < 0.5
    followed = follow_teacher(_agents(houses_data, "bc"), "val_seen")
    assert followed == {"success": pytest.approx(1.0), "final_distance": 0.0}


def test_who_never_asks_is_the_same_alone_and_with_help(houses_data: Path) -> None:
    told: list[int] = []
    result = _evaluated(houses_data, "never", progress=told.append)
    assert result["query_rate"] == result["query_rate_with_help"] == 0.0
    for name in MEASURES:
        alone = "success_alone" if name == "success" else name
        assert result[alone] == result[f"{name}_with_help"]
    assert result["behavioral"] == pytest.approx(result["intrinsic"] + result["extrinsic"], abs=1e-6)
    assert (result["split"], result["greedy"]) == ("val_seen", True)
    assert told[-1] == 2 * result["episodes"]


def test_an_evaluation_goes_through_the_split_once_in_order(houses_data: Path) -> None:
    agents = _agents(houses_data, "never")
    task = R2R(str(houses_data)).of_split("train")
    seen = list(tours(agents, task, "alone", limit=300))
    assert torch.cat([tour.episode for tour in seen]).tolist() == task.episodes[:300].tolist()
    assert len(seen) > 1
    for tour in seen:
        walked, batch = tour.walked, tour.episodes
        assert torch.equal(walked[:, 0], task.start(tour.episode.unsqueeze(0)).at[0])
        # Every step leads through an exit, to the place at which the next step is taken, until the agent stops.
        here, there = walked[:, :-1], walked[:, 1:]
        moved = there >= 0
        assert bool((task.world.neighbours[here[moved]] == there[moved].unsqueeze(-1)).any(-1).all())
        assert torch.equal(moved, batch.live[0] & (batch.taken[0] != 0))
        assert torch.equal(tour.trip.navigation_error, batch.final_distance[0])
        assert torch.equal(tour.trip.success.bool(), batch.success[0])
        assert torch.equal(batch.taken, batch.mean.argmax(-1))


def test_greedy_and_sampled_evaluations_repeat_and_differ(houses_data: Path) -> None:
    greedy, again = (_evaluated(houses_data, "never", limit=40) for _ in range(2))
    sampled, resampled = (_evaluated(houses_data, "never", limit=40, greedy=False) for _ in range(2))
    assert greedy == again
    assert sampled == resampled
    assert greedy["path_length"] != sampled["path_length"]
    assert greedy["episodes"] == 40
