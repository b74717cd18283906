"""What `agent.json` says: all that is needed to act, and nothing that is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal, Protocol

from apil.errors import ApilError
from apil.model.protocol import Model
from apil.rng import Streams
from apil.settings import ModelSettings, QuerySettings
from apil.settings.record import FromList, Says, Seed, Size, Text, nested, record
from apil.tasks import TASKS

SCHEMA = 1
"""Of agent.json; raised when an older apil could not read a newer one."""

_Words = Annotated[tuple[Text, ...], FromList, Says("give a list of names")]
_Json = Annotated[Mapping[str, Any], Says("give a JSON object")]


@record
class AgentSpec:
    """A trained agent without its tensors."""

    task: Text
    seed: Seed
    """Of the run: fixed random networks and the models that vote are drawn from it."""
    horizon: Size
    """T, the steps of an episode in training."""
    teachers: _Words
    """K names, in the order of the identities."""
    action_space: _Json
    """A Gymnasium space as JSON, see `apil.tasks.gymnasium.space_json`."""
    action_names: _Words
    features: Size
    """F"""
    model: Annotated[ModelSettings, nested(ModelSettings)]
    query: Annotated[QuerySettings, nested(QuerySettings)]
    """What the query policy has learned and what its gate remembers are tensors."""
    observation_space: _Json | None = None
    """None where an observation is the F features themselves."""
    encoder: Literal["none", "learned", "own"] = "none"
    """What turns features into the state: nothing, apil's encoder, or a module that only its owner has."""
    masked: bool = False
    """Its environment says which actions are valid (a mask), so that acting without one is an error."""
    own: _Json | None = None
    """What a task with a model of its own needs to build it again; None for a model of apil."""
    sha256: Text | None = None
    """Of agent.safetensors; None where the tensors are those of a run's newest checkpoint."""

    def __post_init__(self) -> None:
        if not self.teachers:
            raise ApilError("An agent has at least one teacher.")

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    @staticmethod
    def from_json(values: Any, where: str) -> AgentSpec:
        """The record back from `to_json`; `where` names the file in messages."""
        remedy = "restore the file, or save the agent again"
        schema = values.get("schema") if isinstance(values, dict) else None
        if type(schema) is not int:
            raise ApilError(f"{where} does not describe an agent: {remedy}.")
        if schema > SCHEMA:
            raise ApilError(f"{where} was written by a newer apil (schema {schema}): upgrade apil.")
        try:
            return AgentSpec(**{name: value for name, value in values.items() if name != "schema"})
        except ApilError as error:
            raise ApilError(f"{where} does not describe an agent ({error}): {remedy}.") from error


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
