"""Is the teacher model right? Are my two teachers the same teacher, and does the agent know them?"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from apil.errors import ApilError
from apil.learning.collect import Agents, Step, collect
from apil.learning.evaluate import CHUNK
from apil.learning.group import take
from apil.rng import Streams, race
from apil.tasks.protocol import Task
from apil.teachers.committee import Committee
from apil.teachers.protocol import Teacher
from apil.teachers.wrappers import committee_behind
from apil.types import Observation, Reference
from apil.uncertainty import split_entropy

_BINS = 10


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence of the last axis, in bits, from 0 to 1."""
    pair = torch.stack([p, q]).unsqueeze(0)
    return split_entropy(pair, pair.new_full(pair.shape[:-1], 0.5), models=0, samples=1)[1].extrinsic


def expected_uncertainty(
    task: Task[Any], committee: Committee, samples: int | None = None, episodes: int = 20_000
) -> dict[str, float]:
    """Intrinsic and extrinsic uncertainty (bits) of an agent that has learned the committee perfectly.

    Such an agent knows each member's policy and weight, and acts by their mixture. Its states are followed with their
    probabilities, step by step, from the starts of `episodes` episodes: exact where all start alike, as on GRID.

    With `samples`, the figures that the Monte Carlo estimator shows for it on average: with few sampled identities the
    teachers that were not drawn cannot be seen to differ.
    """
    shares = _shares(committee, samples)
    state, chance = _merge(task, task.reset(Streams([0]).draws("expectation/task", 0), episodes), torch.ones(episodes))
    intrinsic = extrinsic = steps = 0.0
    for _ in range(task.horizon):
        live = chance * ~task.done(state)[0]
        reference = task.reference(state)
        mean = _mixture(committee, reference)[0]
        policies = committee.distribution(reference).unsqueeze(2).expand(-1, -1, len(shares), -1, -1)
        parts = split_entropy(policies, shares.expand(policies.shape[:-1]), models=2, samples=3)[1]
        intrinsic += float((parts.intrinsic[0] * live).sum())
        extrinsic += float((parts.extrinsic[0] * live).sum())
        steps += float(live.sum())
        place, action = (mean[0] > 0).nonzero().unbind(1)
        after = task.step(_pick(state, place), action.unsqueeze(0))
        state, chance = _merge(task, after, chance[place] * mean[0, place, action])
    return {"intrinsic": intrinsic / steps, "extrinsic": extrinsic / steps}


def _shares(committee: Committee, samples: int | None) -> Tensor:
    """[draws, K]: the weights that an expectation over identities gives to the members, one row a draw."""
    weights = torch.tensor(committee.weights)
    if samples is None:
        return weights.unsqueeze(0)
    arrival = Streams([0]).draws("expectation/identity", 0).exponential(2_000, samples, len(weights))[0]
    return one_hot(race(weights, arrival), len(weights)).float().mean(1)


def _merge(task: Task[Any], state: Any, chance: Tensor) -> tuple[Any, Tensor]:
    """The distinct states of one run, by what the agent sees, and the sum of their chances."""
    features = task.observe(state).features[0]
    group = torch.unique(features, dim=0, return_inverse=True)[1]
    first = torch.full((int(group.max()) + 1,), len(group)).scatter_reduce(0, group, torch.arange(len(group)), "amin")
    total = torch.zeros(len(first), dtype=torch.float64).index_add(0, group, chance.double())
    return _pick(state, first), total


def _pick(state: Any, episodes: Tensor) -> Any:
    """Some episodes of a state."""
    if isinstance(state, Tensor):
        return state[:, episodes]
    return type(state)(**{f.name: _pick(getattr(state, f.name), episodes) for f in fields(state)})


def _mixture(committee: Any, reference: Reference) -> Any:
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
    - `identity_calibration_error`: mean gap between the believed and the true chance of each identity, over ten bins
      of belief, on the same states. None for a single teacher.
    - `identity_mean`, `identity_true`: mean belief and the committee's weights.

    What teachers are is known of simulated committees alone; of others the figures that compare with it are None.
    """
    members, known = _members(agents), _committees(agents)
    contested = agents.task.contested()
    runs = len(agents.streams.seeds)
    everyone = Observation(contested.features.expand(runs, -1, -1), contested.valid.expand(runs, -1, -1))
    # Where no contested states are known there is nothing to compare policies on.
    pairs = list(itertools.combinations(range(agents.model.teachers), 2)) if contested.features.shape[1] else []
    policies = agents.model.policies(everyone) if pairs else torch.empty(0)
    divergence = [jensen_shannon(policies[:, :, i], policies[:, :, j]).mean(1) for i, j in pairs]
    watched = _watch(agents, episodes)
    return [
        {
            "members": members[run],
            "personas": agents.model.policy["persona"][run].tolist(),
            "persona_js": float(torch.stack(divergence).mean(0)[run]) if pairs else None,
            "mixture_js": float(watched.mixture_js[run]) if known[run] else None,
            "identity_calibration_error": float(watched.calibration_error[run]) if pairs and known[run] else None,
            "identity_mean": watched.belief[run].tolist(),
            "identity_true": list(getattr(known[run], "weights", ())),
        }
        for run in range(runs)
    ]


def _teachers(agents: Agents) -> list[Teacher]:
    """The teachers of each run."""
    places = torch.arange(len(agents.streams.seeds))
    of_run: dict[int, Teacher] = {}
    for group in agents.teachers:
        of_run.update(dict.fromkeys(places[group.runs].tolist(), group.part))
    return [of_run[run] for run in range(len(places))]


def _members(agents: Agents) -> list[list[str]]:
    """The names of each run's teachers."""
    return [list(teacher.members) for teacher in _teachers(agents)]


def _committees(agents: Agents) -> list[Committee | None]:
    """The simulated committee of each run; None where the truth about the teachers is not known."""
    return [committee_behind(teacher) for teacher in _teachers(agents)]


@dataclass(frozen=True)
class _Watched:
    mixture_js: Tensor
    calibration_error: Tensor
    belief: Tensor


def _watch(agents: Agents, episodes: int) -> _Watched:
    """Lets the agents act alone and compares what they believe in each state with the truth."""
    runs, teachers = len(agents.streams.seeds), agents.model.teachers
    nothing = (0.0,) * teachers
    weights = [committee.weights if committee else nothing for committee in _committees(agents)]
    chance = torch.tensor(weights, dtype=torch.float64)
    divergence, steps = torch.zeros(runs, dtype=torch.float64), torch.zeros(runs, dtype=torch.float64)
    believed, actual, count = (torch.zeros(runs, _BINS, dtype=torch.float64) for _ in range(3))
    total_belief = torch.zeros(runs, teachers, dtype=torch.float64)

    def watch(state: Any, step: Step) -> None:
        reference = agents.task.reference(state)
        truth = torch.empty_like(step.belief.mean)
        for group in agents.teachers:
            committee = committee_behind(group.part)
            own = take(reference, group.runs) if committee else None
            truth[group.runs] = _mixture(committee, own)[0] if own else step.belief.mean[group.runs]
        live = step.live.double()
        divergence.add_((jensen_shannon(step.belief.mean, truth).double() * live).sum(1))
        steps.add_(live.sum(1))
        belief = step.belief.identity.double()
        if not bool(belief.isfinite().all()):
            raise ApilError("The belief in who answers is not finite: the weights are too large. Train it again.")
        total_belief.add_((belief * live.unsqueeze(-1)).sum(1))
        bins = (belief * _BINS).long().clamp_max(_BINS - 1).flatten(1)
        weight = live.unsqueeze(-1).expand_as(belief)
        # Who answers is drawn apart from the state, so the true chance of each identity is the committee's weight.
        for target, values in ((believed, belief * weight), (actual, chance.unsqueeze(1) * weight), (count, weight)):
            target.scatter_add_(1, bins, values.flatten(1))

    for place in range(0, episodes, CHUNK):
        collect(agents, place // CHUNK, min(CHUNK, episodes - place), "alone", "evaluation/", watch=watch)
    error = (believed - actual).abs().sum(1) / count.sum(1)
    return _Watched(divergence / steps, error, total_belief / steps.unsqueeze(1))
