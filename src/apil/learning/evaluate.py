"""What a trained agent can do, alone and with help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from apil.learning.collect import Acting, Agents, collect
from apil.learning.metrics import PARTS, step_sums
from apil.types import Episodes

CHUNK = 50
"""Episodes that an evaluation runs at once; twice as many no longer fit the cache for a stack of 50 runs."""


def chunks(agents: Agents, episodes: int, acting: Acting, prefix: str) -> Iterator[Episodes]:
    """Batches of at most `CHUNK` episodes, `episodes` in all."""
    for place in range(0, episodes, CHUNK):
        yield collect(agents, place // CHUNK, min(CHUNK, episodes - place), acting, prefix)


def evaluate(
    agents: Agents, episodes: int, progress: Callable[[int], None] = lambda episodes: None
) -> list[dict[str, Any]]:
    """For each run: success alone, with help (the teacher's action is executed wherever the query policy fires), the
    share of steps at which it fires in both, and the five uncertainties of the rollout alone.

    Actions are sampled from the mean policy, as in training. `progress` is told the episodes done, of twice `episodes`.
    """
    done = 0
    results: dict[str, Tensor] = {}
    for acting, success, rate in (
        ("alone", "success_alone", "query_rate"),
        ("helped", "success_with_help", "query_rate_with_help"),
    ):
        totals: dict[str, Tensor] = {}
        for batch in chunks(agents, episodes, acting, "evaluation/"):  # type: ignore[arg-type]
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
        results[rate] = totals["fired"] / totals["steps"]
        if acting == "alone":
            results.update({part: totals[part] / totals["steps"] for part in PARTS})
    columns = {name: values.tolist() for name, values in results.items()}
    runs = len(agents.streams.seeds)
    return [{"episodes": episodes, **{name: values[run] for name, values in columns.items()}} for run in range(runs)]
