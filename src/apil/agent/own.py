"""Models that a task brings itself."""

from __future__ import annotations

from typing import Any, Protocol

from apil.agent.spec import AgentSpec
from apil.model.protocol import Model
from apil.rng import Streams
from apil.tasks import TASKS


class OwnModel(Protocol):
    """What a task with a model of its own registers as its facet `agent`."""

    def describe(self, task: Any, model: Any) -> dict[str, Any]:
        """What `rebuild` needs beside the sizes that every agent has; plain values for agent.json."""

    def rebuild(self, spec: AgentSpec, streams: Streams, data: str | None) -> Model:
        """The model; `data` is where the user says that the task's data are. `spec.own` was read from a file."""


def own_model(task: str) -> OwnModel | None:
    """How a task brings its own model back; None for tasks that have none, and for those that have no name."""
    part: OwnModel | None = TASKS.facet(task, "agent") if task in TASKS.names() else None
    return part
