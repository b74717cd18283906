"""The answers in the store of a run, as columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apil.errors import plural
from apil.learning.rows import ANSWERED, EXECUTED, VALIDATION, Rows
from apil.learning.store import corrected
from apil.runs.folder import load_config
from apil.runs.skills import TeacherSkill, teacher_skills
from apil.runs.store_file import Header, read_store

Progress = Callable[[int], None]
Places = slice | NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class StoredAnswers:
    """The n answers of a run, returned by `apil.answers`. Each column is an array of n.

    Columns are loaded when they are read. Columns of images are large; `features_of` loads a part of them.

    Examples:
        >>> trained = apil.train("grid", "detm", "dagger", iterations=50, folder="runs/demo")
        >>> stored = apil.answers("runs/demo")
        >>> stored.features.shape == (len(stored.action), 25)
        True
    """

    folder: Path
    header: Header
    rows: Rows
    """All rows of the store, including steps without an answer where whole episodes are kept."""
    places: NDArray[np.int64]
    """[n]: the rows with an answer."""

    def __repr__(self) -> str:
        who = ", ".join(self.teachers)
        return f"<{plural(len(self), 'answer')} on {self.header.task} by {who}, in {self.folder}>"

    def __len__(self) -> int:
        return len(self.places)

    @property
    def task(self) -> str:
        return self.header.task

    @property
    def teachers(self) -> tuple[str, ...]:
        """The K names, in the order of `identity`."""
        return self.header.teachers

    @property
    def continuous(self) -> bool:
        """Actions are vectors of numbers."""
        return self.header.layout.continuous

    @cached_property
    def skills(self) -> list[TeacherSkill]:
        """The estimated skills of the teachers; empty unless the run selects or acts by skill."""
        return teacher_skills(self.folder)

    @cached_property
    def features(self) -> NDArray[np.float32]:
        """[n, F]: what the agent saw when it asked."""
        return self.features_of(slice(None))

    def features_of(self, answers: Places) -> NDArray[np.float32]:
        """The features of some answers, by number."""
        found: NDArray[np.float32] = self.header.layout.read_features(self.rows[self.places[answers]]).numpy()
        return found

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        """[n, A]: actions that could be taken; all where they are continuous."""
        return self.header.layout.read_valid(self.rows[self.places]).numpy()

    @cached_property
    def action(self) -> NDArray[Any]:
        """[n] int64, or [n, numbers] float32: the teacher's."""
        found: NDArray[Any] = self._column("action").astype(np.float32 if self.continuous else np.int64)
        return found

    @cached_property
    def identity(self) -> NDArray[np.int64]:
        """[n]: who answered, as a number."""
        return self._whole_numbers("identity")

    @cached_property
    def teacher(self) -> NDArray[np.str_]:
        """[n]: who answered, by name."""
        return np.array(self.teachers)[self.identity]

    @cached_property
    def distance(self) -> NDArray[np.float32]:
        """[n]: the reported distance; NaN where there was none."""
        found: NDArray[np.float32] = self._column("distance")
        return found

    @cached_property
    def iteration(self) -> NDArray[np.int64]:
        """[n]: of the run that asked."""
        return self._whole_numbers("iteration")

    @cached_property
    def episode(self) -> NDArray[np.int64]:
        """[n]: within the iteration."""
        return self._whole_numbers("episode")

    @cached_property
    def step(self) -> NDArray[np.int64]:
        """[n]: within the episode, from 0."""
        return self._whole_numbers("step")

    @cached_property
    def version(self) -> NDArray[np.int64]:
        """[n]: gradient steps that the agent had made when it asked."""
        return self._whole_numbers("version")

    @cached_property
    def executed(self) -> NDArray[np.bool_]:
        """[n]: the answer was executed."""
        return self._flagged(EXECUTED)

    @cached_property
    def held_out(self) -> NDArray[np.bool_]:
        """[n]: it is not learned from, to detect overfitting."""
        return self._flagged(VALIDATION)

    @cached_property
    def earlier(self) -> NDArray[np.bool_]:
        """[n]: it comes from an earlier run."""
        return self.places < self.header.before

    def _column(self, name: str) -> NDArray[Any]:
        return np.array(self.rows[name][self.places])

    def _whole_numbers(self, name: str) -> NDArray[np.int64]:
        return self._column(name).astype(np.int64)

    def _flagged(self, flag: int) -> NDArray[np.bool_]:
        return np.asarray(self._column("flags") & flag != 0, bool)

    def to_csv(self, path: str | Path, progress: Progress = lambda answers: None) -> Path:
        """Writes a table with a column for each feature. More than 50 features become one column of JSON."""
        from apil.runs.stored_export import write_csv

        return write_csv(self, Path(path), progress)

    def to_parquet(self, path: str | Path, progress: Progress = lambda answers: None) -> Path:
        """Writes a Parquet file with the features as a list in one column. Needs the extra `parquet`."""
        from apil.runs.stored_export import write_parquet

        return write_parquet(self, Path(path), progress)

    def to_minari(self, where: str | Path | None = None, progress: Progress = lambda answers: None) -> Path:
        """Writes a Minari dataset and returns its folder. Needs the extra `minari`.

        `where` is a dataset id or a folder; `<task>/answers-v0` if not given.
        """
        from apil.runs.stored_export import write_minari

        return write_minari(self, where, progress)


def answers(folder: str | Path) -> StoredAnswers:
    """All answers of a run so far, including those that it began with. The run may be finished, in training or killed.

    A corrected answer replaces the original.

    Examples:
        >>> trained = apil.train("grid", "twodifdetm", "dagger", iterations=50, folder="runs/demo")
        >>> found = apil.answers("runs/demo")
        >>> found.teachers
        ('first', 'last')
        >>> len(found.action) == len(found.features) == trained.rows[-1]["answers"]
        True
    """
    path = Path(folder)
    load_config(path)  # refuses what is no run
    header, rows = read_store(path)
    answered = rows["flags"] & ANSWERED != 0
    answered[corrected(rows, whole=header.whole)] = False
    return StoredAnswers(path, header, rows, np.flatnonzero(answered))
