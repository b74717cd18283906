"""Alg 1 as the one loop: any task, model and query policy meet here, through their protocols alone.

A walk yields a `Question` where the query policy asks, is sent an `Answer`, and returns the finished `Episodes`. It
does not know who answers or how long that takes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from apil.device import HOST, Device
from apil.errors import ApilError
from apil.learning.ask import Guard
from apil.learning.group import Group, Groups, Places, take
from apil.learning.scenes import film_of
from apil.learning.sound import no_answer
from apil.model.protocol import Model
from apil.query.protocol import Noting, QueryPolicy, QuerySession, listens, notes_down
from apil.rng import Streams, race
from apil.select.protocol import Selector
from apil.tasks.protocol import KeepsEnvironments, Task
from apil.teachers.protocol import Teacher
from apil.types import Answer, Belief, Episodes, Observation, Reference, Uncertainty

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
    selectors: Sequence[Group[Selector]] = ()
    """Who choose whom to ask; none where all teachers choose by themselves."""
    thinking: Device = HOST
    """Where the model lives. Episodes and all other records outside of it are on the host."""
    asking: Device = HOST
    """Where the query policies live: with the model, or on the host."""

    def close(self) -> None:
        """Closes the environments of a task that keeps some; the next walk opens new ones."""
        if isinstance(self.task, KeepsEnvironments):
            self.task.close()


@dataclass(frozen=True)
class Question:
    """What the teachers are asked at one step of a walk."""

    iteration: int
    t: int
    seen: Observation
    reference: Reference
    put: Tensor
    """[runs, episodes] bool: the episodes that ask, at least one."""
    describe: Callable[[int, int], str]
    """The state of a run's episode in a few words, for messages; only until the walk goes on."""


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
    notes: Tensor | None
    """[runs, episodes, N]: what the query sessions noted, as in `Episodes.notes`; None where N is 0."""


@dataclass(frozen=True)
class Script:
    """Episodes that are walked again: what to do and where to ask, whatever agent and query policy would do."""

    action: Tensor
    """[runs, episodes, T] long, or [runs, episodes, T, n] float: the actions to take; no answer is executed."""
    ask: Tensor
    """[runs, episodes, T] bool: where questions are put."""
    features: Tensor | None = None
    """[runs, episodes, T, F]: what must be seen; a walk that sees anything else stops before it asks."""


Walk = Generator[Question, Answer, Episodes]
Watch = Callable[[Any, Step], None]
Ended = Callable[[Any], None]


def walk(
    agents: Agents,
    iteration: int,
    episodes: int,
    acting: Acting = "training",
    prefix: str = "",
    *,
    watch: Watch | None = None,
    ended: Ended | None = None,
    greedy: bool = False,
    script: Script | None = None,
) -> Walk:
    """Walks `episodes` episodes of every run to their end, in inference mode as far as `advance` takes it.

    The arguments are those of `collect`. An `Answer` is read where its `given` is true, of the questions that were put.
    The final distances are the true ones.
    """
    task, streams, horizon = agents.task, agents.streams, agents.task.horizon
    draws, thinking = streams.draws(f"{prefix}model", iteration), agents.thinking
    with thinking:
        model = agents.model.begin(draws, streams.draws(f"{prefix}identity", iteration), episodes, horizon)
    arrival = draws.exponential(horizon, episodes, task.actions)
    luck = streams.draws(f"{prefix}query", iteration).uniform(horizon, episodes)
    mind = _Mind(agents, episodes, luck, arrival, greedy, training=not prefix) if script is None else _Reader(script)
    follows = _follows(agents, acting, script)
    state = task.reset(streams.draws(f"{prefix}task", iteration), episodes)
    film = None if prefix else film_of(agents.teachers, task)
    steps: list[Step] = []
    for t in range(horizon):
        live = ~task.done(state)
        seen = task.observe(state)
        with thinking:
            belief = model.belief(thinking.bring(seen), t, horizon)
        belief = thinking.back(belief)
        if prefix:  # an agent that is measured keeps its budget by the steps that count
            belief = replace(belief, live=live)
        fired = mind.ask(seen, belief, t) & live
        # An agent that is measured alone asks nobody; it is noted where it would have.
        put = fired if acting != "alone" else torch.zeros_like(fired)
        if film is not None:
            film.add(state, live)
        if acting != "alone" and put.any():
            reference = task.reference(state)
            if film is not None:
                reference = replace(reference, scene=film.scene(iteration, t, belief, put))
            answer = yield Question(iteration, t, seen, reference, put, partial(task.describe, state))
        else:
            answer = no_answer(put, task.box)
        answered = put if answer.given is None else put & answer.given
        own = mind.act(belief, t)
        action = torch.where(_over(answered & follows, own), answer.action, own)
        mind.hear(replace(belief, taken=action), answer, answered)
        steps.append(Step(seen, belief, fired, answered, answer, action, live, mind.notes(fired)))
        if watch is not None:
            watch(state, steps[-1])
        state = task.step(state, action)
    if ended is not None:
        ended(state)
    # Stacked outside inference mode: gradients may flow through what is learned from it.
    with torch.inference_mode(False):
        distance = task.distance(state).clone()
        return _episodes(steps, distance, distance <= task.success_distance)


# Inference mode is on while the walk runs and off while it waits for an answer.
@torch.inference_mode()
def advance(steps: Walk, answer: Answer | None = None) -> Question | Episodes:
    """Goes on with a walk to its next question or its end; `answer` is that to the last question."""
    return advance_in_mode(steps, answer)


def advance_in_mode(steps: Walk, answer: Answer | None = None) -> Question | Episodes:
    """The same where inference mode is on already: to switch it on for every step takes time."""
    try:
        return next(steps) if answer is None else steps.send(answer)
    except StopIteration as end:
        finished: Episodes = end.value
        return finished


class _Decides(Protocol):
    """Who decides in a walk; each method is called once a step, in order."""

    def ask(self, seen: Observation, belief: Belief, t: int) -> Tensor:
        """[runs, episodes] bool: where to ask; also in episodes that are over."""

    def act(self, belief: Belief, t: int) -> Tensor:
        """What is done where no answer is executed."""

    def hear(self, belief: Belief, answer: Answer, answered: Tensor) -> None:
        """The outcome of the questions."""

    def notes(self, like: Tensor) -> Tensor | None:
        """[runs, episodes, N] of the step that was just asked about, padded with NaN; `like` [runs, episodes]. None
        where nothing is noted."""


class _Mind(_Decides):
    """The agents and their query policies."""

    def __init__(
        self, agents: Agents, episodes: int, luck: Tensor, arrival: Tensor, greedy: bool, *, training: bool
    ) -> None:
        self._place = agents.asking
        with self._place:
            opened = [(g, g.part.begin(episodes, training)) for g in agents.queries]
        self._sessions = Groups(Group(g.runs, g.streams, session, g.name) for g, session in opened)
        self._lucks = [self._place.bring(luck[group.runs]).unbind(1) for group in self._sessions]
        self._looks = any(getattr(g.part, "reads_features", False) for g in agents.queries)
        self._listeners = [(g.runs, g.part) for g in self._sessions if listens(g.part)]
        self._arrival, self._greedy, self._box = arrival.unbind(1), greedy, agents.task.box

    def ask(self, seen: Observation, belief: Belief, t: int) -> Tensor:
        if self._looks:
            belief = replace(belief, features=seen.features)
        with self._place:
            found = [
                self._place.back(_decisions(group, self._place.bring(take(belief, group.runs)), own[t]))
                for group, own in zip(self._sessions, self._lucks, strict=True)
            ]
        return self._sessions.join(found)

    def act(self, belief: Belief, t: int) -> Tensor:
        """The likeliest action (the mean one, if continuous), or one drawn from the mean policy."""
        if self._box is not None and belief.drawn is not None:
            return self._box.unscaled(belief.mean[..., : len(self._box.low)]) if self._greedy else belief.drawn
        return belief.mean.argmax(-1) if self._greedy else race(belief.mean, self._arrival[t])

    def hear(self, belief: Belief, answer: Answer, answered: Tensor) -> None:
        for runs, listener in self._listeners:
            with self._place:
                listener.hear(*map(self._place.bring, (take(belief, runs), take(answer, runs), answered[runs])))

    def notes(self, like: Tensor) -> Tensor | None:
        if not self._noting:
            return None
        found = [(runs, session.notes) for runs, session in self._noting]
        width = max(notes.shape[-1] for _, notes in found)
        joined = torch.full((*like.shape, width), torch.nan)
        for runs, notes in found:
            joined[runs, :, : notes.shape[-1]] = self._place.back(notes)
        return joined

    @cached_property
    def _noting(self) -> list[tuple[Places, Noting]]:
        """Those with something to note. Found once and after the first question: this reads the notes of all."""
        found = [(group.runs, group.part) for group in self._sessions if notes_down(group.part)]
        return [(runs, session) for runs, session in found if session.notes.shape[-1]]


@dataclass(frozen=True)
class _Reader(_Decides):
    """Goes by a script."""

    script: Script

    def ask(self, seen: Observation, belief: Belief, t: int) -> Tensor:
        expected = self.script.features
        if expected is not None and not torch.equal(seen.features, expected[:, :, t]):
            raise ApilError(
                f"The environment is not repeatable: walked again with the same seeds and actions, it shows something "
                f"else at step {t}. Episodes cannot be reviewed in it: use --asking live."
            )
        return self.script.ask[:, :, t]

    def act(self, belief: Belief, t: int) -> Tensor:
        return self.script.action[:, :, t]

    def hear(self, belief: Belief, answer: Answer, answered: Tensor) -> None:
        """Nothing hangs on it."""

    def notes(self, like: Tensor) -> None:
        """Nothing is noted."""


def _over(flags: Tensor, values: Tensor) -> Tensor:
    """`flags` with a last axis more where `values` are vectors."""
    return flags if flags.dim() == values.dim() else flags.unsqueeze(-1)


def _follows(agents: Agents, acting: Acting, script: Script | None) -> Tensor:
    """[runs, 1] bool: whether the teacher's action is executed where there is an answer."""
    if acting != "training" or script is not None:
        return torch.full((len(agents.streams.seeds), 1), acting == "helped" and script is None)
    groups = agents.queries
    return Groups(groups).join([torch.full((len(g.streams.seeds), 1), g.part.executes_answer) for g in groups])


def _decisions(group: Group[QuerySession], belief: Belief, luck: Tensor) -> Tensor:
    """What one query policy decides for its own runs, of whom `belief` is; anything else than decisions is refused."""
    try:
        found = group.part.ask(belief, luck)
    except ApilError as error:
        raise ApilError(f"The query policy '{group.name}': {error}") from error
    if isinstance(found, Tensor) and found.dtype == torch.bool and found.shape == luck.shape:
        return found
    shown = f"a tensor {list(found.shape)} of type {found.dtype}" if isinstance(found, Tensor) else f"{found!r:.60}"
    raise ApilError(
        f"The query policy '{group.name}' returned {shown} where decisions are due: expected a tensor "
        f"{list(luck.shape)} of type torch.bool; apil.check_query_policy says more."
    )


def _episodes(steps: Sequence[Step], final_distance: Tensor, success: Tensor) -> Episodes:
    def over_time(tensors: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(tensors), dim=2)

    answered = over_time([s.answered for s in steps])
    answers = over_time([s.answer.action for s in steps])
    features = over_time([s.seen.features for s in steps])
    # Where the observation is the state, it is stacked once.
    same = steps[0].belief.state is steps[0].seen.features
    noted = [s.notes for s in steps if s.notes is not None]
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
        notes=over_time(noted) if noted else features[..., :0],
    )
