"""What `agent.json` says: all that is needed to act, and nothing that is run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apil.errors import ApilError

SCHEMA = 1
"""Of agent.json; raised when an older apil could not read a newer one."""

Word = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=200)]
Count = Annotated[int, Field(ge=1, le=10**6)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ModelSpec(_Record):
    """Sizes of the model."""

    hidden: Count
    persona: Count
    dropout: Annotated[float, Field(ge=0, lt=1)]
    models: Count
    """N2"""
    samples: Annotated[int, Field(ge=0, le=10**6)]
    """N1; 0 for the exact expectation over identities."""


class QuerySpec(_Record):
    """The query policy; what it has learned and what its gate remembers are tensors."""

    name: Word
    options: dict[Word, bool | int | float | Word] = {}
    threshold: float | None = None
    budget: float | None = None
    sigma: float = 2.0
    epsilon: float = 0.0
    gap: float | Literal["estimate"] = 0.0


class AgentSpec(_Record):
    """A trained agent without its tensors."""

    task: Word
    seed: Annotated[int, Field(gt=-(2**64), lt=2**64)]
    """Of the run: fixed random networks and the models that vote are drawn from it."""
    horizon: Count
    """T, the steps of an episode in training."""
    teachers: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
    """K names, in the order of the identities."""
    action_space: dict[str, Any]
    """A Gymnasium space as JSON, see `apil.tasks.gymnasium.space_json`."""
    action_names: Annotated[tuple[str, ...], Field(strict=False)]
    features: Count
    """F"""
    observation_space: dict[str, Any] | None = None
    """None where an observation is the F features themselves."""
    encoder: Literal["none", "learned", "own"] = "none"
    """What turns features into the state: nothing, apil's encoder, or a module that only its owner has."""
    model: ModelSpec
    own: dict[str, Any] | None = None
    """What a task with a model of its own needs to build it again; None for a model of apil."""
    query: QuerySpec
    sha256: str | None = None
    """Of agent.safetensors; None where the tensors are those of a run's newest checkpoint."""

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return {"schema": SCHEMA, **self.model_dump(mode="json")}

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
        except (ValidationError, TypeError) as error:
            raise ApilError(f"{where} does not describe an agent ({_first(error)}): {remedy}.") from error


def _first(error: ValidationError | TypeError) -> str:
    """The first thing that is wrong, in one line."""
    if isinstance(error, TypeError):
        return repr(str(error))[:80]
    found = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in found["loc"])
    return f"{place!r:.80}: {found['msg']}"
