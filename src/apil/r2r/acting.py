"""R2R's model, built again for a trained agent."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from apil.agent.spec import AgentSpec
from apil.errors import ApilError
from apil.r2r.instruction import InstructionModel
from apil.r2r.options import InstructionSizes
from apil.r2r.task import R2R
from apil.rng import Streams


class Acting:
    """What an agent that follows instructions needs: its data, which its observations index, and its sizes."""

    def describe(self, task: R2R, model: InstructionModel) -> dict[str, Any]:
        """Where the data were and which they are, and the sizes of the encoder."""
        world = task.world
        return {"data": task.data, "digest": world.digest, "tables": world.tables, "sizes": asdict(model.sizes)}

    def rebuild(self, spec: AgentSpec, streams: Streams, data: str | None) -> InstructionModel:
        """The model over the data at `data`, or where they were in training; refuses other data."""
        own = spec.own or {}
        place, digest = own.get("data") if data is None else data, own.get("digest")
        try:
            sizes = InstructionSizes(**own["sizes"])
        except (KeyError, TypeError):
            raise ApilError("agent.json does not name the sizes of R2R's model: restore it.") from None
        tables = own.get("tables", "")  # an older agent has none
        if not isinstance(place, str) or not isinstance(digest, str) or not isinstance(tables, str):
            raise ApilError("agent.json does not name the data of R2R: restore it.")
        try:
            task = R2R(place, spec.horizon, digest=digest, tables=tables)
        except ApilError as error:
            raise ApilError(f"{error} For a trained agent: apil.load(folder, data=...).") from error
        return InstructionModel(streams, task, len(spec.teachers), spec.model, sizes)


ACTING = Acting()
