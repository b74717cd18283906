"""What a trained agent can do, alone and with help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from apil.learning.collect import Acting, Agents, collect
from apil.learning.metrics import PARTS, step_sums
from apil.types import Episodes

PASSES = 3
"""How often an evaluation goes through its episodes."""
CHUNK = 50
"""Episodes that an evaluation runs at once; twice as many no longer fit the cache for a stack of 50 runs."""


def chunks(agents: Agents, episodes: int, acting: Acting, prefix: str, greedy: bool = False) -> Iterator[Episodes]:
    """Batches of at most `CHUNK` episodes, `episodes` in all."""
    for place in range(0, episodes, CHUNK):
        yield collect(agents, place // CHUNK, min(CHUNK, episodes - place), acting, prefix, greedy=greedy)


def evaluate(
    agents: Agents,
    episodes: int,
    progress: Callable[[int], None] = lambda episodes: None,
    *,
    greedy: bool = False,
    helped: bool = True,
) -> list[dict[str, Any]]:
    """For each run: success alone with sampled and with greedy actions; success with help (the teacher's action is
    executed wherever the query policy fires); the share of steps at which it fires alone and with help; and the five
    uncertainties of the rollout alone.

    Sampled actions are drawn from the mean policy, as in training. The greedy action is the likeliest one, or the mean
    where actions are continuous. If `greedy`, query rates, uncertainties and success with help are those of greedy
    actions too; otherwise of sampled ones. Unless `helped` nothing is measured with help. `progress` is called with the
    episodes done, of `PASSES` times `episodes`.
    """
    passes: tuple[tuple[str, Acting, bool, str | None], ...] = (
        ("success_alone", "alone", False, None if greedy else "query_rate"),
        ("success_greedy", "alone", True, "query_rate" if greedy else None),
        ("success_with_help", "helped", greedy, "query_rate_with_help"),
    )
    results: dict[str, Tensor] = {}
    for number, (success, acting, likeliest, rate) in enumerate(passes if helped else passes[:2]):
        totals: dict[str, Tensor] = {}
        done = number * episodes
        for batch in chunks(agents, episodes, acting, "evaluation/", likeliest):
            parts = {
                "successes": batch.success.sum(1).double(),
                "fired": (batch.answered | batch.unanswered).sum((1, 2)).double(),
                "steps": batch.live.sum((1, 2)).double(),
                **step_sums(batch),
            }
            totals = {name: totals.get(name, torch.zeros(())) + value for name, value in parts.items()}
            done += batch.success.shape[1]
            progress(done)
        results[success] = totals["successes"] / episodes
        if rate is not None:
            results[rate] = totals["fired"] / totals["steps"]
        if rate == "query_rate":
            results.update({part: totals[part] / totals["steps"] for part in PARTS})
    columns = {name: values.tolist() for name, values in results.items()}
    runs = len(agents.streams.seeds)
    return [{"episodes": episodes, **{name: values[run] for name, values in columns.items()}} for run in range(runs)]
