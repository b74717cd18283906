"""Exports of a store of answers: CSV, Parquet, Minari. Each is written beside its place and moved when it is whole."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from apil.errors import ApilError
from apil.files import beside, make_folder
from apil.learning.rows import ANSWERED, EXECUTED, Rows
from apil.runs.stored import Progress, StoredAnswers
from apil.teachers.minari import add_episodes, dataset_folder, new_dataset, require_minari

WIDE = 50
"""With more features than this a CSV file has them in one column, as JSON."""
_NUMBERS = 2**22
"""Features that are written at a time."""
_EPISODES = 256
"""Episodes that are written at a time."""
_COLUMNS = ("iteration", "episode", "step", "version", "distance", "executed", "held_out", "earlier")


def _batches(answers: StoredAnswers, progress: Progress) -> Iterator[slice]:
    size = max(1, _NUMBERS // answers.header.layout.features)
    for start in range(0, len(answers), size):
        yield slice(start, start + size)
        progress(min(start + size, len(answers)))


def write_csv(answers: StoredAnswers, path: Path, progress: Progress) -> Path:
    """A table: teacher, action, the columns of `_COLUMNS`, then f0, f1 and so on, or `features` as JSON if there are
    more than 50. Continuous actions are action0, action1 and so on. A distance that was not reported is empty."""
    layout = answers.header.layout
    actions = [f"action{at}" for at in range(layout.actions)] if answers.continuous else ["action"]
    wide = layout.features > WIDE
    features = ["features"] if wide else [f"f{at}" for at in range(layout.features)]
    with beside(path) as new, new.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["teacher", *actions, *_COLUMNS, *features])
        for batch in _batches(answers, progress):
            taken = _text(answers.action[batch]).reshape(-1, len(actions)).tolist()
            rest = zip(*(_cells(getattr(answers, name)[batch]) for name in _COLUMNS), strict=True)
            seen: list[list[str]] = _text(answers.features_of(batch)).tolist()
            for who, action, own, numbers in zip(answers.teacher[batch].tolist(), taken, rest, seen, strict=True):
                table.writerow([who, *action, *own, *([f"[{','.join(numbers)}]"] if wide else numbers)])
    return path


def _text(values: NDArray[Any]) -> NDArray[np.str_]:
    """Numbers as short as they can be to be read back exactly; each different one is put into words once."""
    different, where = np.unique(values, return_inverse=True)
    words = np.array([str(value).removesuffix(".0") for value in different], np.str_)
    return words[where.reshape(values.shape)]


def _cells(column: NDArray[Any]) -> list[Any]:
    if column.dtype == bool:
        column = np.where(column, "true", "false")
    elif column.dtype == np.float32:
        column = np.where(np.isnan(column), "", _text(column))
    cells: list[Any] = column.tolist()
    return cells


def write_parquet(answers: StoredAnswers, path: Path, progress: Progress) -> Path:
    """The same columns; `features` and continuous actions are lists of fixed size."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ApilError("pyarrow is not installed: pip install -c constraints.txt 'apil[parquet]'.") from error

    def made(batch: slice) -> Any:
        layout = answers.header.layout
        action = answers.action[batch]
        columns: dict[str, Any] = {
            "teacher": pa.array(answers.teacher[batch].tolist(), pa.string()).dictionary_encode(),
            "action": _lists(pa, action, layout.actions) if answers.continuous else pa.array(action),
            **{name: pa.array(getattr(answers, name)[batch]) for name in _COLUMNS},
            "features": _lists(pa, answers.features_of(batch), layout.features),
        }
        return pa.table(columns)

    with beside(path) as new, pq.ParquetWriter(str(new), made(slice(0, 0)).schema) as writer:
        for batch in _batches(answers, progress):
            writer.write_table(made(batch))
    return path


def _lists(pa: Any, values: NDArray[np.float32], size: int) -> Any:
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), size)


def write_minari(answers: StoredAnswers, where: str | Path | None, progress: Progress) -> Path:
    """A Minari dataset of features and answers; `apil.teachers.load_demonstrations` makes a teacher of it.

    An episode has its steps with an answer, or all of them where the store keeps whole episodes; `asked` in its
    `infos` says which have an answer, and the action of the others is 0. The observation after the last step is not
    kept: the last is repeated. Rewards are not known, and are 0; every episode ends as truncated.
    """
    require_minari()
    where = f"{re.sub('[^A-Za-z0-9_-]+', '-', answers.task)}/answers-v0" if where is None else where
    folder = dataset_folder(where)
    with new_dataset(folder) as new:
        is_id = str(folder) != str(Path(where).expanduser())
        storage = _storage(answers, new, str(where) if is_id else f"{answers.task}/{folder.name}-v0")
        starts = _episode_starts(answers)
        for first in range(0, len(starts) - 1, _EPISODES):
            last = min(first + _EPISODES, len(starts) - 1)
            add_episodes(
                storage, [_episode(answers, answers.rows[starts[at] : starts[at + 1]]) for at in range(first, last)]
            )
            progress(int(np.searchsorted(answers.places, starts[last])))
    return folder


def _storage(answers: StoredAnswers, folder: Path, dataset_id: str) -> Any:
    from minari.dataset.minari_storage import MinariStorage

    layout = answers.header.layout
    seen = spaces.Box(-np.inf, np.inf, (layout.features,), np.float32)
    actions: spaces.Space[Any] = spaces.Discrete(layout.actions)
    if answers.continuous:
        actions = spaces.Box(-np.inf, np.inf, (layout.actions,), np.float32)
    make_folder(folder)
    try:
        # Minari loses its files under a relative path.
        storage = MinariStorage.new((folder / "data").resolve(), seen, actions, jpeg_encoding=False)
    except ImportError as error:
        raise ApilError(f"{error}: pip install -c constraints.txt 'apil[minari]'.") from error
    storage.update_metadata(
        {
            "dataset_id": dataset_id,
            "minari_version": require_minari().__version__,
            "algorithm_name": "answers",
            "description": f"Answers of {', '.join(answers.teachers)} in {answers.task}, exported by apil.",
            "apil": json.dumps({"members": list(answers.teachers), "task": answers.task}),
        }
    )
    return storage


def _episode_starts(answers: StoredAnswers) -> NDArray[np.int64]:
    """The rows at which episodes begin, and the end of the last."""
    rows = answers.rows
    if not len(rows):
        return np.zeros(1, np.int64)
    new = rows["step"][1:].astype(np.int64) <= rows["step"][:-1]
    for name in ("iteration", "episode"):
        new = new | (rows[name][1:] != rows[name][:-1])
    if 0 < answers.header.before < len(rows):
        new[answers.header.before - 1] = True
    return np.concatenate([[0], np.flatnonzero(new) + 1, [len(rows)]])


def _episode(answers: StoredAnswers, rows: Rows) -> Any:
    from minari.data_collector import EpisodeBuffer

    layout = answers.header.layout
    features, action = layout.read_features(rows).numpy(), layout.read_action(rows).numpy()
    asked, last = rows["flags"] & ANSWERED != 0, np.arange(len(rows)) == len(rows) - 1
    return EpisodeBuffer(
        observations=np.concatenate([features, features[-1:]]),
        actions=action,
        rewards=[0.0] * len(rows),
        terminations=[False] * len(rows),
        truncations=last.tolist(),
        infos={
            "acted": rows["flags"] & EXECUTED != 0,
            "fired": asked,
            "asked": asked,
            "teacher": np.where(asked, rows["identity"].astype(np.int64), -1),
            "answers": action,
            "distance": rows["distance"].astype(np.float64),
            "final_distance": float("nan"),
            "iteration": rows["iteration"].astype(np.int64),
            "step": rows["step"].astype(np.int64),
        },
    )
