"""`check_query_policy` passes what ships and says in words what is wrong with the rest."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import apil
from apil.errors import ApilError
from apil.nn import Parameters
from apil.query import QUERY_POLICIES, takes_budget
from apil.query.protocol import QueryLoss, QuerySetup
from apil.query.scored import scored
from apil.types import Belief, Episodes


@pytest.mark.parametrize("name", QUERY_POLICIES.names())
def test_every_policy_that_ships_passes(name: str) -> None:
    apil.check_query_policy(name)
    if takes_budget(name):
        apil.check_query_policy(name, threshold=0.1, budget=0.3)


class Mine:
    """A sound rule to spoil."""

    executes_answer: Any = True

    def __init__(self, setup: QuerySetup) -> None:
        self.parameters: Parameters = {}
        self.memory: Parameters = {}
        self.calls = 0

    def begin(self, episodes: int, training: bool = True) -> Any:
        return self

    def ask(self, belief: Belief, luck: Tensor) -> Any:
        return belief.mean.amax(-1) < 0.5

    def observe(self, episodes: Episodes) -> None:
        return

    def loss(self, episodes: Episodes) -> Any:
        return None

    def review(self, episodes: Episodes, luck: Tensor) -> Any:
        return episodes.unanswered


class Probabilities(Mine):
    def ask(self, belief: Belief, luck: Tensor) -> Any:
        return belief.mean.amax(-1)


class Numbers(Mine):
    def ask(self, belief: Belief, luck: Tensor) -> Any:
        return (belief.mean.amax(-1) < 0.5).long()


class OneDecision(Mine):
    def ask(self, belief: Belief, luck: Tensor) -> Any:
        return belief.mean.amax((-1, -2)) < 0.5


class PlainTruth(Mine):
    def ask(self, belief: Belief, luck: Tensor) -> Any:
        return True


class OwnLuck(Mine):
    def ask(self, belief: Belief, luck: Tensor) -> Any:
        return torch.rand(luck.shape) < 0.5


class NumpyLuck(Mine):
    def ask(self, belief: Belief, luck: Tensor) -> Any:
        return luck < np.random.rand() * 0 + 0.5  # noqa: NPY002


class PythonLuck(Mine):
    def ask(self, belief: Belief, luck: Tensor) -> Any:
        return luck < random.random()


class Counting(Mine):
    def ask(self, belief: Belief, luck: Tensor) -> Any:
        self.calls += 1
        return torch.full(luck.shape, self.calls % 3 == 0)


class SharedSession(Mine):
    """Keeps what belongs to a session."""

    def begin(self, episodes: int, training: bool = True) -> Any:
        self.calls = 0
        return self

    def ask(self, belief: Belief, luck: Tensor) -> Any:
        self.calls += 1
        return torch.full(luck.shape, self.calls % 2 == 0)


class LearnsInLoss(Mine):
    def __init__(self, setup: QuerySetup) -> None:
        super().__init__(setup)
        self.parameters = {"weight": torch.ones(len(setup.thresholds))}
        self.memory = {"batches": torch.zeros(len(setup.thresholds))}

    def loss(self, episodes: Episodes) -> Any:
        self.memory["batches"] += 1
        return QueryLoss(self.parameters["weight"].square(), torch.ones(3, dtype=torch.bool))


class LearnsWhileAsking(LearnsInLoss):
    def ask(self, belief: Belief, luck: Tensor) -> Any:
        self.memory["batches"] += 1
        return luck < 0.5


class AfterTheEnd(Mine):
    def review(self, episodes: Episodes, luck: Tensor) -> Any:
        return torch.ones_like(episodes.live)


class ReviewsWithScores(Mine):
    def review(self, episodes: Episodes, luck: Tensor) -> Any:
        return luck


class FlatNotes(Mine):
    @property
    def notes(self) -> Tensor:
        return torch.zeros(16)


class Crowd(Mine):
    def ask(self, belief: Belief, luck: Tensor) -> Any:
        return luck < luck.mean()


class Broken(Mine):
    def ask(self, belief: Belief, luck: Tensor) -> Any:
        raise KeyError("threshold")


class NoLoss(Mine):
    def __init__(self, setup: QuerySetup) -> None:
        super().__init__(setup)
        self.parameters = {"w": torch.zeros(len(setup.thresholds), 2)}


class NaNLoss(NoLoss):
    def loss(self, episodes: Episodes) -> Any:
        return QueryLoss(self.parameters["w"].sum(1) * torch.nan, torch.ones(3, dtype=torch.bool))


class Detached(NoLoss):
    def loss(self, episodes: Episodes) -> Any:
        return QueryLoss(self.parameters["w"].detach().sum(1), torch.ones(3, dtype=torch.bool))


class Unused(NoLoss):
    def __init__(self, setup: QuerySetup) -> None:
        super().__init__(setup)
        self.parameters["spare"] = torch.zeros(len(setup.thresholds))

    def loss(self, episodes: Episodes) -> Any:
        return QueryLoss(self.parameters["w"].sum(1), torch.ones(3, dtype=torch.bool))


class Flat(NoLoss):
    def loss(self, episodes: Episodes) -> Any:
        return self.parameters["w"].sum()


class Shapeless(Mine):
    def __init__(self, setup: QuerySetup) -> None:
        super().__init__(setup)
        self.memory = {"seen": torch.zeros(7)}


class NaNMemory(Mine):
    def __init__(self, setup: QuerySetup) -> None:
        super().__init__(setup)
        self.memory = {"seen": torch.full((len(setup.thresholds),), torch.nan)}


class Unsure(Mine):
    executes_answer = "yes"


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (
            Probabilities,
            r"'Probabilities': ask returned probabilities or scores \(a tensor \[3, 16\] of type torch.float32",
        ),
        (Numbers, r"of type torch.int64 .*expected decisions \[3, 16\] \(runs, episodes\) of type torch.bool"),
        (OneDecision, r"ask returned a tensor \[3\] of type torch.bool .* at step 0; expected decisions \[3, 16\]"),
        (PlainTruth, "ask returned bool True at step 0"),
        (OwnLuck, "draws from global random state"),
        (NumpyLuck, "draws from global random state"),
        (PythonLuck, "draws from global random state"),
        (Counting, "decides otherwise when asked again"),
        (SharedSession, "decides otherwise while another session is open"),
        (LearnsInLoss, "`loss` changes its memory: only `observe` may"),
        (LearnsWhileAsking, "a session changes the memory of its policy"),
        (AfterTheEnd, "review chose steps after the end of an episode"),
        (ReviewsWithScores, r"review returned a tensor .*; expected decisions \[3, 16, 4\]"),
        (FlatNotes, r"its notes are a tensor \[16\] .* at step 0; expected floats \[3, 16, N\]"),
        (Crowd, "decides otherwise alone than in a stack"),
        (Broken, "raised KeyError when asked: 'threshold'"),
        (NoLoss, "it has parameters, but loss returned None"),
        (NaNLoss, r"its loss is a tensor \[3\] .* expected one finite number for each run"),
        (Detached, "its loss has no gradient"),
        (Unused, r"parameters\['spare'\] has no part in the loss"),
        (Flat, r"loss returned a tensor \[\] .*; expected a QueryLoss"),
        (Shapeless, r"memory\['seen'\] is a tensor \[7\] .*; expected a tensor that leads with the 3 runs"),
        (NaNMemory, r"memory\['seen'\] has NaN or infinite entries"),
        (Unsure, "executes_answer is 'yes'; expected True or False"),
        (dict, "its factory raised TypeError"),
        (lambda setup: None, "its factory returned NoneType, which has no 'executes_answer'"),
        (scored(lambda belief: belief.mean), r"its score is a tensor \[3, 16, 3\], expected \[3, 16\]"),
        (scored(lambda belief: belief.mean.amax(-1) * float("nan")), "its score is NaN at step 0"),
    ],
    ids=lambda value: getattr(value, "__name__", "") if callable(value) else None,
)
def test_what_is_wrong_is_said(factory: Any, message: str) -> None:
    with pytest.raises(ApilError, match=message) as caught:
        apil.check_query_policy(factory)
    assert "\n" not in str(caught.value)


def test_a_single_draw_from_numpy_is_seen_wherever_its_generator_stands() -> None:
    """NumPy makes 624 numbers at once: after the first of them a draw only moves a count."""
    for used in (0, 1, 300):
        np.random.seed(0)  # noqa: NPY002
        np.random.rand(used)  # noqa: NPY002
        with pytest.raises(ApilError, match="draws from global random state"):
            apil.check_query_policy(NumpyLuck)


def test_a_sound_rule_passes() -> None:
    apil.check_query_policy(Mine)
    apil.check_query_policy(scored(lambda belief: 1 - belief.mean.amax(-1)), budget=0.2)
