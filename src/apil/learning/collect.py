"""Alg 1 as the one loop: any task, teachers, model and query policy meet here, through their protocols alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.learning.ask import AnswerLog, Guard, TeacherError
from apil.learning.group import Group, Groups, take
from apil.model.protocol import Model
from apil.query.protocol import Listener, Noting, QueryPolicy, QuerySession
from apil.rng import Streams, race
from apil.tasks.protocol import Task
from apil.teachers.protocol import Session, Teacher
from apil.types import ActionBox, Answer, Belief, Episodes, Observation, Reference, Uncertainty

Acting = Literal["training", "alone", "helped"]
"""Whose action is executed where the query policy fires: as it is in training, the agent's, or the teacher's."""


@dataclass(frozen=True)
class Agents:
    """A stack of runs: one task and one stacked model; each run has its own seed, teachers and query policy."""

    streams: Streams
    task: Task[Any]
    model: Model
    teachers: Sequence[Group[Teacher]]
    queries: Sequence[Group[QueryPolicy]]
    guard: Guard
    names: Sequence[str]
    """Of the runs, for messages."""


@dataclass(frozen=True)
class Step:
    """What happened at one step, before the action was taken."""

    seen: Observation
    belief: Belief
    fired: Tensor
    """[runs, episodes] bool: the query policy wanted to ask."""
    answered: Tensor
    """[runs, episodes] bool: a teacher answered."""
    answer: Answer
    action: Tensor
    """[runs, episodes] long, or [runs, episodes, n] float: what was executed."""
    live: Tensor
    """[runs, episodes] bool"""
    notes: Tensor
    """[runs, episodes, N]: what the query sessions noted, as in `Episodes.notes`."""


Watch = Callable[[Any, Step], None]
Ended = Callable[[Any], None]


def collect(
    agents: Agents,
    iteration: int,
    episodes: int,
    acting: Acting = "training",
    prefix: str = "",
    log: AnswerLog | None = None,
    watch: Watch | None = None,
    ended: Ended | None = None,
    greedy: bool = False,
) -> Episodes:
    """Runs `episodes` episodes of every run to their end.

    All randomness comes from (seed, `prefix` + stream, `iteration`); acting needs no gradient.
    Answers go through `log`; `watch` is shown each state and what happened there, `ended` the last states.
    Where it acts by itself an agent samples from its mean policy or, if `greedy`, takes the likeliest action.
    """
    with torch.inference_mode():
        steps, final_distance, told = _walk(agents, iteration, episodes, acting, prefix, log, watch, ended, greedy)
    # Stacked outside inference mode: gradients may flow through what is learned from it.
    return _episodes(steps, told.clone(), (final_distance <= agents.task.success_distance).clone())


def _walk(
    agents: Agents,
    iteration: int,
    episodes: int,
    acting: Acting,
    prefix: str,
    log: AnswerLog | None,
    watch: Watch | None,
    ended: Ended | None,
    greedy: bool,
) -> tuple[list[Step], Tensor, Tensor]:
    """The steps, and the final distances: the true ones and those told."""
    task, streams, horizon = agents.task, agents.streams, agents.task.horizon
    draws = streams.draws(f"{prefix}model", iteration)
    model = agents.model.begin(draws, streams.draws(f"{prefix}identity", iteration), episodes, horizon)
    arrival = draws.exponential(horizon, episodes, task.actions).unbind(1)
    luck = streams.draws(f"{prefix}query", iteration).uniform(horizon, episodes)
    sessions = _open(agents, f"{prefix}teacher", iteration, episodes)
    # Without a prefix the episodes are of training, as the time of the teachers is.
    queries = Groups(Group(g.runs, g.streams, g.part.begin(episodes, not prefix), g.name) for g in agents.queries)
    lucks = [luck[group.runs].unbind(1) for group in queries]
    listeners = [(g.runs, g.part) for g in queries if isinstance(g.part, Listener)]
    follows = _follows(agents, acting)
    state = task.reset(streams.draws(f"{prefix}task", iteration), episodes)
    steps: list[Step] = []
    for t in range(horizon):
        live = ~task.done(state)
        seen = task.observe(state)
        belief = replace(model.belief(seen, t, horizon), live=live)
        wanted = [_decisions(group, belief, own[t]) for group, own in zip(queries, lucks, strict=True)]
        fired = queries.join(wanted) & live
        # An agent that is measured alone asks nobody; it is noted where it would have.
        put = fired if acting != "alone" else torch.zeros_like(fired)
        try:
            answer = _answer(agents.guard, sessions, seen, task.reference(state), put, t, iteration, log)
        except TeacherError as error:
            raise error.located(iteration, t, task.describe(state, error.run, error.episode)) from error.__cause__
        own = _own_action(belief, arrival[t], greedy, task.box)
        answered = put if answer.given is None else put & answer.given
        action = torch.where(_over(answered & follows, own), answer.action, own)
        for runs, listener in listeners:
            listener.hear(take(belief, runs), take(answer, runs), answered[runs])
        steps.append(Step(seen, belief, fired, answered, answer, action, live, _notes(queries, fired)))
        if watch is not None:
            watch(state, steps[-1])
        state = task.step(state, action)
    if ended is not None:
        ended(state)
    distance = task.distance(state)
    return steps, distance, agents.guard.final(sessions, distance)


def _over(flags: Tensor, values: Tensor) -> Tensor:
    """`flags` with a last axis more where `values` are vectors."""
    return flags if flags.dim() == values.dim() else flags.unsqueeze(-1)


def _own_action(belief: Belief, arrival: Tensor, greedy: bool, box: ActionBox | None) -> Tensor:
    """What the agents do by themselves: the likeliest action (the mean one, if continuous), or one drawn from the mean
    policy."""
    if belief.drawn is not None:
        return box.unscaled(belief.mean[..., : len(box.low)]) if greedy and box is not None else belief.drawn
    return belief.mean.argmax(-1) if greedy else race(belief.mean, arrival)


def _follows(agents: Agents, acting: Acting) -> Tensor:
    """[runs, 1] bool: whether the teacher's action is executed where there is an answer."""
    if acting != "training":
        return torch.full((len(agents.streams.seeds), 1), acting == "helped")
    groups = agents.queries
    return Groups(groups).join([torch.full((len(g.streams.seeds), 1), g.part.executes_answer) for g in groups])


def _open(agents: Agents, stream: str, iteration: int, episodes: int) -> Groups[Session]:
    horizon = agents.task.horizon
    # What changes while an agent is trained has come to its end when it is measured.
    time = iteration if stream == "teacher" else math.inf
    return Groups(
        Group(g.runs, g.streams, g.part.begin(g.streams.draws(stream, iteration, time), episodes, horizon), g.name)
        for g in agents.teachers
    )


def _decisions(group: Group[QuerySession], belief: Belief, luck: Tensor) -> Tensor:
    """What one query policy decides for its own runs; anything else than decisions is refused."""
    try:
        found = group.part.ask(take(belief, group.runs), luck)
    except ApilError as error:
        raise ApilError(f"The query policy '{group.name}': {error}") from error
    if isinstance(found, Tensor) and found.dtype == torch.bool and found.shape == luck.shape:
        return found
    told = f"a tensor {list(found.shape)} of type {found.dtype}" if isinstance(found, Tensor) else f"{found!r:.60}"
    raise ApilError(
        f"The query policy '{group.name}' returned {told} where decisions are due: expected a tensor "
        f"{list(luck.shape)} of type torch.bool; apil.check_query_policy says more."
    )


def _notes(queries: Groups[QuerySession], like: Tensor) -> Tensor:
    """[runs, episodes, N] of the step that was just asked about, padded with NaN; `like` [runs, episodes]."""
    found = [(group, group.part.notes) for group in queries if isinstance(group.part, Noting)]
    width = max((notes.shape[-1] for _, notes in found), default=0)
    joined = torch.full((*like.shape, width), torch.nan)
    for group, notes in found:
        joined[group.runs, :, : notes.shape[-1]] = notes
    return joined


def _answer(
    guard: Guard,
    sessions: Groups[Session],
    seen: Observation,
    reference: Reference,
    put: Tensor,
    t: int,
    iteration: int,
    log: AnswerLog | None,
) -> Answer:
    """The answers, from the log as far as it knows them."""
    if log is None:
        return guard.answers(sessions, seen, reference, put, t)
    return log.consult(iteration, t, put, lambda missing: guard.answers(sessions, seen, reference, missing, t))


def _episodes(steps: Sequence[Step], final_distance: Tensor, success: Tensor) -> Episodes:
    def over_time(tensors: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(tensors), dim=2)

    answered = over_time([s.answered for s in steps])
    answers = over_time([s.answer.action for s in steps])
    features = over_time([s.seen.features for s in steps])
    # Where the observation is the state, it is stacked once.
    same = steps[0].belief.state is steps[0].seen.features
    return Episodes(
        features=features,
        state=features if same else over_time([s.belief.state for s in steps]),
        valid_actions=over_time([s.seen.valid for s in steps]),
        mean=over_time([s.belief.mean for s in steps]),
        identity_belief=over_time([s.belief.identity for s in steps]),
        answered=answered,
        unanswered=over_time([s.fired for s in steps]) & ~answered,
        action=torch.where(_over(answered, answers), answers, 0),
        distance=torch.where(answered, over_time([s.answer.distance for s in steps]), torch.nan),
        identity=torch.where(answered, over_time([s.answer.identity for s in steps]), 0),
        taken=over_time([s.action for s in steps]),
        live=over_time([s.live for s in steps]),
        final_distance=final_distance,
        success=success,
        uncertainty=Uncertainty(
            **{f.name: over_time([getattr(s.belief.uncertainty, f.name) for s in steps]) for f in fields(Uncertainty)}
        ),
        notes=over_time([s.notes for s in steps]),
    )
