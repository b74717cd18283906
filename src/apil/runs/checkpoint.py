"""Checkpoints: tensors as safetensors, the rest as JSON with a schema version and a checksum. Nothing is pickled.

The JSON is written after the tensors it vouches for. The last two are kept; a damaged one is passed over.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from apil.errors import ApilError
from apil.learning.trainer import Trainer
from apil.runs.files import read_json, write_bytes, write_json
from apil.runs.journal import Prefix
from apil.settings import RunSettings

SCHEMA = 1
"""Of checkpoints."""
KEPT = 2
"""Checkpoints of a run in training; the second serves where the first is damaged."""


ROWS = ("metrics.jsonl", "answers.jsonl")
"""The files of rows that a checkpoint builds on."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as it was read."""

    iteration: int
    """Iterations done."""
    tensors: dict[str, Tensor]
    files: dict[str, Prefix]
    """What each file of rows held when it was made; rows that are written again on more iterations left out."""


def save_checkpoint(folder: Path, trainer: Trainer, run: int, files: dict[str, Prefix], kept: int = KEPT) -> None:
    """Saves one run of a stack as it is after `trainer.iteration` iterations; keeps the last `kept` checkpoints."""
    tensors = save(trainer.state(run))
    path = folder / f"checkpoint-{trainer.iteration:08d}.safetensors"
    write_bytes(path, tensors, sync_folder=False)  # the JSON follows into the same folder
    settings = _digest(trainer.configs[run])
    note = {
        "schema": SCHEMA,
        "iteration": trainer.iteration,
        "config": settings,
        "files": {name: asdict(prefix) for name, prefix in files.items()},
        "sha256": _checksum(trainer.iteration, settings, files, tensors),
    }
    write_json(path.with_suffix(".json"), note)
    _remove(folder, _paths(folder)[kept:])


def remove_after(folder: Path, iteration: int) -> None:
    """Removes the checkpoints after `iteration`: a run that goes on from there found them damaged."""
    _remove(folder, [path for path in _paths(folder) if path.stem > f"checkpoint-{iteration:08d}"])


def _remove(folder: Path, old: Sequence[Path]) -> None:
    """Removes these checkpoints, and tensors that no JSON vouches for."""
    for path in old:
        path.unlink(missing_ok=True)
    for tensors in folder.glob("checkpoint-*.safetensors"):
        if not tensors.with_suffix(".json").exists():
            tensors.unlink(missing_ok=True)


def load_checkpoint(folder: Path, config: RunSettings) -> Checkpoint | None:
    """The newest checkpoint that is whole. None if there was none yet."""
    paths = _paths(folder)
    for path in paths:
        try:
            return _load(path, config)
        except DamagedError as problem:
            print(f"apil: warning: {path.stem} is damaged ({problem}); using the one before it.", file=sys.stderr)
    if paths:
        raise ApilError(f"No checkpoint in {folder} is whole: train the run anew in another folder.")
    return None


def _paths(folder: Path) -> list[Path]:
    """The checkpoints' JSON files, newest first."""
    return sorted(folder.glob("checkpoint-*.json"), reverse=True)


def _load(path: Path, config: RunSettings) -> Checkpoint:
    note = _note(path)
    schema, iteration, settings = (_field(note, name) for name in ("schema", "iteration", "config"))
    if type(schema) is int and schema > SCHEMA:
        raise ApilError(f"{path} was written by a newer apil (schema {schema}): upgrade apil.")
    if type(schema) is not int or type(iteration) is not int:
        raise DamagedError("it names no schema or iteration")
    files = _files(_field(note, "files"))
    try:
        content = path.with_suffix(".safetensors").read_bytes()
        if _checksum(iteration, settings, files, content) != _field(note, "sha256"):
            raise DamagedError("its checksum does not fit")
        tensors = load(content)
    except (OSError, SafetensorError) as error:
        raise DamagedError(str(error).splitlines()[0]) from None
    if settings != _digest(config):
        raise ApilError(
            f"{path} is of a run with other settings than config.json tells: restore config.json or train anew."
        )
    return Checkpoint(iteration, tensors, files)


def _files(value: Any) -> dict[str, Prefix]:
    prefixes = {name: Prefix.from_json(value.get(name)) for name in ROWS} if isinstance(value, dict) else {}
    whole = {name: prefix for name, prefix in prefixes.items() if prefix is not None}
    if set(whole) != set(ROWS):
        raise DamagedError("it does not tell the rows it builds on")
    return whole


def _digest(config: RunSettings) -> str:
    """Over the settings that a run cannot change on resume."""
    settings = {name: v for name, v in config.identity().items() if name not in ("iterations", "save_every")}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _checksum(iteration: int, settings: str, files: dict[str, Prefix], tensors: bytes) -> str:
    """Over everything that a checkpoint says."""
    rows = "/".join(f"{name}:{files[name].bytes}:{files[name].sha256}" for name in ROWS)
    return hashlib.sha256(f"{SCHEMA}/{iteration}/{settings}/{rows}/".encode() + tensors).hexdigest()


class DamagedError(Exception):
    """A checkpoint that cannot be used."""


def _note(path: Path) -> Any:
    try:
        return read_json(path)
    except ApilError:
        raise DamagedError("its JSON cannot be read") from None


def _field(note: Any, name: str) -> Any:
    if not isinstance(note, dict) or name not in note:
        raise DamagedError(f"it lacks '{name}'")
    return note[name]


def check_fits(expected: dict[str, Tensor], saved: dict[str, Tensor], folder: Path) -> None:
    """Refuses tensors of another task, other sizes or another query policy."""
    for name, difference in _differences(expected, saved):
        raise ApilError(
            f"The checkpoint in {folder} does not fit its config ({name}: {difference}): the folder mixes two runs; "
            "restore its config.json or train anew."
        )


def _differences(expected: dict[str, Tensor], saved: dict[str, Tensor]) -> Iterator[tuple[str, str]]:
    for name, value in expected.items():
        if name not in saved:
            yield name, "missing"
        elif name.startswith("meter."):
            continue
        elif saved[name].shape != value.shape or saved[name].dtype != value.dtype:
            yield name, f"{list(saved[name].shape)} instead of {list(value.shape)}"
        elif not bool(torch.isfinite(saved[name]).all()):
            yield name, "not finite"
