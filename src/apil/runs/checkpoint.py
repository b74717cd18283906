"""Checkpoints: tensors as safetensors, the rest as JSON with a schema version and a checksum. Nothing is pickled.

The JSON is written after the tensors it vouches for. The last two are kept; a damaged one is passed over.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from apil.errors import ApilError
from apil.learning.trainer import Trainer
from apil.runs.files import read_json, write_bytes, write_json

SCHEMA = 1
_KEPT = 2


def save_checkpoint(folder: Path, trainer: Trainer, run: int) -> None:
    """Saves one run of a stack as it is after `trainer.iteration` iterations."""
    tensors = save(trainer.state(run))
    path = folder / f"checkpoint-{trainer.iteration:08d}.safetensors"
    write_bytes(path, tensors)
    write_json(
        path.with_suffix(".json"),
        {"schema": SCHEMA, "iteration": trainer.iteration, "sha256": _checksum(trainer.iteration, tensors)},
    )
    for old in _paths(folder)[_KEPT:]:
        old.unlink(missing_ok=True)
        old.with_suffix(".safetensors").unlink(missing_ok=True)


def load_checkpoint(folder: Path) -> tuple[int, dict[str, Tensor]] | None:
    """The newest checkpoint that is whole: iterations done, and the tensors. None if there was none yet."""
    paths = _paths(folder)
    for path, problem, found in ((path, *_try(path)) for path in paths):
        if found is not None:
            return found
        print(f"apil: warning: {path.stem} is damaged ({problem}); using the one before it.", file=sys.stderr)
    if paths:
        raise ApilError(f"No checkpoint in {folder} is whole: train the run anew in another folder.")
    return None


def _paths(folder: Path) -> list[Path]:
    """The checkpoints' JSON files, newest first."""
    return sorted(folder.glob("checkpoint-*.json"), reverse=True)


def _try(path: Path) -> tuple[str, tuple[int, dict[str, Tensor]] | None]:
    """What is wrong with a checkpoint, or what it holds."""
    try:
        note = read_json(path)
        schema, iteration, checksum = (_field(note, name) for name in ("schema", "iteration", "sha256"))
        if type(schema) is int and schema > SCHEMA:
            raise NewerSchemaError(f"{path} was written by a newer apil (schema {schema}): upgrade apil.")
        if type(schema) is not int or type(iteration) is not int:
            return "it names no schema or iteration", None
        content = path.with_suffix(".safetensors").read_bytes()
        if _checksum(iteration, content) != checksum:
            return "its checksum does not fit", None
        return "", (iteration, load(content))
    except NewerSchemaError:
        raise
    except (ApilError, OSError, SafetensorError) as error:
        return str(error).split(": ")[-1].rstrip("."), None


def _checksum(iteration: int, tensors: bytes) -> str:
    """Over everything that a checkpoint says."""
    return hashlib.sha256(f"{SCHEMA}/{iteration}/".encode() + tensors).hexdigest()


class NewerSchemaError(ApilError):
    """A file that only a newer apil understands."""


def _field(note: Any, name: str) -> Any:
    if not isinstance(note, dict) or name not in note:
        raise ApilError(f"it lacks '{name}'")
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
        elif saved[name].shape != value.shape or saved[name].dtype != value.dtype:
            yield name, f"{list(saved[name].shape)} instead of {list(value.shape)}"
        elif not bool(torch.isfinite(saved[name]).all()):
            yield name, "not finite"
