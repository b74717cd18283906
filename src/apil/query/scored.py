"""A query policy in three pieces: a score, a gate, and the moment when the teacher hands control back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.nn import Parameters
from apil.query.gates import Gate, OpenGate, gate_of
from apil.query.protocol import QueryLoss, QuerySetup, notes_down
from apil.types import Answer, Belief, Episodes

ScoreStep = Callable[[Belief], Tensor]
"""The beliefs of one step -> [runs, episodes] float, higher where it is better to ask. Called once a step, in order.
One that is also `Noting` adds its notes behind the score."""


class Score(Protocol):
    """How much there is to gain by asking."""

    parameters: Parameters
    """What it learns; empty for a formula."""
    memory: Parameters
    """What it keeps beside that."""

    def begin(self, episodes: int) -> ScoreStep:
        """Opens a batch of `episodes` episodes of every run."""

    def observe(self, episodes: Episodes) -> None:
        """Processes a batch of training episodes, as `QueryPolicy.observe`; nothing without memory."""
        return

    def loss(self, episodes: Episodes) -> QueryLoss | None:
        """Its own loss; None for a formula. Has no side effects."""


class Formula(Score):
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
"""Belief, notes [runs, episodes, N] (the score first) and answer of a step -> [runs, episodes] bool: true where a
teacher who was asked gives control back after it. Read only where it has control and answered. Without one it is at
once: each question is one step."""


class ScoredPolicy:
    """Asks where the gate accepts the score, where a teacher still has control, and in the first batches."""

    executes_answer = True

    def __init__(
        self, score: Score, gate: Gate, hand_back: HandBack | None = None, *, warm: int = 0, runs: int = 1
    ) -> None:
        """`warm` batches of training begin with asking at every step, for scores that are useless before there are
        answers."""
        self.parameters = score.parameters
        self.score, self.gate, self.hand_back = score, gate, hand_back
        self._warm = warm
        self._batches = torch.zeros(runs, dtype=torch.float64)
        self.memory: Parameters = {**score.memory, **{f"gate.{name}": value for name, value in gate.memory.items()}}
        if warm:
            self.memory["batches"] = self._batches

    def begin(self, episodes: int, training: bool = True) -> ScoredSession | HoldingSession:
        """The session of a policy that hands back at once listens to no answers. Warm batches are of training alone."""
        warm = (self._batches < self._warm).unsqueeze(-1) if self._warm and training else None
        step, gate = self.score.begin(episodes), self.gate.begin(training)
        noting = training and (bool(self.gate.memory) or notes_down(step))
        session = ScoredSession(step, gate, warm, noting=noting)
        return session if self.hand_back is None else HoldingSession(session, self.hand_back)

    def observe(self, episodes: Episodes) -> None:
        """The gate learns from the noted scores and ignores episodes without notes."""
        if self.gate.memory and episodes.notes.shape[-1]:
            self.gate.learn(episodes.notes[..., 0], episodes)
        self._batches += 1
        self.score.observe(episodes)

    def loss(self, episodes: Episodes) -> QueryLoss | None:
        return self.score.loss(episodes)

    def review(self, episodes: Episodes, luck: Tensor) -> Tensor:
        """As the gate chooses; in warm batches every live step."""
        scores = episodes.notes[..., 0] if episodes.notes.shape[-1] else torch.zeros_like(luck)
        chosen = self.gate.review(scores, episodes, luck)
        return torch.where((self._batches < self._warm)[:, None, None], episodes.live, chosen) if self._warm else chosen


class ScoredSession:
    """A scored policy during one batch of episodes."""

    def __init__(self, step: ScoreStep, gate: OpenGate, warm: Tensor | None, *, noting: bool) -> None:
        """`noting`: there is someone to read the notes."""
        self._step, self._gate, self._warm, self._noting = step, gate, warm, noting
        self._more = step if notes_down(step) else None
        self.seen = torch.empty(0)
        """[runs, episodes, N]: the score of the last step, and the notes of `step` behind it."""

    def ask(self, belief: Belief, luck: Tensor, held: Tensor | None = None) -> Tensor:
        """`held` [runs, episodes] bool: a teacher has control, so that it is asked whatever the score."""
        score = self._step(belief)
        if score.shape != luck.shape:
            raise ApilError(
                f"its score is a tensor {list(score.shape)}, expected {list(luck.shape)}: a number for each episode"
            )
        own = score.unsqueeze(-1)
        self.seen = own if self._more is None else torch.cat([own, self._more.notes], -1)
        fired = self._gate(score, luck, belief.live, held)
        for also in (self._warm, held):
            fired = fired if also is None else fired | also
        return fired

    @property
    def notes(self) -> Tensor:
        return self.seen if self._noting else self.seen[..., :0]


class HoldingSession:
    """A scored session in which a teacher keeps control until it hands back."""

    def __init__(self, session: ScoredSession, hand_back: HandBack) -> None:
        self._session, self._hand_back = session, hand_back
        self._held: Tensor | None = None

    def ask(self, belief: Belief, luck: Tensor) -> Tensor:
        """Also where a teacher has control from the step before."""
        return self._session.ask(belief, luck, self._held)

    def hear(self, belief: Belief, answer: Answer, answered: Tensor) -> None:
        """A teacher that answered keeps control unless it hands back."""
        self._held = answered & ~self._hand_back(belief, self._session.seen, answer)

    @property
    def notes(self) -> Tensor:
        return self._session.notes


def scored(formula: ScoreStep) -> Callable[[QuerySetup], ScoredPolicy]:
    """Makes a factory of query policies from a function of the belief. The gate is the threshold or budget of the run.

    For example `apil.register_query_policy("shy", scored(lambda belief: 1 - belief.mean.amax(-1)), "asks when shy")`.
    """

    def factory(setup: QuerySetup) -> ScoredPolicy:
        return ScoredPolicy(Formula(formula), gate_of(setup))

    factory.__doc__ = formula.__doc__
    factory.needs_threshold = factory.takes_budget = True  # type: ignore[attr-defined]
    return factory
