"""The folder of a run.

config.json                  all settings, resolved
agent.json                   what the agent is, for `apil.load`
environment.json             versions, commit, machine, and where the data of the run lie
metrics.jsonl                a row each `log_every` iterations
answers.jsonl                every question and answer
answers.store                every answer with what is needed to learn from it again; none with `replay` 0
earlier.json                 where the first answers of the store come from, if the run was given some to start with
people.sqlite, links.json    what people were asked and answered, and their links; of runs that people teach
teaching.json, people.log    who teaches and how they are asked; complaints of the server
answers.png                  a figure of the store, by `apil answers`
end.json                     how the training ended: finished, stopped, or failed and why; none while it is under way
timings.jsonl                seconds; the only file that differs between two equal runs
checkpoint-*.safetensors     weights, optimisers and sums, the last two
checkpoint-*.json            schema version, iteration, checksums of the tensors and of the rows so far
tensorboard/                 the metrics as events for TensorBoard, by `apil train --tensorboard`
failed.log                   why a run of a study failed, until it is tried again
evaluation*.json             what the trained agent can do, by `apil evaluate`; named as the task's evaluation says
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from apil.errors import ApilError, UnknownNameError
from apil.files import read_json
from apil.learning.build import NAMED, Parts, build, configure_torch
from apil.learning.collect import Agents
from apil.learning.state import weights
from apil.runs.checkpoint import check_fits, load_checkpoint
from apil.runs.ending import ending
from apil.runs.journal import rest_of
from apil.runs.store_file import NAME as STORE
from apil.runs.store_file import check_prefix
from apil.settings import RunSettings
from apil.settings.record import Option
from apil.tasks.places import find_options


def load_config(folder: Path) -> RunSettings:
    if not folder.is_dir():
        raise ApilError(f"There is no run folder {folder}: give one written by `apil train`.")
    values = read_json(folder / "config.json")
    if not isinstance(values, dict):
        raise ApilError(f"{folder / 'config.json'} is not a run's config: use a folder written by `apil train`.")
    return RunSettings.from_json(values)


def located(folder: Path, config: RunSettings, parts: Parts = NAMED) -> RunSettings:
    """The config of a run with its data where they are now; as it is where the task is given as an object."""
    if parts.task is not None:
        return config
    return config.changed(options=find_options(folder, config.task.name, config.task.options))


def load_run(
    folder: Path, parts: Parts = NAMED, options: Mapping[str, Option] | None = None
) -> tuple[RunSettings, Agents]:
    """A trained run, as a stack of one. Rows beside it that were changed since are reported; they may be left out.

    `options` take the place of its own, where its data have moved.
    """
    config = load_config(folder)
    configure_torch()
    try:
        agents = build([located(folder, config, parts) if options is None else config.changed(options=options)], parts)
    except UnknownNameError as error:
        raise ApilError(
            f"{error} If the run was trained with parts of your own, name the plug-in that registers them in "
            f"APIL_PLUGINS; apil.load({str(folder)!r}) acts without them."
        ) from error
    found = load_checkpoint(folder, config)
    if found is None:
        raise ApilError(
            f"{folder} has no checkpoint ({ending(folder)}): resume it with `apil train --resume {folder}`."
        )
    for name, prefix in found.files.items():
        if (folder / name).exists():
            (check_prefix if name == STORE else rest_of)(folder / name, prefix)
    expected = weights(agents, 0)
    saved = {name: found.tensors.get(f"average.{name}", value) for name, value in found.tensors.items()}
    check_fits(expected, saved, folder)
    with torch.no_grad():
        for name, view in expected.items():
            view.copy_(saved[name])
    return config, agents
