"""A query policy in three pieces: a score, a gate, and the moment when the teacher hands control back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.nn import Parameters
from apil.query.gates import Gate, OpenGate, gate_of
from apil.query.protocol import QueryLoss, QuerySetup
from apil.types import Answer, Belief, Episodes

ScoreStep = Callable[[Belief], Tensor]
"""The beliefs of one step -> [runs, episodes] float, higher where it is better to ask. Called once a step, in order."""


class Score(Protocol):
    """How much there is to gain by asking."""

    parameters: Parameters
    """What it learns; empty for a formula."""
    memory: Parameters
    """What it keeps beside that."""

    def begin(self, episodes: int) -> ScoreStep:
        """Opens a batch of `episodes` episodes of every run."""

    def loss(self, episodes: Episodes) -> QueryLoss | None:
        """Its own loss; None for a formula."""


class Formula:
    """A score that learns nothing: a function of the belief alone."""

    def __init__(self, formula: ScoreStep) -> None:
        self.parameters: Parameters = {}
        self.memory: Parameters = {}
        self._formula = formula

    def begin(self, episodes: int) -> ScoreStep:
        return self._formula

    def loss(self, episodes: Episodes) -> QueryLoss | None:
        return None


HandBack = Callable[[Belief, Tensor, Answer], Tensor]
"""Belief, score and answer of a step -> [runs, episodes] bool: true where a teacher who was asked gives control back
after it. Read only where it has control and answered. Without one it is at once: each question is one step."""


class ScoredPolicy:
    """Asks where the gate says so of the score, where a teacher still has control, and in the first batches."""

    executes_answer = True

    def __init__(
        self, score: Score, gate: Gate, hand_back: HandBack | None = None, *, warm: int = 0, runs: int = 1
    ) -> None:
        """`warm` batches of training begin with asking at every step, for scores that need answers to be any good."""
        self.parameters = score.parameters
        self.score, self.gate, self.hand_back = score, gate, hand_back
        self._warm = warm
        self._batches = torch.zeros(runs, dtype=torch.float64)
        self.memory: Parameters = {**score.memory, **{f"gate.{name}": value for name, value in gate.memory.items()}}
        if warm:
            self.memory["batches"] = self._batches
        self._last: ScoredSession | None = None

    def begin(self, episodes: int) -> ScoredSession | HoldingSession:
        """The session of a policy that hands back at once listens to no answers."""
        warm = (self._batches < self._warm).unsqueeze(-1) if self._warm else None
        step, gate = self.score.begin(episodes), self.gate.begin()
        self._last = ScoredSession(step, gate, warm, keep=bool(self.gate.memory))
        return self._last if self.hand_back is None else HoldingSession(self._last, self.hand_back)

    def loss(self, episodes: Episodes) -> QueryLoss | None:
        """The loss of the score; the gate learns from the scores of the session that was opened last."""
        if self.gate.memory and self._last is not None:
            self.gate.learn(torch.stack(self._last.scores, -1), episodes)
        self._batches += 1
        return self.score.loss(episodes)


class ScoredSession:
    """A scored policy during one batch of episodes."""

    def __init__(self, step: ScoreStep, gate: OpenGate, warm: Tensor | None, *, keep: bool) -> None:
        """`keep` all scores, for a gate that remembers; else the last one alone."""
        self._step, self._gate, self._warm, self._keep = step, gate, warm, keep
        self.scores: list[Tensor] = []
        """Each [runs, episodes]."""

    def ask(self, belief: Belief, luck: Tensor) -> Tensor:
        score = self._step(belief)
        if score.shape != luck.shape:
            raise ApilError(
                f"its score is a tensor {list(score.shape)}, expected {list(luck.shape)}: a number for each episode"
            )
        self.scores = [*self.scores, score] if self._keep else [score]
        fired = self._gate(score, luck)
        return fired if self._warm is None else fired | self._warm


class HoldingSession:
    """A scored session in which a teacher keeps control until it hands back."""

    def __init__(self, session: ScoredSession, hand_back: HandBack) -> None:
        self._session, self._hand_back = session, hand_back
        self._held: Tensor | None = None

    def ask(self, belief: Belief, luck: Tensor) -> Tensor:
        """Also where a teacher has control from the step before."""
        fired = self._session.ask(belief, luck)
        return fired if self._held is None else fired | self._held

    def hear(self, belief: Belief, answer: Answer, answered: Tensor) -> None:
        """A teacher that answered keeps control unless it hands back."""
        self._held = answered & ~self._hand_back(belief, self._session.scores[-1], answer)


def scored(formula: ScoreStep) -> Callable[[QuerySetup], ScoredPolicy]:
    """A factory of query policies from a formula of the belief; a threshold or a budget is the gate, as a run is set.

    For example `apil.register_query_policy("shy", scored(lambda belief: 1 - belief.mean.amax(-1)), "asks when shy")`.
    """

    def factory(setup: QuerySetup) -> ScoredPolicy:
        return ScoredPolicy(Formula(formula), gate_of(setup))

    factory.__doc__ = formula.__doc__
    factory.needs_threshold = factory.takes_budget = True  # type: ignore[attr-defined]
    return factory
