"""Checkpoints: tensors as safetensors, the rest as JSON with a schema version and a checksum. Nothing is pickled.

The JSON is written after the tensors it vouches for. The last two are kept; a damaged one is passed over.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from apil.config import SCHEMA, RunConfig
from apil.errors import ApilError
from apil.learning.trainer import Trainer
from apil.runs.files import read_json, write_bytes, write_json

_KEPT = 2


def save_checkpoint(folder: Path, trainer: Trainer, run: int) -> None:
    """Saves one run of a stack as it is after `trainer.iteration` iterations."""
    tensors = save(trainer.state(run))
    path = folder / f"checkpoint-{trainer.iteration:08d}.safetensors"
    write_bytes(path, tensors)
    write_json(
        path.with_suffix(".json"),
        {
            "schema": SCHEMA,
            "iteration": trainer.iteration,
            "config": _digest(trainer.configs[run]),
            "sha256": _checksum(trainer.iteration, _digest(trainer.configs[run]), tensors),
        },
    )
    _remove(folder, _paths(folder)[_KEPT:])


def _remove(folder: Path, old: Sequence[Path]) -> None:
    """Removes these checkpoints, and tensors that no JSON vouches for."""
    for path in old:
        path.unlink(missing_ok=True)
    for tensors in folder.glob("checkpoint-*.safetensors"):
        if not tensors.with_suffix(".json").exists():
            tensors.unlink(missing_ok=True)


def load_checkpoint(folder: Path, config: RunConfig) -> tuple[int, dict[str, Tensor]] | None:
    """The newest checkpoint that is whole: iterations done, and the tensors. None if there was none yet."""
    paths = _paths(folder)
    for path, problem, found in ((path, *_try(path, config)) for path in paths):
        if found is not None:
            return found
        print(f"apil: warning: {path.stem} is damaged ({problem}); using the one before it.", file=sys.stderr)
    if paths:
        raise ApilError(f"No checkpoint in {folder} is whole: train the run anew in another folder.")
    return None


def _paths(folder: Path) -> list[Path]:
    """The checkpoints' JSON files, newest first."""
    return sorted(folder.glob("checkpoint-*.json"), reverse=True)


def _try(path: Path, config: RunConfig) -> tuple[str, tuple[int, dict[str, Tensor]] | None]:
    """What is wrong with a checkpoint, or what it holds."""
    try:
        note = _note(path)
        schema, iteration = _field(note, "schema"), _field(note, "iteration")
        if type(schema) is int and schema > SCHEMA:
            raise ApilError(f"{path} was written by a newer apil (schema {schema}): upgrade apil.")
        if type(schema) is not int or type(iteration) is not int:
            return "it names no schema or iteration", None
        content = path.with_suffix(".safetensors").read_bytes()
        settings = _field(note, "config")
        if _checksum(iteration, settings, content) != _field(note, "sha256"):
            return "its checksum does not fit", None
        if settings != _digest(config):
            raise ApilError(
                f"{path} is of a run with other settings than config.json tells: restore config.json or train anew."
            )
        return "", (iteration, load(content))
    except DamagedError as error:
        return str(error), None
    except (OSError, SafetensorError) as error:
        return str(error).splitlines()[0], None


def _digest(config: RunConfig) -> str:
    """Over the settings that a run cannot change on resume."""
    settings = {name: v for name, v in config.to_json().items() if name not in ("iterations", "save_every")}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _checksum(iteration: int, settings: str, tensors: bytes) -> str:
    """Over everything that a checkpoint says."""
    return hashlib.sha256(f"{SCHEMA}/{iteration}/{settings}/".encode() + tensors).hexdigest()


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
