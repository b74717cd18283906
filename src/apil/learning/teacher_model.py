"""Is the teacher model right? Are my two teachers the same teacher, and does the agent know them?"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from apil.learning.collect import Agents
from apil.learning.evaluate import chunks
from apil.learning.group import Group
from apil.query.rules import Coin
from apil.rng import Draws, Streams, race
from apil.tasks.protocol import Task
from apil.teachers.committee import Committee
from apil.teachers.protocol import Session
from apil.types import Answer, Observation, Reference
from apil.uncertainty import split_entropy

_BINS = 10


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence of the last axis, in bits, from 0 to 1."""
    pair = torch.stack([p, q]).unsqueeze(0)
    return split_entropy(pair, pair.new_full(pair.shape[:-1], 0.5), models=0, samples=1)[1].extrinsic


def expected_uncertainty(task: Task[Any], committee: Committee, episodes: int = 20_000) -> dict[str, float]:
    """Intrinsic and extrinsic uncertainty (bits) of an agent that has learned the committee perfectly.

    Such an agent knows each member's policy and weight, and acts by their mixture. The average is over the steps of
    `episodes` simulated episodes with a seed of their own.
    """
    streams = Streams([0])
    state = task.reset(streams.draws("expectation/task", 0), episodes)
    arrival = streams.draws("expectation/action", 0).exponential(task.horizon, episodes, task.actions)
    intrinsic = extrinsic = steps = 0.0
    for t in range(task.horizon):
        live = ~task.done(state)
        mean, parts = _mixture(committee, task.reference(state))
        intrinsic += float(parts.intrinsic[live].double().sum())
        extrinsic += float(parts.extrinsic[live].double().sum())
        steps += float(live.sum())
        state = task.step(state, race(mean, arrival[:, t]))
    return {"intrinsic": intrinsic / steps, "extrinsic": extrinsic / steps}


def _mixture(committee: Committee, reference: Reference) -> Any:
    """The committee's true mean policy and its decomposition, as of one model that is right."""
    policies = committee.distribution(reference).unsqueeze(2)
    weights = torch.tensor(committee.weights).expand(policies.shape[:-1])
    return split_entropy(policies, weights, models=2, samples=3)


@torch.no_grad()
def teacher_models(agents: Agents, episodes: int) -> list[dict[str, Any]]:
    """For each run, what it believes of its teachers beside what they are.

    - `personas`: the persona vectors, one a member.
    - `persona_js`: mean Jensen-Shannon divergence in bits between members' learned policies over the contested
      states, all pairs; near 0 the agent takes its teachers for the same one. None for a single teacher.
    - `mixture_js`: the same between the learned mean policy and the committee's true mixture, on the states the agent
      visits alone.
    - `identity_calibration_error`: mean gap between the believed and the actual frequency of each identity, over ten
      bins of belief, on the same states. None for a single teacher.
    - `identity_mean`, `identity_true`: mean belief and the committee's weights.
    """
    committees = _committees(agents)
    contested = agents.task.contested()
    runs = len(agents.streams.seeds)
    valid = contested.valid.expand(runs, -1, -1)
    policies = agents.model.policies(contested.features.expand(runs, -1, -1), valid)
    pairs = list(itertools.combinations(range(agents.model.teachers), 2))
    divergence = [jensen_shannon(policies[:, :, i], policies[:, :, j]).mean(1) for i, j in pairs]
    watched = _watch(agents, episodes)
    return [
        {
            "members": list(committees[run].members),
            "personas": agents.model.policy["persona"][run].tolist(),
            "persona_js": float(torch.stack(divergence).mean(0)[run]) if pairs else None,
            "mixture_js": float(watched.mixture_js[run]),
            "identity_calibration_error": float(watched.calibration_error[run]) if pairs else None,
            "identity_mean": watched.belief[run].tolist(),
            "identity_true": list(committees[run].weights),
        }
        for run in range(runs)
    ]


def _committees(agents: Agents) -> list[Committee]:
    """The committee of each run."""
    places = torch.arange(len(agents.streams.seeds))
    of_run: dict[int, Committee] = {}
    for group in agents.teachers:
        assert isinstance(group.part, Committee)
        of_run.update(dict.fromkeys(places[group.runs].tolist(), group.part))
    return [of_run[run] for run in range(len(places))]


@dataclass(frozen=True)
class _Watched:
    mixture_js: Tensor
    calibration_error: Tensor
    belief: Tensor


class _Witness:
    """A committee that also notes its true mixture in each state it is shown."""

    def __init__(self, committee: Committee) -> None:
        self.members = committee.members
        self.mixtures: list[Tensor] = []
        self._committee = committee

    def begin(self, draws: Draws, episodes: int, horizon: int) -> Session:
        """The committee's own session, with this witness in between."""
        self.mixtures.clear()
        self._session = self._committee.begin(draws, episodes, horizon)
        return self

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        """The committee's own answer."""
        self.mixtures.append(_mixture(self._committee, reference)[0])
        return self._session.answer(observation, reference, asked, t)


def _watch(agents: Agents, episodes: int) -> _Watched:
    """Lets the agents act alone, asks at every step, and compares belief with truth."""
    runs = len(agents.streams.seeds)
    witnesses = [Group(g.runs, g.streams, _Witness(g.part), g.name) for g in agents.teachers]  # type: ignore[arg-type]
    always = Group(slice(0, runs), agents.streams, Coin(torch.ones(runs)), "always")
    watched = replace(agents, teachers=witnesses, queries=[always])
    teachers = agents.model.teachers
    divergence, steps = torch.zeros(runs, dtype=torch.float64), torch.zeros(runs, dtype=torch.float64)
    believed, actual, count = (torch.zeros(runs, _BINS, dtype=torch.float64) for _ in range(3))
    total_belief = torch.zeros(runs, teachers, dtype=torch.float64)
    for batch in chunks(watched, episodes, "alone", "evaluation/"):
        truth = torch.empty_like(batch.mean)
        for witness in witnesses:
            truth[witness.runs] = torch.stack(witness.part.mixtures, dim=2)
        js = torch.where(batch.live, jensen_shannon(batch.mean, truth), 0.0)
        divergence += js.double().sum((1, 2))
        steps += batch.live.sum((1, 2))
        belief = (batch.identity_belief.double() * batch.live.unsqueeze(-1)).flatten(1, 2)
        total_belief += belief.sum(1)
        answered = torch.nn.functional.one_hot(batch.identity, teachers).double() * batch.live.unsqueeze(-1)
        bins = (belief * _BINS).long().clamp_max(_BINS - 1).flatten(1)
        weight = batch.live.unsqueeze(-1).expand_as(answered).double().flatten(1)
        believed.scatter_add_(1, bins, belief.flatten(1))
        actual.scatter_add_(1, bins, answered.flatten(1))
        count.scatter_add_(1, bins, weight)
    error = (believed - actual).abs().sum(1) / count.sum(1)
    return _Watched(divergence / steps, error, total_belief / steps.unsqueeze(1))
