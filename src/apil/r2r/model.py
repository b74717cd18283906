"""The model of R2R, from the settings of a run."""

from __future__ import annotations

from collections.abc import Sequence

from apil.r2r.instruction import InstructionModel
from apil.r2r.options import sizes_of
from apil.r2r.task import R2R
from apil.rng import Streams
from apil.settings import RunSettings


def instruction_model(streams: Streams, task: R2R, settings: Sequence[RunSettings], teachers: int) -> InstructionModel:
    """The facet `model` of R2R."""
    (run,) = settings
    return InstructionModel(
        streams,
        task.panoramas,
        teachers=teachers,
        actions=task.actions,
        horizon=task.horizon,
        settings=run.model,
        sizes=sizes_of(run.task.options),
    )
