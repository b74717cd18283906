"""What a run's folder says of its agent, so that `apil.load` can open it without the parts of the training."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from apil.agent.spec import AgentSpec, own_model
from apil.agent.storage import AGENT
from apil.files import write_json
from apil.learning.collect import Agents
from apil.learning.state import place_in
from apil.model.encoded import EncodedModel, StateEncoder
from apil.model.persona import PersonaModel
from apil.model.protocol import Model
from apil.settings import RunSettings
from apil.tasks.protocol import Task


@runtime_checkable
class Spaced(Protocol):
    """A task of environments with Gymnasium spaces. The package is imported for these alone: it takes time."""

    observation_space: Any
    action_space: Any
    masked: bool
    """Whether the environments say which actions are valid."""


def describe_agent(agents: Agents, run: int, config: RunSettings) -> AgentSpec:
    """The description of one run of a stack; all that depends on the settings is read here."""
    task, model = agents.task, agents.model
    members = next(g.name for g in agents.teachers if place_in(g.runs, run, len(agents.streams.seeds)) is not None)
    part = own_model(config.task.name)
    own: dict[str, Any] | None = None if isinstance(model, PersonaModel | EncodedModel) else {}
    observations, actions = _spaces(task)
    return AgentSpec(
        task="".join(letter if letter.isprintable() else "?" for letter in task.name)[:200],
        seed=config.seed,
        horizon=task.horizon,
        teachers=tuple(members.split("+")),
        action_space=actions,
        action_names=task.action_names,
        features=task.state_size,
        observation_space=observations,
        encoder=_encoder(model),
        masked=isinstance(task, Spaced) and task.masked,
        model=config.model,
        own=own if part is None else part.describe(task, model),
        query=config.query,
    )


def write_description(folder: Path, agents: Agents, run: int, config: RunSettings) -> None:
    """Writes agent.json; it can be made again, so it need not be durable at once."""
    write_json(folder / AGENT, describe_agent(agents, run, config).to_json(), durable=False)


def _spaces(task: Task[Any]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Of observations, where they are not the features themselves, and of actions."""
    if isinstance(task, Spaced):
        from apil.tasks.gymnasium.space_json import space_to_json

        return space_to_json(task.observation_space), space_to_json(task.action_space)
    if task.box is None:
        return None, {"kind": "Discrete", "n": task.actions, "start": 0}
    bounds = {"low": task.box.low.tolist(), "high": task.box.high.tolist()}
    return None, {"kind": "Box", "shape": [task.actions], "dtype": "float32", **bounds}


def _encoder(model: Model) -> Literal["none", "learned", "own"]:
    if not isinstance(model, EncodedModel) or not isinstance(model.encoder, StateEncoder):
        return "none"
    from apil.tasks.gymnasium.encoders import FromFeatures, PartsEncoder

    module = model.encoder.module
    return "learned" if isinstance(module, FromFeatures) and type(module.encoder) is PartsEncoder else "own"
