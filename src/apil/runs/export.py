"""Episodes of a trained agent as a Minari dataset: per step who acted, whether it asked, which teacher, the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from torch import Tensor

from apil.errors import ApilError
from apil.files import make_folder
from apil.learning.collect import Agents, Step, collect
from apil.learning.evaluate import CHUNK
from apil.runs.describe import Spaced
from apil.tasks.protocol import Task
from apil.teachers.minari import add_episodes, dataset_folder, new_dataset, require_minari
from apil.types import Episodes


def export_episodes(
    agents: Agents,
    where: str | Path,
    episodes: int,
    *,
    about: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] = lambda episodes: None,
) -> Path:
    """Writes `episodes` episodes of a stack of one, with help where its query policy asks for it; returns the folder.

    `where` is a dataset id ('maze/apil-v0') or a folder; see `dataset_folder`. `about` goes into the metadata.
    Observations and actions are those of the environment, or state vectors and action numbers in a built-in task. The
    reward is 1 at the end of an episode that reached the goal, else 0. The rest is in `infos`: see `RecordedEpisode`.
    """
    folder = dataset_folder(where)
    with new_dataset(folder) as new:
        storage = _new(new, _dataset_id(folder, where, agents), agents, about or {})
        for place in range(0, episodes, CHUNK):
            count = min(CHUNK, episodes - place)
            add_episodes(storage, list(_batch(agents, place // CHUNK, count)))
            progress(place + count)
    return folder


def _dataset_id(folder: Path, where: str | Path, agents: Agents) -> str:
    return str(where) if str(folder) != str(where) else f"{agents.task.name}/{folder.name}-v0"


def _new(folder: Path, dataset_id: str, agents: Agents, about: Mapping[str, Any]) -> Any:
    minari = require_minari()
    from minari.dataset.minari_storage import MinariStorage

    make_folder(folder)
    task = agents.task
    seen, actions = _spaces(task)
    try:
        # Minari loses its files under a relative path.
        storage = MinariStorage.new((folder / "data").resolve(), seen, actions, jpeg_encoding=False)
    except ImportError as error:
        raise ApilError(f"{error}: pip install -c constraints.txt 'apil[minari]'.") from error
    group = agents.teachers[0]
    storage.update_metadata(
        {
            "dataset_id": dataset_id,
            "minari_version": minari.__version__,
            "algorithm_name": agents.queries[0].name,
            "description": f"Episodes of an agent in {task.name}, taught by {group.name}, exported by apil.",
            "apil": json.dumps({"members": list(group.part.members), "actions": list(task.action_names), **about}),
        }
    )
    return storage


def _spaces(task: Task[Any]) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    if isinstance(task, Spaced):
        return task.observation_space, task.action_space
    features = task.contested().features.shape[2:]
    return spaces.Box(-np.inf, np.inf, features, np.float32), spaces.Discrete(task.actions)


def _batch(agents: Agents, number: int, count: int) -> Iterator[Any]:
    task = agents.task
    space: Any = _spaces(task)[0]
    seen: list[list[Any]] = []

    def look(state: Any, step: Step | None = None) -> None:
        situations = task.reference(state).situations
        if situations is None:
            seen.append(list(task.observe(state).features[0].numpy()))
        else:
            seen.append([situations.observation(0, e) for e in range(count)])

    played = collect(agents, number, count, "helped", "export/", watch=look, ended=look)
    for e in range(count):
        steps = int(played.live[0, e].sum())
        empty: Any = create_empty_array(space, steps + 1)
        own = concatenate(space, [seen[t][e] for t in range(steps + 1)], empty)
        yield _buffer(task, played, e, steps, own)


def _buffer(task: Task[Any], played: Episodes, e: int, steps: int, seen: Any) -> Any:
    from minari.data_collector import EpisodeBuffer

    answered, fired = played.answered[0, e, :steps], (played.answered | played.unanswered)[0, e, :steps]
    taken, answers = played.taken[0, e, :steps], played.action[0, e, :steps]
    follows = answered if taken.dim() == 1 else answered.unsqueeze(-1)
    success = bool(played.success[0, e])
    last = np.arange(steps) == steps - 1
    ended = success or steps < task.horizon
    return EpisodeBuffer(
        observations=seen,
        actions=_as_taken(task, taken),
        rewards=list((last & success).astype(np.float64)),
        terminations=list(last & ended),
        truncations=list(last & (not ended)),
        infos={
            "acted": answered.numpy(),
            "fired": fired.numpy(),
            "asked": answered.numpy(),
            "teacher": torch.where(answered, played.identity[0, e, :steps], -1).numpy(),
            "answers": _as_taken(task, torch.where(follows, answers, taken)),
            "distance": played.distance[0, e, :steps].double().numpy(),
            "final_distance": float(played.final_distance[0, e]),
        },
    )


def _as_taken(task: Task[Any], actions: Tensor) -> Any:
    """[n] or [n, numbers]: actions as the environment has them."""
    convert = getattr(task, "to_environment", None)
    return actions.numpy() if convert is None else convert(actions)
