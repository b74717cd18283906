"""Training a stack of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from apil.learning.ask import AnswerLog
from apil.learning.average import Average
from apil.learning.build import NAMED, Parts, build, configure_torch
from apil.learning.collect import Agents, collect
from apil.learning.metrics import Meter, Row
from apil.learning.state import weights
from apil.learning.update import Learner
from apil.settings import RunSettings
from apil.teachers.protocol import costs_of


class Trainer:
    """A stack of runs in training: collect by Alg 1, update, log. A run alone is a stack of one."""

    def __init__(
        self,
        configs: Sequence[RunSettings],
        log: AnswerLog | None = None,
        parts: Parts = NAMED,
        agents: Agents | None = None,
    ) -> None:
        """`agents` are those of `configs` and `parts`, if they are built already."""
        configure_torch()
        self.configs = tuple(configs)
        self.agents = build(configs, parts) if agents is None else agents
        self.iteration = 0
        """Iterations done."""
        self.rows: list[list[Row]] = [[] for _ in configs]
        """The metrics of each run."""
        self._log = log
        learner = configs[0].learner
        self._learner = Learner(self.agents, parts.optimizer_of(configs[0]), learner.clip)
        self._meter = Meter(len(configs), _costs(self.agents))
        self._average = Average(self.agents, learner.average) if learner.average else None

    def step(self) -> list[Row] | None:
        """One iteration; a row of metrics for each run where one is due.

        The last iteration always has a row. If that comes before its time it is a look at a row not yet complete:
        training on to more iterations gives the rows that it would have given without the stop.
        """
        first = self.configs[0]
        episodes = collect(self.agents, self.iteration, first.learner.batch, log=self._log)
        self._meter.add(episodes, self._learner.update(episodes, self.iteration))
        self.iteration += 1
        if self._average is not None:
            self._average.add(self.iteration)
        complete = self.iteration % first.log_every == 0
        if not complete and self.iteration != first.iterations:
            return None
        rows = self._meter.rows(self.iteration)
        for own, row in zip(self.rows, rows, strict=True):
            own.append(row)
        if complete:
            self._meter.restart()
        return rows

    def train(self, progress: Callable[[int], None] = lambda iterations: None) -> None:
        """Trains to the end; `progress` is told the iterations done, at every row."""
        while self.iteration < self.configs[0].iterations:
            if self.step() is not None:
                progress(self.iteration)

    def trained_agents(self) -> Agents:
        """The agents as they are evaluated, with averaged weights if the config asks for them; ends the training."""
        if self._average is not None:
            self._average.apply()
        return self.agents

    @contextmanager
    def averaged(self) -> Iterator[Agents]:
        """The agents with averaged weights for a look at them in the middle of training, which it does not change."""
        if self._average is not None:
            self._average.swap()
        try:
            yield self.agents
        finally:
            if self._average is not None:
                self._average.swap()

    def answers(self, run: int) -> int:
        """Answers that a run has had so far."""
        return int(self._meter.answers[run])

    def state(self, run: int) -> dict[str, Tensor]:
        """Everything that changes in training, of one run. Randomness has no state; tasks start anew each iteration."""
        return {n: v.detach().clone() for n, v in self._views(run).items()} | self._meter.state(run)

    def _views(self, run: int) -> dict[str, Tensor]:
        averages = {} if self._average is None else self._average.of_run(run)
        return weights(self.agents, run) | averages | self._learner.state(run)

    def restore(self, iteration: int, saved: Sequence[dict[str, Tensor]]) -> None:
        """Goes back to the states of all runs, saved after `iteration` iterations."""
        with torch.no_grad():
            for run, own in enumerate(saved):
                for name, view in self._views(run).items():
                    view.copy_(own[name])
        self._meter.restore(saved)
        self.iteration = iteration


def _costs(agents: Agents) -> Tensor | None:
    """[runs, K]: what an answer of each member costs; None if every answer costs 1."""
    costs = torch.ones(len(agents.streams.seeds), agents.model.teachers, dtype=torch.float64)
    for group in agents.teachers:
        costs[group.runs] = torch.tensor(costs_of(group.part), dtype=torch.float64)
    return None if bool((costs == 1).all()) else costs
