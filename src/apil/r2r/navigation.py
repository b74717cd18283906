"""How well an agent follows instructions: the measures of R2R, alone and with help, on a whole split."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from apil.learning.collect import Acting, Agents, Step, collect
from apil.learning.metrics import PARTS, step_sums
from apil.r2r.task import R2R, Walk
from apil.r2r.world import World
from apil.types import Episodes

CHUNK = 250
"""Episodes that an evaluation runs at once."""


@dataclass(frozen=True)
class Trip:
    """Measures of n walks, each [n] float."""

    success: Tensor
    """1 if it ended within 3 m of the goal."""
    oracle_success: Tensor
    """1 if it ever came within 3 m of the goal."""
    navigation_error: Tensor
    """Metres from the end to the goal, along the shortest path."""
    spl: Tensor
    """Success, weighted by the shortest length over the length walked (Anderson et al. 2018)."""
    ndtw: Tensor
    """Likeness to the annotated path: exp(-DTW / (3 m x its viewpoints)) (Ilharco et al. 2019)."""
    path_length: Tensor
    """Metres walked."""


MEASURES = tuple(field.name for field in fields(Trip))


def measure(world: World, walked: Tensor, annotated: Tensor, goal: Tensor, success_distance: float) -> Trip:
    """Measures of walks [n, L] (viewpoints, -1 after the end) against annotated paths [n, P] (-1 after the end)."""
    present = walked >= 0
    last = walked.gather(1, present.sum(1, keepdim=True) - 1)
    filled = torch.where(present, walked, last)
    to_goal = world.distance(filled, goal.unsqueeze(1).expand_as(filled))
    length = world.distance(filled[:, :-1], filled[:, 1:]).sum(1)
    error = to_goal[:, -1]
    success = (error <= success_distance).float()
    shortest = to_goal[:, 0]
    # A walk that starts at its goal and stays there is as short as can be.
    spl = success * torch.where(shortest > 0, shortest / torch.maximum(length, shortest).clamp_min(1e-9), 1.0)
    oracle = (to_goal.min(1).values <= success_distance).float()
    return Trip(success, oracle, error, spl, _ndtw(world, walked, annotated, success_distance), length)


def _ndtw(world: World, walked: Tensor, annotated: Tensor, success_distance: float) -> Tensor:
    """Normalised dynamic time warping; the table is filled cell by cell for all walks at once."""
    (count, steps), reference = walked.shape, annotated.shape[1]
    first = walked.clamp_min(0).unsqueeze(2).expand(-1, -1, reference)
    second = annotated.clamp_min(0).unsqueeze(1).expand(-1, steps, -1)
    cost = world.distance(first, second).double()
    table = torch.full((count, steps + 1, reference + 1), torch.inf, dtype=torch.float64)
    table[:, 0, 0] = 0.0
    for i in range(steps):
        for j in range(reference):
            before = torch.minimum(torch.minimum(table[:, i, j], table[:, i, j + 1]), table[:, i + 1, j])
            table[:, i + 1, j + 1] = cost[:, i, j] + before
    lengths, sizes = (walked >= 0).sum(1), (annotated >= 0).sum(1)
    total = table[torch.arange(count), lengths, sizes]
    return torch.exp(-total / (success_distance * sizes)).float()


@dataclass(frozen=True)
class Tour:
    """Episodes of a split as an agent went through them."""

    episode: Tensor
    """[n] long: numbered through all splits."""
    walked: Tensor
    """[n, T + 1] long: viewpoints, -1 after the agent stopped."""
    trip: Trip
    episodes: Episodes


def tours(
    agents: Agents, task: R2R, acting: Acting, *, greedy: bool = True, limit: int | None = None
) -> Iterator[Tour]:
    """Goes through the episodes of the task's split once, in order, in batches."""
    chosen = task.episodes[:limit]
    for number, place in enumerate(range(0, len(chosen), CHUNK)):
        episode = chosen[place : place + CHUNK]
        here = task.on(episode)
        track: list[Tensor] = [here.start(episode.unsqueeze(0)).at[0]]

        def watch(state: Walk, step: Step, here: R2R = here, track: list[Tensor] = track) -> None:
            after = here.step(state, step.action)
            track.append(torch.where(after.stopped[0], -1, after.at[0]))

        own = replace(agents, task=here)
        batch = collect(own, number, len(episode), acting, "evaluation/", watch=watch, greedy=greedy)
        walked = torch.stack(track, 1)
        trip = measure(task.world, walked, task.paths[episode], task.goals[episode], task.success_distance)
        yield Tour(episode, walked, trip, batch)


def evaluate_split(
    agents: Agents,
    split: str,
    *,
    greedy: bool = True,
    limit: int | None = None,
    shuffle: bool = False,
    helped: bool = True,
    progress: Callable[[int], None] = lambda episodes: None,
) -> dict[str, Any]:
    """The measures alone and, with the suffix `_with_help`, where the teacher's action is executed wherever the query
    policy fires; the share of steps at which it fires in both; and the five uncertainties of the rollout alone.

    Not `helped` leaves the second half out. With `shuffle` each episode comes with another's instruction. `progress` is
    called with the episodes done, of twice the number in the split."""
    assert isinstance(agents.task, R2R)
    task = agents.task.of_split(split)
    results: dict[str, Any] = {"split": split, "episodes": len(task.episodes[:limit]), "greedy": greedy}
    if shuffle:
        task = task.shuffled()
        results["shuffled"] = True
    done = 0
    for acting, suffix in (("alone", ""), ("helped", "_with_help"))[: 1 + helped]:
        sums: dict[str, float] = {}
        for tour in tours(agents, task, acting, greedy=greedy, limit=limit):  # type: ignore[arg-type]
            batch = tour.episodes
            parts = {name: getattr(tour.trip, name).double().sum() for name in MEASURES}
            parts |= {"fired": (batch.answered | batch.unanswered).sum(), "steps": batch.live.sum()}
            parts |= {name: value[0] for name, value in step_sums(batch).items()}
            sums = {name: sums.get(name, 0.0) + float(value) for name, value in parts.items()}
            done += len(tour.episode)
            progress(done)
        for name in MEASURES:
            key = "success_alone" if (name, suffix) == ("success", "") else name + suffix
            results[key] = sums[name] / results["episodes"]
        results[f"query_rate{suffix}"] = sums["fired"] / sums["steps"]
        if acting == "alone":
            results.update({part: sums[part] / sums["steps"] for part in PARTS})
    return results


def follow_teacher(agents: Agents, split: str) -> dict[str, float]:
    """What the teachers reach when they are followed at every step: the ceiling. The query policy must always ask."""
    assert isinstance(agents.task, R2R)
    task = agents.task.of_split(split)
    trips = [tour.trip for tour in tours(agents, task, "helped")]
    success, final = (torch.cat([getattr(trip, name) for trip in trips]) for name in ("success", "navigation_error"))
    return {"success": float(success.mean()), "final_distance": float(final.mean())}
