"""The records that travel between the packages.

Shapes: every tensor leads with `runs` (the stack, 1 for a run alone) and `episodes` (the batch of a run). `A` actions,
`K` teachers, `T` time steps, `F` observed features, `S` numbers in a state vector (F = S where they are the same).

Actions are discrete, one long index each, or continuous: `[n]` floats behind `[runs, episodes]`, inside an `ActionBox`
and in the units of the task; then A = n. The learner sees them scaled to -1 to 1: variances and errors have no unit.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class ActionBox:
    """The continuous actions of a task: all vectors between two finite bounds."""

    low: Tensor
    """[n] float"""
    high: Tensor
    """[n] float, above `low` in every place."""

    def scaled(self, action: Tensor) -> Tensor:
        """[..., n] actions of the task -> [..., n], -1 at `low` and 1 at `high`."""
        return (action - self.low) * (2.0 / (self.high - self.low)) - 1.0

    def unscaled(self, action: Tensor) -> Tensor:
        """[..., n] from -1 to 1 -> actions of the task; what lies outside is clipped to the box."""
        spread = (action.clamp(-1.0, 1.0) + 1.0) * (0.5 * (self.high - self.low))
        return (self.low + spread).clamp(self.low, self.high)

    def contains(self, action: Tensor) -> Tensor:
        """[..., n] -> [...] bool: finite and inside, bounds included."""
        return ((action >= self.low) & (action <= self.high)).all(-1)


class Situations(Protocol):
    """The episodes of a step as their environment knows them, for teachers that need more than tensors.

    Only until the next step is taken. `run` and `episode` are places in the tensors of the same step.
    """

    def observation(self, run: int, episode: int) -> Any:
        """The observation as the environment gave it: an element of its observation space, a copy."""

    def environment(self, run: int, episode: int) -> Any:
        """The environment of the episode, to look at, not to step; an `ApilError` where another process has it."""

    def action(self, action: Any) -> Tensor:
        """An element of the environment's action space as the learner has it: [] long or [n] float; else an error."""

    def of_runs(self, runs: slice | Tensor) -> Situations:
        """Those of some runs only."""


@dataclass(frozen=True)
class Observation:
    """What the agent sees of its state."""

    features: Tensor
    """[runs, episodes, F] float: the state itself where it is a vector, else what the model's state encoder reads."""
    valid: Tensor
    """[runs, episodes, A] bool: actions that can be taken here, at least one; all where actions are continuous."""
    place: Tensor | None = None
    """[runs, episodes] long: the numbers of the states, where the task numbers them (`apil.tasks.protocol.Numbered`).
    """


@dataclass(frozen=True)
class Sketch:
    """A map: P places, the lines between them, the agent's path, and the goal."""

    places: tuple[tuple[float, float], ...]
    """P of (east, north)."""
    lines: tuple[tuple[int, int], ...]
    """The places at both ends."""
    agent: int
    """The place of the agent."""
    heading: float
    """Where it looks, radians clockwise from north."""
    goal: int | None
    """The place of the goal, if it is known."""
    way: tuple[int, ...] = ()
    """The places where the agent has been, in order."""
    labels: tuple[tuple[int, str], ...] = ()
    """Places with a word each."""


@dataclass(frozen=True)
class Picture:
    """A state for people: a board of cells, a picture of pixels, or words."""

    cells: tuple[str, ...] = ()
    """One string a row, one character a cell: '.' free, '#' wall, 'G' goal, 'A' agent. Empty if there is no board."""
    text: str = ""
    """What a terminal shows where there is no board."""
    pixels: NDArray[np.uint8] | None = None
    """[height, width, 3]: what a film shows where there is no board."""
    views: tuple[tuple[str, str], ...] = ()
    """What can be seen in each direction, or read besides: title and words."""
    sketch: Sketch | None = None
    """A map, which a browser shows in place of a board."""


@dataclass(frozen=True)
class Scene:
    """What a person is shown of a step: how the episodes came here, and what the agent would do."""

    iteration: int
    """Of training, or the number of the walk."""
    step: int
    pictures: tuple[tuple[tuple[Picture, ...], ...], ...]
    """[runs][episodes]: the last states, the present one last; none where nobody is asked."""
    mean: Tensor
    """[runs, episodes, A] or [runs, episodes, 2n]: the mean policy, as in `Belief`."""

    def of_runs(self, runs: slice | Tensor) -> Scene:
        """That of some runs only."""
        chosen = self.pictures[runs] if isinstance(runs, slice) else tuple(self.pictures[run] for run in runs.tolist())
        return replace(self, pictures=chosen, mean=self.mean[runs])


@dataclass(frozen=True)
class Reference:
    """What a simulated teacher may know about a state: the task's oracle."""

    actions: Tensor
    """[runs, episodes, A] long, or [runs, episodes, 0] in a task that knows none: the ordered reference actions;
    positions from `count` on mean nothing."""
    count: Tensor
    """[runs, episodes] long, 1 to A: how many reference actions there are; 0 in a task that knows none."""
    distance: Tensor
    """[runs, episodes] float: d(s), the distance to the goal set."""
    situations: Situations | None = None
    """The environments behind the tensors; None where the tensors are all there is."""
    scene: Scene | None = None
    """What people are shown; None where no teacher asks for it."""


@dataclass(frozen=True)
class Answer:
    """A teacher's answer to a query. Nothing else of the teacher is visible to the learner."""

    action: Tensor
    """[runs, episodes] long: the reference action; [runs, episodes, n] float where actions are continuous."""
    distance: Tensor
    """[runs, episodes] float: d(s); NaN where a teacher left it out, which only one with `missing_distances` may do."""
    identity: Tensor
    """[runs, episodes] long, 0 to K - 1: who answered."""
    given: Tensor | None = None
    """[runs, episodes] bool: there is an answer; None where every question was answered."""


@dataclass(frozen=True)
class Uncertainty:
    """behavioral = intrinsic + extrinsic and total = behavioral + model, up to rounding.

    In bits for discrete actions; for continuous ones the variance of the scaled action, summed over its n numbers.
    """

    total: Tensor
    behavioral: Tensor
    intrinsic: Tensor
    """Because each teacher varies."""
    extrinsic: Tensor
    """Because teachers differ."""
    model: Tensor
    """Because the model has seen too little."""


@dataclass(frozen=True)
class Belief:
    """What the agent believes in a state before it acts."""

    state: Tensor
    """[runs, episodes, S]: the state vector, as the model encodes what it has seen so far."""
    mean: Tensor
    """[runs, episodes, A]: the mean policy, the expectation over identities and models. Where actions are continuous
    [runs, episodes, 2n]: mean and standard deviation of the scaled action."""
    identity: Tensor
    """[runs, episodes, K]: the identity distribution."""
    uncertainty: Uncertainty
    """Each [runs, episodes]."""
    remaining: int
    """T - t, the number of steps left."""
    drawn: Tensor | None = None
    """[runs, episodes, n] float: an action of the task drawn from the mean policy, where actions are continuous."""
    of_model: Tensor | None = None
    """[runs, episodes, N2, A or n]: the mean policy (or mean scaled action) of each of the N2 models, if known."""
    live: Tensor | None = None
    """[runs, episodes] bool: the episode is unfinished; None if all are. The walk fills it in."""
    features: Tensor | None = None
    """[runs, episodes, F]: what was observed. The walk fills it in for query policies with `reads_features = True`."""
    taken: Tensor | None = None
    """[runs, episodes] long or, where actions are continuous, [runs, episodes, n]: the action that was executed. The
    walk fills it in at the end of a step, for `hear`."""


@dataclass(frozen=True)
class Lessons:
    """Steps of episodes to learn from, fresh ones or some of the store of answers.

    `action`, `distance` and `identity` are the teacher's and known only where `answered`; elsewhere they are 0, NaN
    and 0.
    """

    features: Tensor
    """[runs, episodes, T, F]: what was observed."""
    state: Tensor | None
    """[runs, episodes, T, S]: the state vectors at the time of acting; None where they are to be computed again."""
    valid_actions: Tensor
    """[runs, episodes, T, A] bool"""
    answered: Tensor
    """[runs, episodes, T] bool: a question was put and answered; false where not `live`."""
    action: Tensor
    """[runs, episodes, T] long, or [runs, episodes, T, n] float: the teacher's."""
    distance: Tensor
    """[runs, episodes, T] float: the teacher's, NaN where not answered or not known."""
    identity: Tensor
    """[runs, episodes, T] long: who answered."""
    live: Tensor
    """[runs, episodes, T] bool: the episode was unfinished."""

    def of_episodes(self, part: slice) -> Lessons:
        """Some of the episodes."""
        own: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(Lessons)}
        cut: dict[str, Any] = {name: None if value is None else value[:, part] for name, value in own.items()}
        return Lessons(**cut)


@dataclass(frozen=True)
class Episodes(Lessons):
    """A batch of finished episodes of every run: what Alg 1 leaves to learn from."""

    state: Tensor
    """[runs, episodes, T, S]: the state vectors at the time of acting."""
    mean: Tensor
    """[runs, episodes, T, A], or [runs, episodes, T, 2n]: the mean policy at the time of acting, as in `Belief`."""
    identity_belief: Tensor
    """[runs, episodes, T, K]"""
    unanswered: Tensor
    """[runs, episodes, T] bool: the query policy fired, but there was no answer, or the agent was measured alone."""
    taken: Tensor
    """[runs, episodes, T] long, or [runs, episodes, T, n] float: the action that was executed."""
    final_distance: Tensor
    """[runs, episodes] float: d_T, as the teacher reports it at the end; NaN where it does not."""
    success: Tensor
    """[runs, episodes] bool: by the true final distance, whatever was reported."""
    uncertainty: Uncertainty
    """Each [runs, episodes, T]."""
    notes: Tensor
    """[runs, episodes, T, N] float: what the query session noted at each step, its score first. N is 0 where no session
    notes anything. In a stack it is the largest of all query policies; the others' notes are padded with NaN."""
