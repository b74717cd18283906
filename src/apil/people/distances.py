"""Distances from words: how a run hears that the goal is closer, as far as before, farther, or reached."""

from __future__ import annotations

import math

FACTORS = {"closer": 0.5, "same": 1.0, "farther": 2.0, "done": 0.0}
"""An episode begins as far from the goal as it has steps. A word multiplies the distance of the last question of the
episode; it never grows beyond twice the first. Halving is what APIL calls progress with its default sigma of 2."""


class Said:
    """The distances of episodes, as they were given in words."""

    def __init__(self, horizon: int) -> None:
        self._horizon = float(horizon)
        self._steps: dict[tuple[int, int], dict[int, float]] = {}

    def at(self, iteration: int, episode: int, step: int, word: str | None) -> float:
        """The distance at a step, from the word that was said there; that of the last question if none was."""
        steps = self._steps.setdefault((iteration, episode), {})
        before = max((earlier for earlier in steps if earlier < step), default=None)
        last = self._horizon if before is None else steps[before]
        steps[step] = min(last * FACTORS.get(word or "same", 1.0), 2 * self._horizon)
        return steps[step]

    def last(self, iteration: int, episode: int) -> float:
        """The distance at the last question of an episode; forgets the episode."""
        steps = self._steps.pop((iteration, episode), {})
        return steps[max(steps)] if steps else math.nan
