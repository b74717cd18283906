"""A run that several processes train: the leader has the folder, the others get from it what they begin with."""

from __future__ import annotations

import numpy as np
from safetensors.torch import load, save

from apil.crew import Crew
from apil.learning.build import Parts
from apil.learning.trainer import Trainer
from apil.settings import RunSettings


def lead(crew: Crew, trainer: Trainer) -> None:
    """Tells the other processes where training begins: settings, state and the answers so far."""
    if crew.alone:
        return
    crew.tell_json({"settings": trainer.configs[0].to_json(), "iteration": trainer.iteration})
    crew.tell(save(trainer.state(0)))
    shelf = None if trainer.store is None else trainer.store.shelves[0]
    crew.tell(b"" if shelf is None else shelf.room.array[: shelf.rows].tobytes())


def dismiss(crew: Crew) -> None:
    """Tells them that there is nothing to do."""
    if not crew.alone:
        crew.tell_json({})


def follow(parts: Parts, stopped: list[int]) -> None:
    """Trains in a process that does not lead, to the end or until one of them is stopped. Writes nothing."""
    crew = parts.crew
    begin = crew.hear_json()
    if not begin:
        return
    config = RunSettings.from_json(begin["settings"])
    trainer = Trainer([config], parts=parts.made_for(config))
    state, rows = load(crew.hear()), crew.hear()
    if trainer.store is not None:
        shelf = trainer.store.shelves[0]
        found = np.frombuffer(rows, shelf.room.array.dtype)
        shelf.room.grow(len(found))
        shelf.room.array[: len(found)] = found
        trainer.recall(0, len(found))
    trainer.restore(begin["iteration"], [state])
    try:
        stops = crew.any(bool(stopped))
        while not trainer.done and not stops:
            trainer.step()
            stops = crew.any(bool(stopped))
    finally:
        trainer.close()
