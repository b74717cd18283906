"""Time of one decision (a `belief` call in one GRID state) as the teachers and the samples grow; prints one JSON line.

growth.py REPETITIONS
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import dataclass, field

import torch

from apil.learning.build import configure_torch
from apil.model.persona import PersonaModel
from apil.rng import Streams
from apil.settings import ModelSettings
from apil.tasks.grid import Grid

TEACHERS = (2, 10, 100, 1000, 10_000)
SAMPLES = (1, 5, 20, 50)
MODELS = (1, 10, 50)
CALLS = 20
"""Decisions in a row of one case, before the next case has its turn."""


@dataclass
class Case:
    """One point of a curve."""

    expectation: str
    teachers: int
    samples: int
    """N1, 0 for the exact expectation."""
    models: int
    """N2."""
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        grid = Grid()
        streams = Streams([0])
        model = PersonaModel(
            streams,
            state_size=grid.state_size,
            actions=grid.actions,
            teachers=self.teachers,
            samples=[self.samples],
            sizes=ModelSettings(models=self.models),
        )
        self._horizon = grid.horizon
        self._seen = grid.observe(grid.reset(streams.draws("task", 0), 1))
        self._model = model.begin(streams.draws("model", 0), streams.draws("identity", 0), 1, grid.horizon)

    def measure(self) -> None:
        """Times `CALLS` decisions."""
        for call in range(CALLS):
            t = call % self._horizon
            start = time.perf_counter()
            self._model.belief(self._seen, t, self._horizon)
            self.seconds.append(time.perf_counter() - start)

    def record(self) -> dict[str, object]:
        """Plain values; the median, since other jobs interrupt."""
        return {
            "expectation": self.expectation,
            "K": self.teachers,
            "N1": self.samples or None,
            "N2": self.models,
            "microseconds": statistics.median(self.seconds) * 1e6,
            "quartiles": [value * 1e6 for value in statistics.quantiles(self.seconds, n=4)],
        }


def main(repetitions: int) -> None:
    """All cases take turns, so that a busy moment of the machine falls on all."""
    configure_torch()
    curves = {
        "teachers": [Case("exact", k, 0, 10) for k in TEACHERS] + [Case("monte-carlo", k, 5, 10) for k in TEACHERS],
        "samples": [Case("monte-carlo", 2, n1, 10) for n1 in SAMPLES],
        "samples_of_1000_teachers": [Case("monte-carlo", 1000, n1, 10) for n1 in SAMPLES],
        "models": [Case("exact", 2, 0, n2) for n2 in MODELS] + [Case("monte-carlo", 2, 5, n2) for n2 in MODELS],
    }
    cases = [case for curve in curves.values() for case in curve]
    with torch.inference_mode():
        for repetition in range(-1, max(1, repetitions // CALLS)):
            for case in cases:
                case.measure()
                if repetition < 0:
                    case.seconds.clear()
    print(json.dumps({name: [case.record() for case in curve] for name, curve in curves.items()}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
