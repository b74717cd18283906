"""The protocol of tasks: B episodes of every run at once, as tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from torch import Tensor, nn

from apil.rng import Draws
from apil.types import ActionBox, Observation, Picture, Reference

State = TypeVar("State")


class Task(Protocol[State]):
    """A task steps all episodes of all runs together. It holds no state of an episode: `State` travels.

    It is usually a frozen record of tensors that lead with [runs, episodes]. A task that cannot do so is a
    `KeepsEnvironments`.
    """

    name: str
    horizon: int
    """T, the number of steps after which an episode ends."""
    actions: int
    """A, the number of actions; n, the length of an action where actions are continuous."""
    action_names: tuple[str, ...]
    """A word for each action, or for each number of a continuous one."""
    box: ActionBox | None
    """The bounds of continuous actions; None where actions are discrete."""
    state_size: int
    """F, the number of features."""
    encoder: Callable[[], nn.Module] | None
    """Makes a network from features [n, F] to state vectors [n, S], learned with the policy; None where they are equal.
    """
    success_distance: float
    """An episode that ends this close to the goal set has succeeded; APIL's epsilon."""
    batch: int
    """Episodes of a run in one iteration, unless given."""

    def reset(self, draws: Draws, episodes: int) -> State:
        """The first states of `episodes` new episodes of every run."""

    def observe(self, state: State) -> Observation:
        """What the agent sees."""

    def reference(self, state: State) -> Reference:
        """The oracle: ordered reference actions (none where the task knows none) and distance, for teachers."""

    def step(self, state: State, action: Tensor) -> State:
        """The states after `action` [runs, episodes] or [runs, episodes, n]; a finished episode stays where it is."""

    def distance(self, state: State) -> Tensor:
        """[runs, episodes] d(s) >= 0, 0 in the goal set only."""

    def done(self, state: State) -> Tensor:
        """[runs, episodes] bool: the episode has ended before the horizon."""

    def describe(self, state: State, run: int, episode: int) -> str:
        """One state in a few words, for messages."""

    def picture(self, state: State, run: int, episode: int) -> Picture:
        """One state to look at."""

    def contested(self) -> Observation:
        """[1, n, ...]: the states with several reference actions, on which learned policies of teachers are compared;
        n is 0 where none are known.
        """


@runtime_checkable
class Compact(Protocol):
    """A task that says what its features are made of, so that a store of answers takes less room."""

    @property
    def feature_kinds(self) -> tuple[tuple[int, Literal["floats", "bytes", "bits"]], ...]:
        """How many features of which kind follow each other: any numbers, bytes divided by 255, or 0 and 1."""


@runtime_checkable
class Numbered(Protocol):
    """A task with few states, which numbers them in `Observation.place`.

    What a model computes in a state then serves all episodes of a batch that come by.
    """

    def states(self) -> Observation:
        """[1, n, ...]: what is seen of every state, in the order of their numbers."""


@runtime_checkable
class KeepsEnvironments(Protocol):
    """A task whose states are in environments that it keeps: a batch of episodes overwrites the one before.

    Batches that run at the same time each need a twin. A task whose states travel needs none.
    """

    def twin(self) -> Task[Any]:
        """The same task with environments of its own."""

    def close(self) -> None:
        """Closes its environments; a later reset opens new ones."""
