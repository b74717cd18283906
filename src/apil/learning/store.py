"""The store of answers (D in the paper): the only way from asking to learning, where there is replay.

Every answer is appended once and drawn many times. What is drawn is an answer by itself or, for models that remember
the steps before, the episode that it belongs to, up to its last answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import RLock
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apil.learning.rows import ANSWERED, CORRECTION, EXECUTED, VALIDATION, RowFormat, Rows
from apil.learning.walk import Question
from apil.rng import Draws, stream_key
from apil.settings import LearnerSettings
from apil.teachers.protocol import Kept
from apil.types import Answer, Episodes, Lessons

_FIRST = 256
"""Rows that a new shelf has room for."""
_VALIDATED = 512
"""Answers or episodes, the newest of those held out, that the validation loss is taken over."""


_NUMBERS = 2**22
"""Features that are looked at together where all answers are."""


class Room(Protocol):
    """Where the rows of one run are: in memory, or in a file that is mapped into it."""

    array: Rows
    """[capacity] records."""

    def grow(self, rows: int) -> None:
        """Makes room for `rows` rows at least, and for some to come; those that are there stay."""


class Memory:
    """Room in memory."""

    def __init__(self, layout: RowFormat) -> None:
        self.array: Rows = np.zeros(_FIRST, layout.dtype)

    def grow(self, rows: int) -> None:
        larger = np.zeros(max(rows, 2 * len(self.array)), self.array.dtype)
        larger[: len(self.array)] = self.array
        self.array = larger


class _Index:
    """Growing lists of where things are: the first row and the number of rows of each."""

    def __init__(self) -> None:
        self._table = np.zeros((_FIRST, 2), np.int64)
        self.count = 0

    def add(self, found: NDArray[np.int64]) -> None:
        """[n, 2]"""
        while self.count + len(found) > len(self._table):
            self._table = np.concatenate([self._table, np.zeros_like(self._table)])
        self._table[self.count : self.count + len(found)] = found
        self.count += len(found)

    @property
    def table(self) -> NDArray[np.int64]:
        """[count, 2]"""
        return self._table[: self.count]


class Shelf:
    """The answers of one run."""

    def __init__(
        self, layout: RowFormat, seed: int, validation: float, *, whole: bool, room: Room | None = None
    ) -> None:
        """`whole` episodes are drawn, or answers by themselves; a share `validation` of them is held out."""
        self._layout, self._seed, self._whole = layout, seed, whole
        self._every = round(1.0 / validation) if validation else 0
        self.room: Room = Memory(layout) if room is None else room
        self.rows = 0
        """Rows so far."""
        self.answers = 0
        """Answers so far, those held out included."""
        self.learned, self.validation = _Index(), _Index()
        self.trust: NDArray[np.float64] | None = None
        """[n + 1]: the sum of how far the first answers to learn from are trusted; None where all are drawn alike."""
        self.weighed = 0
        """The answers that there were then."""

    def add(self, rows: Rows) -> None:
        """Appends rows; those of an episode follow each other. Decides which are held out, and marks them."""
        units = self._units(rows, self.rows)
        if self._every:
            number = self.learned.count + self.validation.count
            held = np.array([self._is_held_out(number + at) for at in range(len(units))], bool)
            self._mark(rows, units[held] - [self.rows, 0])
        if self.rows + len(rows) > len(self.room.array):
            self.room.grow(self.rows + len(rows))
        self.room.array[self.rows : self.rows + len(rows)] = rows
        self._count(rows, units)

    def find(self, kept: Kept) -> int | None:
        """The row of an answer, the newest if it was corrected; None where it is not here."""
        rows = self.room.array[: self.rows]
        places = np.flatnonzero(
            (rows["iteration"] == kept.iteration)
            & (rows["episode"] == kept.episode)
            & (rows["step"] == kept.step)
            & (rows["identity"] == kept.identity)
            & (rows["flags"] & ANSWERED != 0)
        )
        return int(places[-1]) if len(places) else None

    def correct(self, row: int, kept: Kept) -> None:
        """Appends a correction of the answer in a row, with its episode where whole ones are kept.

        From now on it is drawn in place of what it corrects.
        """
        first, length = self._unit_of(row)
        copy = self.room.array[first : first + length].copy()
        copy["flags"] |= CORRECTION
        own = copy[row - first : row - first + 1]
        own["action"], own["distance"] = kept.action.numpy(), kept.distance
        self._layout.seal(copy)
        if self.rows + length > len(self.room.array):
            self.room.grow(self.rows + length)
        self.room.array[self.rows : self.rows + length] = copy
        self._count(copy, np.array([[self.rows, length]], np.int64))

    def _unit_of(self, row: int) -> tuple[int, int]:
        """First row and length of what is drawn with a row."""
        for index in (self.learned, self.validation):
            table = index.table
            places = np.flatnonzero((table[:, 0] <= row) & (row < table[:, 0] + table[:, 1]))
            if len(places):
                return int(table[places[0], 0]), int(table[places[0], 1])
        raise AssertionError("a row that counts is drawn")

    def trusted(self, luck: NDArray[np.float32], window: NDArray[np.int64]) -> NDArray[np.int64]:
        """[n]: which of the newest `window` [n] answers to learn from are drawn, by how far each is trusted."""
        assert self.trust is not None
        count = len(self.trust) - 1
        oldest = np.maximum(count - window, 0)
        first = self.trust[oldest]
        found = np.searchsorted(self.trust, first + luck * (self.trust[-1] - first), side="right") - 1
        drawn: NDArray[np.int64] = np.clip(found, oldest, count - 1)
        return drawn

    def recall(self, count: int) -> None:
        """Adopts `count` rows that are already in place."""
        rows = self.room.array[:count]
        self._count(rows, self._units(rows, 0))

    def _count(self, rows: Rows, units: NDArray[np.int64]) -> None:
        flags = rows["flags"][units[:, 0] - self.rows]
        held, corrects = (flags & VALIDATION) != 0, (flags & CORRECTION) != 0
        self.learned.add(units[~held & ~corrects])
        self.validation.add(units[held & ~corrects])
        for unit in units[corrects]:
            old = replaced(self.room.array, unit, whole=self._whole)
            for index in (self.learned, self.validation):
                index.table[index.table[:, 0] == old] = unit
        self.answers += int(np.count_nonzero((rows["flags"] & ANSWERED != 0) & (rows["flags"] & CORRECTION == 0)))
        self.rows += len(rows)

    def _units(self, rows: Rows, start: int) -> NDArray[np.int64]:
        """[n, 2]: first row, counted from `start`, and length of all that can be drawn."""
        if not self._whole:
            places = np.flatnonzero(rows["flags"] & ANSWERED)
            return np.stack([places + start, np.ones_like(places)], -1)
        key, step = rows["iteration"].astype(np.int64) * 2**32 + rows["episode"], rows["step"].astype(np.int64)
        starts = (key[1:] != key[:-1]) | (step[1:] <= step[:-1])
        first = np.flatnonzero(np.concatenate([[True], starts])) if len(rows) else np.zeros(0, np.int64)
        return np.stack([first + start, np.diff(np.append(first, len(rows)))], -1)

    def _is_held_out(self, number: int) -> bool:
        """One of every so many, drawn: from twice as many on there are always two."""
        block, place = divmod(number, self._every)
        return stream_key(self._seed, f"validation/{block}") % self._every == place

    def _mark(self, rows: Rows, units: NDArray[np.int64]) -> None:
        for first, length in units.tolist():
            own = rows[first : first + length]
            own["flags"] |= VALIDATION
            self._layout.seal(own)


def replaced(rows: Rows, unit: NDArray[np.int64], *, whole: bool) -> int:
    """The first row of what a correction takes the place of; `unit` is its own first row and length."""
    first = int(unit[0])
    own, before = rows[first], rows[:first]
    same = (before["iteration"] == own["iteration"]) & (before["episode"] == own["episode"])
    same &= before["step"] == own["step"]
    if not whole:
        same &= before["identity"] == own["identity"]
    return int(np.flatnonzero(same)[-1])


def corrected(rows: Rows, *, whole: bool) -> NDArray[np.int64]:
    """The rows that corrections have taken the place of; of whole episodes all that come before the correction."""
    found = [np.zeros(0, np.int64)]
    for row in np.flatnonzero(rows["flags"] & CORRECTION).tolist():
        old = replaced(rows, np.array([row, 1]), whole=whole)
        found.append(np.array([old]))
    return np.concatenate(found)


class Store:
    """The answers of a stack of runs, a shelf for each."""

    def __init__(self, layout: RowFormat, horizon: int, settings: LearnerSettings, shelves: Sequence[Shelf]) -> None:
        """`horizon` is T where whole episodes are drawn, and 1 where answers are."""
        self.shelves = shelves
        self._layout, self._horizon = layout, horizon
        self.whole_episodes = horizon > 1
        """Whole episodes are drawn, and not answers by themselves."""
        self._settings = settings
        self.lock = RLock()
        """Held while rows are appended or drawn: `put` may be called from other threads."""

    def put(self, question: Question, answer: Answer, version: int, executes: bool) -> None:
        """Appends the answer to a question of one episode of one run, if it was given."""
        given = question.put if answer.given is None else question.put & answer.given
        if not bool(given.any()):
            return
        columns: dict[str, Tensor | int] = {
            "iteration": question.iteration,
            "step": question.t,
            "version": version,
            "identity": answer.identity[given],
            "distance": answer.distance[given],
            "action": answer.action[given],
            "flags": ANSWERED | EXECUTED * int(executes),
        }
        rows = self._layout.write(columns, question.seen.features[given], question.seen.valid[given])
        with self.lock:
            self.shelves[0].add(rows)

    def put_kept(self, kept: Kept) -> None:
        """Appends an answer that no walk waits for; of one run, where answers are drawn by themselves."""
        columns: dict[str, Tensor | int] = {
            "iteration": kept.iteration,
            "episode": kept.episode,
            "step": kept.step,
            "version": kept.version,
            "identity": kept.identity,
            "distance": torch.tensor([kept.distance]),
            "action": kept.action.unsqueeze(0),
            "flags": ANSWERED,
        }
        rows = self._layout.write(columns, kept.features.unsqueeze(0), kept.valid.unsqueeze(0))
        with self.lock:
            self.shelves[0].add(rows)

    def add(self, episodes: Episodes, iteration: int, version: int, executes: Tensor) -> None:
        """Appends the answers of a batch of episodes; of episodes that are drawn whole, all steps up to the last.

        `version` is the number of gradient steps before them; `executes` [runs] bool: answers are executed.
        """
        kept = episodes.answered
        if self._horizon > 1:
            # What follows the last answer of an episode changes no loss.
            kept = episodes.live & kept.flip(-1).cummax(-1).values.flip(-1)
        for run, shelf in enumerate(self.shelves):
            episode, step = kept[run].nonzero(as_tuple=True)
            if len(episode):
                where = (run, episode, step)
                flags = episodes.answered[where].byte() * (ANSWERED | EXECUTED * int(executes[run]))
                columns: dict[str, Tensor | int] = {
                    "iteration": iteration,
                    "episode": episode,
                    "step": step,
                    "version": version,
                    "identity": episodes.identity[where],
                    "distance": episodes.distance[where],
                    "action": episodes.action[where],
                    "flags": flags,
                }
                rows = self._layout.write(columns, episodes.features[where], episodes.valid_actions[where])
                shelf.add(rows)

    def sample(self, draws: Draws, fresh: Tensor | None = None) -> tuple[Lessons, Tensor]:
        """A batch of each run to learn from, and [runs] bool: there was something to draw.

        `fresh` [runs] bool: answers still come in; all runs if None. Where none do, the newest would be learned by
        heart: nothing is drawn from them apart.
        """
        with self.lock:
            return self._sample(draws, fresh)

    def _sample(self, draws: Draws, fresh: Tensor | None) -> tuple[Lessons, Tensor]:
        size = self._settings.replay
        luck = draws.uniform(size).numpy()
        counts = np.array([shelf.learned.count for shelf in self.shelves])
        window = np.minimum(counts, self._settings.capacity)[:, None].repeat(size, 1)
        recent = np.arange(size) < round(self._settings.recent * size)
        if fresh is not None:
            recent = recent & fresh.numpy()[:, None]
        window = np.where(recent, np.minimum(window, size), window)
        chosen = counts[:, None] - 1 - np.minimum((luck * window).astype(np.int64), window - 1)
        for run, shelf in enumerate(self.shelves):
            if shelf.trust is not None and len(shelf.trust) > 1:
                chosen[run] = shelf.trusted(luck[run], window[run])
        units = [
            shelf.learned.table[own] if shelf.learned.count else _NONE.repeat(size, 0)
            for shelf, own in zip(self.shelves, chosen, strict=True)
        ]
        return self._lessons(np.stack(units)), torch.from_numpy(counts > 0)

    def held_out(self) -> Iterator[tuple[Lessons, Tensor]]:
        """The newest of what is not learned from, and [runs]: how many of each run there are, 0 for a run that has none
        or comes in another batch.

        A batch is as large as the next power of two, whatever else is in the stack: sums over other sizes would differ
        in their last digits.
        """
        counts = np.array([min(shelf.validation.count, _VALIDATED) for shelf in self.shelves])
        sizes = np.array([1 << max(0, int(count) - 1).bit_length() for count in counts])
        for size in np.unique(sizes[counts > 0]).tolist():
            chosen = np.where(sizes == size, counts, 0)
            units = [
                np.concatenate(
                    [shelf.validation.table[shelf.validation.count - count :], _NONE.repeat(size - count, 0)]
                )
                for shelf, count in zip(self.shelves, chosen.tolist(), strict=True)
            ]
            yield self._lessons(np.stack(units)), torch.from_numpy(chosen)

    def weigh(self, run: int, trust: Callable[[Tensor, Tensor], Tensor | None]) -> None:
        """Sets how far each answer of a run is trusted. `trust` is given the states [n, F] and who answered [n].

        Of very many answers it is asked about the newest; those before count as those of the same teacher do there.
        """
        with self.lock:
            shelf = self.shelves[run]
            if shelf.weighed == shelf.answers:
                return
            rows = shelf.room.array[shelf.learned.table[:, 0]]
            newest, who = rows[-_WEIGHED:], torch.from_numpy(rows["identity"].astype(np.int64))
            found = trust(self._layout.read_features(newest), who[-_WEIGHED:])
            if found is None:
                return
            if len(found) < len(rows):
                total, count = (torch.zeros(int(who.max()) + 1, dtype=found.dtype) for _ in range(2))
                total.index_add_(0, who[-_WEIGHED:], found)
                count.index_add_(0, who[-_WEIGHED:], torch.ones_like(found))
                found = torch.cat([(total / count.clamp_min(1.0))[who[:-_WEIGHED]], found])
            shelf.weighed = shelf.answers
            shelf.trust = np.concatenate([[0.0], found.numpy().cumsum()])

    def everything(self) -> Iterator[Lessons]:
        """All there is, learned from or held out, in batches of bounded size."""
        tables = [np.concatenate([shelf.learned.table, shelf.validation.table]) for shelf in self.shelves]
        size = max(1, _NUMBERS // (self._layout.features * self._horizon * len(tables)))
        for start in range(0, max(map(len, tables)), size):
            parts = [table[start : start + size] for table in tables]
            longest = max(map(len, parts))
            yield self._lessons(np.stack([np.concatenate([own, _NONE.repeat(longest - len(own), 0)]) for own in parts]))

    def _lessons(self, units: NDArray[np.int64]) -> Lessons:
        """What is learned from `units` [runs, n, 2]: first row and length of each, 0 for none."""
        time = np.arange(self._horizon)
        live = time < units[..., 1:]
        places = units[..., :1] + np.minimum(time, np.maximum(units[..., 1:] - 1, 0))
        rows = np.stack([shelf.room.array[own] for shelf, own in zip(self.shelves, places, strict=True)])
        answered = torch.from_numpy((rows["flags"] & ANSWERED != 0) & live)
        action = self._layout.read_action(rows)
        return Lessons(
            features=self._layout.read_features(rows),
            state=None,
            valid_actions=self._layout.read_valid(rows),
            answered=answered,
            action=action,
            distance=torch.from_numpy(np.where(answered, rows["distance"], np.float32(np.nan))),
            identity=torch.from_numpy(np.where(answered, rows["identity"], 0).astype(np.int64)),
            live=torch.from_numpy(live),
        )


_WEIGHED = 4_096
"""Answers that are weighed one by one, where not all count alike."""
_NONE: NDArray[np.int64] = np.zeros((1, 2), np.int64)


def new_store(
    layout: RowFormat, horizon: int, settings: LearnerSettings, seeds: Sequence[int], rooms: Sequence[Any] | None = None
) -> Store:
    """An empty store; its rows are in memory unless `rooms` are given. `horizon` as in `Store`."""
    shelves = [
        Shelf(layout, seed, settings.validation, whole=horizon > 1, room=None if rooms is None else rooms[run])
        for run, seed in enumerate(seeds)
    ]
    return Store(layout, horizon, settings, shelves)
