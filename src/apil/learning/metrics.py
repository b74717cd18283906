"""Figures of a run while it trains: sums since the last row, and the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from apil.types import Episodes, Lessons, Uncertainty

PARTS = tuple(field.name for field in fields(Uncertainty))
"""The names of the five uncertainties."""

Row = dict[str, Any]
"""A row of metrics: plain numbers."""


def step_sums(episodes: Episodes) -> dict[str, Tensor]:
    """Sums over the live steps of each uncertainty, each [runs] float64."""
    parts = torch.stack([getattr(episodes.uncertainty, part) for part in PARTS])
    return dict(zip(PARTS, torch.where(episodes.live, parts, 0.0).double().sum((2, 3)), strict=True))


def switches(lessons: Lessons) -> Tensor:
    """[runs, episodes, T] bool: answered by another teacher than the answer before it in the episode."""
    # At each step the last answered step up to it, counted from 1; 0 before the first.
    steps = torch.arange(1, lessons.answered.shape[-1] + 1) * lessons.answered
    before = torch.nn.functional.pad(steps.cummax(-1).values[..., :-1], (1, 0))
    last = lessons.identity.gather(-1, (before - 1).clamp_min(0))
    return lessons.answered & (before > 0) & (last != lessons.identity)


def sums_fit(saved: Mapping[str, Tensor], iterations: int) -> bool:
    """Whether the state of a meter can be restored and is one of so many iterations since the last row."""
    own = {name.removeprefix("meter."): value for name, value in saved.items() if name.startswith("meter.")}
    sums = [f"sums.{name}" for name in ("asked", "steps", "successes", *PARTS)] if iterations else []
    if not {"answers", "unanswered", "counts", *sums} <= set(own):
        return False
    for name, value in own.items():
        shape = (2,) if name == "counts" else (1,)
        if value.dtype != torch.float64 or tuple(value.shape) != shape or not bool(value.isfinite().all()):
            return False
        if not name.startswith("logs.") and not 0 <= float(value.min()) <= float(value.max()) < 2**53:
            return False
    return float(own["counts"][0]) == iterations and (not sums or float(own["sums.steps"]) > 0)


class Meter:
    """Collects what happened since the last row. Rates average steps or episodes, never iterations."""

    def __init__(self, runs: int, costs: Tensor | None = None, switch: Tensor | None = None) -> None:
        """`costs` [runs, K] are those of an answer by each member; None if every answer costs 1. `switch` [runs] is
        the cost of another teacher than the one before in an episode; None if there is none."""
        self.answers = torch.zeros(runs, dtype=torch.float64)
        self.unanswered = torch.zeros(runs, dtype=torch.float64)
        self._costs, self._switch = costs, switch
        self.cost = torch.zeros(runs, dtype=torch.float64)
        self._sums: dict[str, Tensor] = {}
        self._logs: dict[str, Tensor] = {}
        self._iterations = self._episodes = 0

    def add(self, episodes: Episodes, logs: dict[str, Tensor]) -> None:
        """One iteration."""
        answered = episodes.answered.sum((1, 2)).double()
        self.answers += answered
        self.unanswered += episodes.unanswered.sum((1, 2))
        if self._costs is not None:
            of_step = self._costs.gather(1, episodes.identity.flatten(1)).view(episodes.identity.shape)
            self.cost += torch.where(episodes.answered, of_step, 0.0).sum((1, 2))
        if self._switch is not None:
            self.cost += self._switch * switches(episodes).sum((1, 2))
        sums = {
            "asked": answered,  # its name in checkpoints
            "steps": episodes.live.sum((1, 2)).double(),
            "successes": episodes.success.sum(1).double(),
            **step_sums(episodes),
        }
        for target, values in ((self._sums, sums), (self._logs, logs)):
            for name, value in values.items():
                target[name] = target[name] + value if name in target else value.double().clone()
        self._iterations += 1
        self._episodes = self._iterations * episodes.answered.shape[1]

    def restart(self) -> None:
        """Begins a new row."""
        self._sums, self._logs, self._iterations = {}, {}, 0

    def state(self, run: int) -> dict[str, Tensor]:
        """The sums of one run since the last row, for a checkpoint. Logs of other runs' query policies are left out, so
        that it does not depend on what else is in the stack."""
        named = {"meter.answers": self.answers, "meter.unanswered": self.unanswered}
        if self._priced(run):
            named["meter.cost"] = self.cost
        named |= {f"meter.sums.{name}": value for name, value in self._sums.items()}
        named |= {f"meter.logs.{name}": value for name, value in self._logs.items() if not value[run].isnan()}
        counts = torch.tensor([self._iterations, self._episodes], dtype=torch.float64)
        return {name: value[run : run + 1].clone() for name, value in named.items()} | {"meter.counts": counts}

    def restore(self, saved: Sequence[dict[str, Tensor]]) -> None:
        """Restores the states of all runs. A log that a run does not keep is NaN for it, as it is in training."""

        def stacked(name: str) -> Tensor:
            nothing = torch.full((1,), torch.nan, dtype=torch.float64)
            return torch.cat([own.get(name, nothing) for own in saved])

        self.answers, self.unanswered = stacked("meter.answers"), stacked("meter.unanswered")
        self.cost = stacked("meter.cost").nan_to_num(0.0)
        self._iterations, self._episodes = (int(value) for value in saved[0]["meter.counts"].tolist())
        for kind, target in (("sums", self._sums), ("logs", self._logs)):
            prefix = f"meter.{kind}."
            names = dict.fromkeys(name for own in saved for name in own if name.startswith(prefix))
            target.update({name.removeprefix(prefix): stacked(name) for name in names})

    def rows(self, iteration: int) -> list[Row]:
        """A row for each run of what was added since the last `restart`."""
        sums, steps = self._sums, self._sums["steps"]
        columns: dict[str, Tensor] = {
            "query_rate": sums["asked"] / steps,
            "success": sums["successes"] / self._episodes,
            **{part: sums[part] / steps for part in PARTS},
        }
        logs = {name: (self._logs[name] / self._iterations).tolist() for name in sorted(self._logs)}
        lists = {name: column.tolist() for name, column in columns.items()}
        counts = {
            "answers": self.answers.tolist(),
            "unanswered": self.unanswered.tolist(),
            "steps": steps.tolist(),
        }
        rows: list[Row] = [
            {
                "iteration": iteration,
                **{name: values[run] for name, values in lists.items()},
                # NaN marks the log of another run's query policy: this run has no such figure.
                **{name: values[run] for name, values in logs.items() if values[run] == values[run]},
                **{name: int(values[run]) for name, values in counts.items()},
                **self._paid(run),
                "episodes": self._episodes,
            }
            for run in range(len(self.answers))
        ]
        return rows

    def _paid(self, run: int) -> Row:
        """The cost of all answers so far, where it is not simply their number."""
        return {"cost": float(self.cost[run])} if self._priced(run) else {}

    def _priced(self, run: int) -> bool:
        dear = self._costs is not None and not bool((self._costs[run] == 1).all())
        return dear or (self._switch is not None and bool(self._switch[run]))
