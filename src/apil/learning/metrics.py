"""Figures of a run while it trains: sums since the last row, and the rows."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from apil.types import Episodes, Uncertainty

PARTS = tuple(field.name for field in fields(Uncertainty))
"""The names of the five uncertainties."""

Row = dict[str, Any]
"""A row of metrics: plain numbers, None where a figure is undefined."""


def step_means(episodes: Episodes) -> dict[str, Tensor]:
    """Sums over the live steps of each uncertainty, each [runs] float64."""
    return {
        part: torch.where(episodes.live, getattr(episodes.uncertainty, part), 0.0).double().sum((1, 2))
        for part in PARTS
    }


class Meter:
    """Collects what happened since the last row. Rates average steps or episodes, never iterations."""

    def __init__(self, runs: int) -> None:
        self.answers = torch.zeros(runs, dtype=torch.float64)
        self._sums: dict[str, Tensor] = {}
        self._logs: dict[str, Tensor] = {}
        self._iterations = 0

    def add(self, episodes: Episodes, logs: dict[str, Tensor]) -> None:
        """One iteration."""
        asked = episodes.asked.sum((1, 2)).double()
        self.answers += asked
        sums = {
            "asked": asked,
            "steps": episodes.live.sum((1, 2)).double(),
            "successes": episodes.success.sum(1).double(),
            **step_means(episodes),
        }
        for target, values in ((self._sums, sums), (self._logs, logs)):
            for name, value in values.items():
                target[name] = target[name] + value if name in target else value.double()
        self._iterations += 1
        self._episodes = self._iterations * episodes.asked.shape[1]

    def rows(self, iteration: int) -> list[Row]:
        """A row for each run, and a new start."""
        sums, steps = self._sums, self._sums["steps"]
        columns: dict[str, Tensor] = {
            "query_rate": sums["asked"] / steps,
            "success": sums["successes"] / self._episodes,
            **{part: sums[part] / steps for part in PARTS},
            **{name: value / self._iterations for name, value in self._logs.items()},
        }
        lists = {name: column.tolist() for name, column in columns.items()}
        counts = {"answers": self.answers.tolist(), "steps": steps.tolist()}
        rows: list[Row] = [
            {
                "iteration": iteration,
                **{name: _number(values[run]) for name, values in lists.items()},
                **{name: int(values[run]) for name, values in counts.items()},
                "episodes": self._episodes,
            }
            for run in range(len(self.answers))
        ]
        self._sums, self._logs, self._iterations = {}, {}, 0
        return rows


def _number(value: float) -> float | None:
    return None if value != value else value
