"""The folder of a run.

config.json          all settings, resolved
metrics.jsonl        a row each `log_every` iterations
model.safetensors    the learned weights
evaluation.json      what the trained agent can do
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from apil.config import RunConfig
from apil.errors import ApilError
from apil.learning.build import build, configure_torch
from apil.learning.collect import Agents
from apil.learning.trainer import Trainer
from apil.runs.files import read_json, write_atomically, write_json, write_rows


def weights_of(agents: Agents, run: int) -> dict[str, Tensor]:
    """The named weights of one run of a stack."""
    parts = {"policy": agents.model.policy, "identity": agents.model.identity}
    places = torch.arange(len(agents.streams.seeds))
    tensors = {f"{part}.{name}": value[run] for part, values in parts.items() for name, value in values.items()}
    for group in agents.queries:
        inside = (places[group.runs] == run).nonzero().flatten()
        if inside.numel():
            own = int(inside[0])
            tensors.update({f"query.{name}": value[own] for name, value in group.part.parameters.items()})
    return {name: value.detach().clone().contiguous() for name, value in tensors.items()}


def save_run(folder: Path, trainer: Trainer, run: int) -> None:
    """Writes config, metrics and weights of one run of a trained stack."""
    write_json(folder / "config.json", trainer.configs[run].to_json())
    write_rows(folder / "metrics.jsonl", trainer.rows[run])
    weights = weights_of(trainer.agents, run)
    write_atomically(folder / "model.safetensors", lambda new: save_file(weights, new))


def load_config(folder: Path) -> RunConfig:
    """The config of a run folder."""
    values = read_json(folder / "config.json")
    if not isinstance(values, dict):
        raise ApilError(f"{folder / 'config.json'} is not a run's config: use a folder written by `apil train`.")
    return RunConfig.from_json(values)


def load_run(folder: Path) -> tuple[RunConfig, Agents]:
    """A trained run, as a stack of one."""
    if not folder.is_dir():
        raise ApilError(f"There is no run folder {folder}: give one written by `apil train`.")
    config = load_config(folder)
    configure_torch()
    agents = build([config])
    _restore(agents, _read_weights(folder / "model.safetensors"), folder)
    return config, agents


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ApilError(f"Cannot read {path}: {error}. Train the run anew.") from error


def _restore(agents: Agents, saved: dict[str, Tensor], folder: Path) -> None:
    """Copies saved weights into a stack of one."""
    targets: dict[str, dict[str, Tensor]] = {"policy": agents.model.policy, "identity": agents.model.identity}
    targets["query"] = agents.queries[0].part.parameters
    expected = {f"{part}.{name}": value for part, values in targets.items() for name, value in values.items()}
    if set(expected) != set(saved) or any(expected[n].shape[1:] != saved[n].shape for n in expected):
        raise ApilError(f"The weights in {folder} do not fit its config: the folder mixes two runs; train it anew.")
    with torch.no_grad():
        for name, value in expected.items():
            value.copy_(saved[name].unsqueeze(0))


def write_evaluation(folder: Path, evaluation: dict[str, Any]) -> Path:
    """Writes `evaluation.json` into a run folder."""
    path = folder / "evaluation.json"
    write_json(path, evaluation)
    return path
