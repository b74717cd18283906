"""Checkpoints: tensors as safetensors, the rest as JSON with a schema version and a checksum. Nothing is pickled.

The JSON is written after the tensors it vouches for. The last two are kept; a damaged one is passed over.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from apil.agent.storage import (
    DamagedError,
    checkpoint_paths,
    checksum,
    differences,
    newest_checkpoint,
    read_note,
    read_tensors,
)
from apil.errors import ApilError
from apil.files import remove, write_bytes, write_json
from apil.learning.metrics import sums_fit
from apil.learning.spending import has_ended
from apil.learning.trainer import Trainer
from apil.runs.journal import Prefix
from apil.runs.store_file import NAME as STORE
from apil.settings import RunSettings

SCHEMA = 1
KEPT = 2
"""Checkpoints of a run in training; the second serves where the first is damaged."""
ROWS = ("metrics.jsonl", "answers.jsonl")
"""The files of rows that every checkpoint builds on."""


def files_of(config: RunSettings) -> tuple[str, ...]:
    """Those that a checkpoint of a run builds on."""
    return (*ROWS, STORE) if config.learner.replay else ROWS


@dataclass(frozen=True)
class Checkpoint:
    iteration: int
    tensors: dict[str, Tensor]
    files: dict[str, Prefix]
    """What each file of rows held when it was made; rows that are written again on more iterations left out."""

    @property
    def ended(self) -> bool:
        """The run has come to its end before its last iteration: its answers are spent and learned."""
        return has_ended(self.tensors)


def save_checkpoint(folder: Path, trainer: Trainer, run: int, files: dict[str, Prefix], kept: int = KEPT) -> None:
    """Saves one run of a stack as it is after `trainer.iteration` iterations; keeps the last `kept` checkpoints."""
    tensors = save(trainer.state(run))
    path = folder / f"checkpoint-{trainer.iteration:08d}.safetensors"
    write_bytes(path, tensors, sync_folder=False)  # the JSON follows into the same folder
    note = {
        "schema": SCHEMA,
        "iteration": trainer.iteration,
        "config": _digest(trainer.configs[run]),
        "files": {name: asdict(files[name]) for name in files_of(trainer.configs[run])},
    }
    write_json(path.with_suffix(".json"), {**note, "sha256": checksum(note, tensors)})
    _remove(folder, checkpoint_paths(folder)[kept:])


def keep_up_to(folder: Path, iteration: int) -> None:
    """Removes the checkpoints after `iteration`, which a run that continues from there found damaged, and those that
    a failure left behind."""
    last = f"checkpoint-{iteration:08d}"
    paths = checkpoint_paths(folder)
    good = [path for path in paths if path.stem <= last]
    _remove(folder, [path for path in paths if path not in good[:KEPT]])


def _remove(folder: Path, old: Sequence[Path]) -> None:
    """Removes these checkpoints, and tensors that no JSON vouches for."""
    for path in old:
        remove(path)
    for tensors in checkpoint_paths(folder, ".safetensors"):
        if not tensors.with_suffix(".json").exists():
            remove(tensors)


def load_checkpoint(folder: Path, config: RunSettings) -> Checkpoint | None:
    return newest_checkpoint(folder, lambda path: _load(path, config))


def _load(path: Path, config: RunSettings) -> Checkpoint:
    note = read_note(path)
    schema, iteration = note["schema"], note["iteration"]
    if type(schema) is int and schema > SCHEMA:
        raise ApilError(f"{path} was written by a newer apil (schema {schema}): upgrade apil.")
    if type(schema) is not int or type(iteration) is not int or path.stem != f"checkpoint-{iteration:08d}":
        raise DamagedError("it names no schema, or another iteration")
    tensors = read_tensors(path, note)
    if note["config"] != _digest(config):
        raise ApilError(
            f"{path} is of a run with other settings than those in config.json: restore config.json or train again."
        )
    if not 1 <= iteration <= config.iterations or not sums_fit(tensors, iteration % config.log_every):
        raise DamagedError("its sums or its iteration do not fit")
    expected = files_of(config)
    files = {name: prefix for name in expected if (prefix := Prefix.from_json(note["files"].get(name))) is not None}
    if set(files) != set(expected):
        raise DamagedError("it does not name the rows it builds on")
    return Checkpoint(iteration, tensors, files)


def _digest(config: RunSettings) -> str:
    """Over the settings that a run cannot change on resume."""
    settings = {name: v for name, v in config.identity().items() if name not in ("iterations", "save_every")}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def check_fits(expected: dict[str, Tensor], saved: dict[str, Tensor], folder: Path) -> None:
    """Refuses tensors of another task, other sizes or another query policy."""
    for name, difference in differences(expected, saved):
        raise ApilError(
            f"The checkpoint in {folder} does not fit its config ({name}: {difference}): the folder mixes two runs; "
            "restore its config.json or train again."
        )
