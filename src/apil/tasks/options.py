"""What can be set of a task, by name: the part of a task that the command line, files and keywords see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from annotated_types import Ge, Le

from apil.settings.record import Few, Option, Says, Seed, arguments_of, record
from apil.tasks import TASKS

if TYPE_CHECKING:
    from apil.tasks.protocol import Task


@dataclass(frozen=True)
class Resolved:
    """The options of a task with every open one filled in, as they are saved with a run."""

    options: Mapping[str, Option]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of a run that go with them unless others are given."""
    notice: str = ""
    """A line for the user."""
    learning: Mapping[str, Any] = field(default_factory=dict)
    """What takes the place of some of `settings`, and of `options` by that name, unless a run is to be as printed: a
    task that brings its own model brings its own settings to learn from a store of answers."""


class TaskOptions(Protocol):
    """The facet `options` of a task. Importing it must not import torch: `--help` reads it."""

    @property
    def arguments(self) -> type:
        """A record (`apil.settings.record`) of all that can be given: names, types, bounds, help."""

    @property
    def places(self) -> tuple[str, ...]:
        """Options that name a file or a folder: a run notes where they lie, and finds them from elsewhere."""

    def resolve(self, given: Mapping[str, Any]) -> Resolved:
        """Checks what was given and fills in the rest."""

    def identity(self, options: Mapping[str, Option]) -> Mapping[str, Option]:
        """What of the saved options names a run: of data what they are, not where they lie."""

    def make(self, options: Mapping[str, Option]) -> Task[Any]:
        """The task with options that `resolve` returned; checks them again, since they may come from a file."""


@dataclass(frozen=True)
class PlainOptions:
    """Of a task that is made by `factory(**options)`: the arguments of the factory."""

    name: str

    @property
    def arguments(self) -> type:
        """As registered, else read off the factory."""
        own: type | None = TASKS.facet(self.name, "arguments")
        return arguments_of(TASKS.load(self.name)) if own is None else own

    @property
    def places(self) -> tuple[str, ...]:
        return ()

    def resolve(self, given: Mapping[str, Any]) -> Resolved:
        """Only what was given is saved: what was not has the factory's default."""
        self.arguments(**given)
        return Resolved(dict(given))

    def identity(self, options: Mapping[str, Option]) -> Mapping[str, Option]:
        return options

    def make(self, options: Mapping[str, Option]) -> Task[Any]:
        self.arguments(**options)
        task: Task[Any] = TASKS.load(self.name)(**options)
        return task


def options_of(task: str) -> TaskOptions:
    own: TaskOptions | None = TASKS.facet(task, "options")
    return PlainOptions(task) if own is None else own


_Side = Annotated[int, Ge(2), Le(100), Says("give a whole number from 2 to 100")]


@record
class GridArguments:
    size: _Side = 5
    """Cells in a row and in a column."""


@record
class MazeArguments:
    size: _Side = 7
    """Cells in a row and in a column."""
    walls: Annotated[int, Ge(0), Le(10_000), Says("give a whole number from 0 to 10,000")] = 6
    """How many cells are walls."""
    wall_seed: Seed = 0
    """Where they are: another seed is another maze."""
    horizon: Few = 20
    """Steps after which an episode ends."""
