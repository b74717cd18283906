"""An agent on disk: agent.json, and its tensors beside it or in the newest checkpoint of a run. Nothing is pickled."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from apil.agent.spec import AgentSpec
from apil.errors import AccessError, ApilError
from apil.files import make_folder, read_json, taken, write_bytes, write_json

AGENT, TENSORS = "agent.json", "agent.safetensors"

Found = TypeVar("Found")


class DamagedError(Exception):
    """A checkpoint that cannot be used."""


def read_agent(folder: Path) -> tuple[AgentSpec, dict[str, Tensor]]:
    """What a folder says of an agent, and the agent's tensors; averaged weights instead of the last ones."""
    if not folder.is_dir():
        raise ApilError(f"There is no folder {str(folder)[:200]}: give a run's, or one written by agent.save.")
    if not (folder / AGENT).is_file():
        raise ApilError(
            f"{folder} holds no {AGENT}: give the folder of a run or of a saved agent; a run of an older apil gets one "
            "by training it on, apil train --resume."
        )
    spec = AgentSpec.from_json(read_json(folder / AGENT), str(folder / AGENT))
    if spec.sha256 is not None:
        return spec, _saved(folder / TENSORS, spec.sha256)
    found = newest_checkpoint(folder, lambda path: read_tensors(path, read_note(path)))
    if found is None:
        raise ApilError(f"{folder} has no checkpoint yet: continue it with `apil train --resume {folder}`.")
    averages = {name.removeprefix("average."): value for name, value in found.items() if name.startswith("average.")}
    parts = ("policy.", "identity.", "model.", "query.", "memory.")
    return spec, {name: averages.get(name, value) for name, value in found.items() if name.startswith(parts)}


def write_agent(folder: Path, spec: AgentSpec, tensors: dict[str, Tensor]) -> None:
    """Writes the two files of an agent into a folder of their own; an earlier agent there is replaced."""
    if taken(folder) and not (folder.is_dir() and {path.name for path in folder.iterdir()} <= {AGENT, TENSORS}):
        raise ApilError(f"{folder} holds something else than a saved agent: choose another folder.")
    make_folder(folder)
    content = save({name: value.detach().contiguous() for name, value in tensors.items()})
    write_bytes(folder / TENSORS, content, sync_folder=False)
    write_json(folder / AGENT, replace(spec, sha256=hashlib.sha256(content).hexdigest()).to_json())


def _saved(path: Path, digest: str) -> dict[str, Tensor]:
    remedy = "copy the agent's folder again, or save the agent again"
    if not path.is_file():
        raise ApilError(f"{path} does not exist: {remedy}.")
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise ApilError(f"{path} is not the file that {AGENT} was written with: {remedy}.")
        return load(content)
    except (OSError, SafetensorError) as error:
        raise ApilError(f"Cannot read {path} ({str(error).splitlines()[0]}): {remedy}.") from error


def checkpoint_paths(folder: Path, ending: str = ".json") -> list[Path]:
    """The checkpoints' JSON files, newest first. A copy that a user made under another name is none of them."""
    named = re.compile(r"checkpoint-\d{8,}" + re.escape(ending))
    return sorted((path for path in folder.glob("checkpoint-*") if named.fullmatch(path.name)), reverse=True)


def newest_checkpoint(folder: Path, read: Callable[[Path], Found]) -> Found | None:
    """What `read` makes of the newest checkpoint that is whole. None if there was none yet."""
    paths = checkpoint_paths(folder)
    for path in paths:
        try:
            return read(path)
        except DamagedError as problem:
            print(f"apil: warning: {path.stem} is damaged ({problem}); using the one before it.", file=sys.stderr)
    if paths:
        raise ApilError(f"No checkpoint in {folder} is whole: train the run again in another folder.")
    return None


def read_note(path: Path) -> dict[str, Any]:
    content = _content(path, "its JSON is missing")
    try:
        note = json.loads(content)
    except (ValueError, RecursionError):
        raise DamagedError("its JSON cannot be read") from None
    note = note if isinstance(note, dict) else {}
    for name in ("schema", "iteration", "config", "files", "sha256"):
        if name not in note:
            raise DamagedError(f"it lacks '{name}'")
    return note


def read_tensors(path: Path, note: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors that the JSON of a checkpoint vouches for."""
    content = _content(path.with_suffix(".safetensors"), "its tensors are missing")
    if checksum(note, content) != note["sha256"]:
        raise DamagedError("its checksum does not fit")
    try:
        return load(content)
    except SafetensorError as error:
        raise DamagedError(str(error).splitlines()[0]) from None


def _content(path: Path, missing: str) -> bytes:
    """The bytes of a file. One that cannot be read now is not damaged: it must not be passed over, or removed."""
    try:
        if not path.is_file():
            raise DamagedError(missing)
        return path.read_bytes()
    except OSError as error:
        remedy = "check its permissions, or move the checkpoint away to use the one before it"
        raise AccessError(f"Cannot read {path}: {error.strerror or error}; {remedy}.") from error


def checksum(note: dict[str, Any], tensors: bytes) -> str:
    """Over everything that a checkpoint says."""
    try:
        rows = "/".join(f"{name}:{file['bytes']}:{file['sha256']}" for name, file in note["files"].items())
    except (AttributeError, KeyError, TypeError):
        raise DamagedError("it does not name the rows it builds on") from None
    said = f"{note['schema']}/{note['iteration']}/{note['config']}/{rows}/"
    return hashlib.sha256(said.encode(errors="replace") + tensors).hexdigest()


def differences(expected: dict[str, Tensor], saved: dict[str, Tensor]) -> Iterator[tuple[str, str]]:
    """Names of tensors that are missing in `saved`, of another shape or type, or not finite, and what is wrong."""
    for name, value in expected.items():
        if name not in saved:
            yield name, "missing"
        elif name.startswith("meter."):
            continue
        elif saved[name].shape != value.shape or saved[name].dtype != value.dtype:
            yield name, f"{list(saved[name].shape)} instead of {list(value.shape)}"
        elif not bool(torch.isfinite(saved[name]).all()):
            yield name, "not finite"
