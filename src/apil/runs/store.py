"""The folder of a run.

config.json                  all settings, resolved
environment.json             versions, commit, machine
metrics.jsonl                a row each `log_every` iterations
answers.jsonl                every question and answer
timings.jsonl                seconds; the only file that differs between two equal runs
checkpoint-*.safetensors     weights, optimisers and sums, the last two
checkpoint-*.json            schema version, iteration, checksum
evaluation.json              what the trained agent can do, by `apil evaluate`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from apil.config import RunConfig
from apil.errors import ApilError
from apil.learning.build import NAMED, Parts, build, configure_torch
from apil.learning.collect import Agents
from apil.learning.state import weights
from apil.learning.trainer import Trainer
from apil.runs.checkpoint import check_fits, load_checkpoint, save_checkpoint
from apil.runs.environment import environment
from apil.runs.files import make_folder, read_json, write_json, write_rows


def save_run(folder: Path, trainer: Trainer, run: int) -> None:
    """Writes a whole run folder for one run of a trained stack."""
    make_folder(folder)
    write_json(folder / "config.json", trainer.configs[run].to_json())
    write_json(folder / "environment.json", environment())
    write_rows(folder / "metrics.jsonl", trainer.rows[run])
    save_checkpoint(folder, trainer, run)


def load_config(folder: Path) -> RunConfig:
    """The config of a run folder."""
    if not folder.is_dir():
        raise ApilError(f"There is no run folder {folder}: give one written by `apil train`.")
    values = read_json(folder / "config.json")
    if not isinstance(values, dict):
        raise ApilError(f"{folder / 'config.json'} is not a run's config: use a folder written by `apil train`.")
    return RunConfig.from_json(values)


def load_run(folder: Path, parts: Parts = NAMED) -> tuple[RunConfig, Agents]:
    """A trained run, as a stack of one."""
    config = load_config(folder)
    configure_torch()
    agents = build([config], parts)
    found = load_checkpoint(folder, config)
    if found is None:
        raise ApilError(f"{folder} has no checkpoint yet: go on with `apil train --resume {folder}`.")
    expected = weights(agents, 0)
    saved = {name: found[1].get(f"average.{name}", value) for name, value in found[1].items()}
    check_fits(expected, saved, folder)
    with torch.no_grad():
        for name, view in expected.items():
            view.copy_(saved[name])
    return config, agents


def write_evaluation(folder: Path, evaluation: dict[str, Any]) -> Path:
    """Writes `evaluation.json` into a run folder."""
    path = folder / "evaluation.json"
    write_json(path, evaluation)
    return path
