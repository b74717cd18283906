"""Answers of people that reach a run outside of its walks: after a kill, as a review, or as a correction."""

from __future__ import annotations

from collections.abc import Callable

from apil.learning.store import Store
from apil.teachers.protocol import Desk, Kept


class Reception:
    """Takes answers from a desk into the store of one run, each exactly once."""

    def __init__(
        self,
        desk: Desk,
        store: Store,
        *,
        walks: bool,
        note: Callable[[Kept], None],
        reserve: Callable[[int], int],
        release: Callable[[], None],
    ) -> None:
        """`walks` are in flight: they are not walked again after a stop, and answers are drawn by themselves.

        `note` writes an answer down elsewhere. `reserve` gives as many of so many answers as the budget still has,
        `release` gives one back.
        """
        self._desk, self._store, self._walks = desk, store, walks
        self._note, self._reserve, self._release = note, reserve, release
        self._early: list[Kept] = []
        """Corrections of answers that are still on their way to the store."""
        self._new = 0

    def recover(self) -> None:
        """Adds the answers from before a stop that the store lacks."""
        for kept in self._desk.counted():
            with self._store.lock:
                self._taken(kept, recovered=True)

    def listen(self) -> None:
        """From now on takes in what comes."""
        self._new = 0
        self._desk.listen(self.take, self._reserve if self._walks else None)

    def take(self, kept: Kept | None) -> None:
        """An answer that no walk waits for, or None for a review that stays without one."""
        if kept is None:
            self._release()
            return
        with self._store.lock:
            before = self._new
            if not self._taken(kept) and kept.kind == "correction":
                self._early.append(kept)
            there = self._new == before
        if kept.kind == "review" and there:  # it came between the count of reviews and the look at what is kept
            self._release()

    def _taken(self, kept: Kept, *, recovered: bool = False) -> bool:
        """Whether an answer is in the store now."""
        shelf = self._store.shelves[0]
        row = shelf.find(kept)
        if row is not None:
            if shelf.room.array[row]["action"].tolist() != kept.action.tolist():
                shelf.correct(row, kept)
                self._note(kept)
            return True
        # Walks that are walked again will ask again, and get the answer that is there.
        if not self._walks or (kept.kind == "correction" and not recovered):
            return False
        self._store.put_kept(kept)
        self._note(kept)
        self._new += 1
        return True

    def new(self) -> int:
        """Answers that were taken in since the last time. Tries again to correct what was not in the store yet."""
        with self._store.lock:
            early, self._early = self._early, []
            self._early = [kept for kept in early if not self._taken(kept)]
            new, self._new = self._new, 0
            return new
