"""Episodes in a Minari dataset: read back, and as a teacher made of demonstrations."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from apil.errors import ApilError, in_one_line
from apil.files import beside
from apil.teachers.policies import Demonstrations


@dataclass(frozen=True)
class RecordedEpisode:
    """One episode of n steps, as it was exported."""

    observations: Any
    """n + 1 observations of the environment: an array, or a dict or tuple of arrays."""
    actions: NDArray[Any]
    """[n] or [n, numbers]: the actions taken."""
    acted: NDArray[np.bool_]
    """[n]: the action taken was the teacher's answer; otherwise the agent's own."""
    fired: NDArray[np.bool_]
    """[n]: the agent wanted to ask."""
    asked: NDArray[np.bool_]
    """[n]: it asked and was answered."""
    teacher: NDArray[np.int64]
    """[n]: who answered, as reported to the agent; -1 where nobody did."""
    answers: NDArray[Any]
    """[n] or [n, numbers]: the teacher's action; the action taken where nobody answered."""
    distance: NDArray[np.float64]
    """[n]: the reported distance, NaN where there was none."""
    success: bool
    final_distance: float
    """As reported at the end."""


_OVERHEAD = 2**16
"""Bytes of an episode beside its numbers, at most."""
STEPWISE = ("acted", "fired", "asked", "teacher", "answers", "distance")
"""What a step has beside Minari's own fields; kept in its `infos`."""


def require_minari() -> Any:
    """The package; an error that says how to get it where it is missing."""
    try:
        import minari
    except ImportError as error:
        raise ApilError("Minari is not installed: pip install -c constraints.txt 'apil[minari]'.") from error
    return minari


def dataset_folder(where: str | Path) -> Path:
    """The folder of a dataset: an id ends in a version ('maze/apil-v0') and lives where Minari keeps its datasets;
    anything else, and whatever begins with '/', '.' or '~', is a folder itself.
    """
    require_minari()
    from minari.storage import get_dataset_path

    is_id = isinstance(where, str) and re.match(r"[^/.~].*-v\d+$", where)
    return Path(get_dataset_path(str(where)) if is_id else where).expanduser()


@contextmanager
def new_dataset(folder: Path) -> Iterator[Path]:
    """A place for a dataset that becomes `folder` when it is whole, and is gone otherwise; `folder` must be free."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ApilError(f"{folder} is not empty: choose another place for the dataset.")
    with beside(folder) as new:
        yield new
        if folder.exists():
            folder.rmdir()


def add_episodes(storage: Any, episodes: list[Any]) -> None:
    """Adds to a dataset that is being written.

    HDF5 crashes the process where it cannot write its file out: room on the disk is looked for before, and some more.
    """
    held = sum(_size(vars(episode)) + _OVERHEAD for episode in episodes)
    if shutil.disk_usage(storage.data_path).free < 2 * held:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    storage.update_episodes(episodes)


def _size(value: Any) -> int:
    """Bytes of all arrays and numbers in nested lists and mappings."""
    if isinstance(value, Mapping):
        return sum(map(_size, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return int(np.asarray(value).nbytes)


def open_dataset(where: str | Path) -> Any:
    """A Minari dataset on this machine; nothing is downloaded."""
    minari = require_minari()
    folder = dataset_folder(where)
    if not (folder / "data").is_dir():
        raise ApilError(f"There is no Minari dataset in {folder}: give an id under MINARI_DATASETS_PATH, or a folder.")
    try:
        return minari.MinariDataset((folder / "data").resolve())
    except (ValueError, KeyError, OSError, ImportError) as error:
        raise ApilError(f"The Minari dataset in {folder} cannot be read ({in_one_line(error)}).") from error


def members(where: str | Path) -> tuple[str, ...]:
    """The names of the teachers in a dataset that apil exported."""
    about = open_dataset(where).storage.metadata.get("apil")
    if about is None:
        raise ApilError(f"The dataset {where} was not exported by apil: it does not say who taught and who asked.")
    return tuple(json.loads(about)["members"])


def read_episodes(where: str | Path) -> Iterator[RecordedEpisode]:
    """The episodes of a dataset that apil exported, in their order."""
    members(where)  # refuses what somebody else exported
    for episode in open_dataset(where).iterate_episodes():
        stepwise = {name: episode.infos[name] for name in STEPWISE}
        success, end = bool(episode.rewards[-1] > 0), float(episode.infos["final_distance"])
        yield RecordedEpisode(episode.observations, episode.actions, **stepwise, success=success, final_distance=end)


def load_demonstrations(
    where: str | Path,
    *,
    what: Literal["answers", "actions"] = "actions",
    teacher: str | None = None,
    within: float = math.inf,
) -> Demonstrations:
    """Makes a team member that answers with the actions demonstrated in a Minari dataset.

    `what`: the actions that were taken, as every dataset has them, or the answers that the agent was given, of one
    `teacher` by name or of all (datasets that apil exported). `within` is that of `Demonstrations`.
    """
    if what == "answers":
        chosen = _answered(where, teacher)
    elif teacher is None:
        chosen = ((e.observations, e.actions, range(len(e.rewards))) for e in open_dataset(where).iterate_episodes())
    else:
        raise ApilError(f"teacher is '{teacher}': only answers have one; use what='answers', or leave it out.")
    pairs = [(at(seen, t), at(actions, t)) for seen, actions, steps in chosen for t in steps]
    if not pairs:
        raise ApilError(f"The dataset {where} holds no {what} to learn from.")
    return Demonstrations([seen for seen, _ in pairs], [action for _, action in pairs], within)


def _answered(where: str | Path, teacher: str | None) -> Iterator[tuple[Any, Any, Iterable[int]]]:
    """The observations and answers of each episode, and the steps that `teacher` answered."""
    names = members(where)
    if teacher is not None and teacher not in names:
        raise ApilError(f"Nobody in the dataset {where} is called '{teacher}': there are {', '.join(names)}.")
    known = [who for who, name in enumerate(names) if teacher in (None, name)]
    for episode in read_episodes(where):
        steps = np.flatnonzero(episode.asked & np.isin(episode.teacher, known))
        yield episode.observations, episode.answers, steps.tolist()


def at(parts: Any, t: int) -> Any:
    """Step `t` of arrays that lead with the steps, alone or in dicts and tuples."""
    if isinstance(parts, Mapping):
        return {key: at(value, t) for key, value in parts.items()}
    if isinstance(parts, tuple):
        return tuple(at(value, t) for value in parts)
    return parts[t]
