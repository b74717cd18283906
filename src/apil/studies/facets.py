"""What can be set of a task's study. Imports no torch."""

from __future__ import annotations

from apil.settings.record import record
from apil.tasks import TASKS


@record
class NoArguments:
    """Nothing of its own can be set."""


def arguments_of_study(task: str) -> type:
    """A record of the options that a study of a task has of its own."""
    kind = TASKS.facet(task, "study")
    own: type = NoArguments if kind is None else kind.arguments
    return own
