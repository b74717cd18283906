"""Training a stack of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from apil.config import RunConfig
from apil.learning.build import build, configure_torch
from apil.learning.collect import collect
from apil.learning.metrics import Meter, Row
from apil.learning.update import Learner


class Trainer:
    """A stack of runs in training: collect by Alg 1, update, log. A run alone is a stack of one."""

    def __init__(self, configs: Sequence[RunConfig]) -> None:
        configure_torch()
        self.configs = tuple(configs)
        self.agents = build(configs)
        self.rows: list[list[Row]] = [[] for _ in configs]
        """The metrics of each run."""
        self._learner = Learner(self.agents, configs[0].learning_rate)
        self._meter = Meter(len(configs))

    def train(self, progress: Callable[[int], None] = lambda iterations: None) -> None:
        """Trains to the end; `progress` is told the iterations done, at every row."""
        first = self.configs[0]
        for iteration in range(first.iterations):
            episodes = collect(self.agents, iteration, first.batch)
            self._meter.add(episodes, self._learner.update(episodes, iteration))
            done = iteration + 1
            if done % first.log_every == 0 or done == first.iterations:
                for own, row in zip(self.rows, self._meter.rows(done), strict=True):
                    own.append(row)
                progress(done)
