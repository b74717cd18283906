"""Answers that reach a store outside of walks, and corrections of what is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from apil.learning.reception import Reception
from apil.learning.rows import RowFormat
from apil.learning.store import Memory, Store, new_store
from apil.rng import Streams
from apil.settings import LearnerSettings
from apil.teachers.protocol import Kept

LAYOUT = RowFormat([(3, "floats")], 4, False)


def store(room: Memory | None = None) -> Store:
    return new_store(LAYOUT, 1, LearnerSettings(replay=64), [0], None if room is None else [room])


def kept(place: int, action: int, kind: Any = "live", identity: int = 0) -> Kept:
    features = torch.tensor([float(place), 0.0, 1.0])
    valid = torch.ones(4, dtype=torch.bool)
    return Kept(f"q{place}", kind, place, 0, 2, 7, features, valid, identity, torch.tensor(action), 1.5)


def drawn(full: Store) -> set[tuple[float, int]]:
    """Place and action of all that a large batch draws."""
    lessons, _ = full.sample(Streams([0]).draws("replay", 0))
    return set(zip(lessons.features[0, :, 0, 0].tolist(), lessons.action[0, :, 0].tolist(), strict=True))


class Desk:
    """A desk with these answers kept."""

    frames = version = first_walk = reviews = 0

    def __init__(self, *answers: Kept) -> None:
        self.answers = list(answers)

    def seat(self, members: Any) -> None: ...

    def open(self, folder: Path | None, task: Any) -> None: ...

    def counted(self) -> list[Kept]:
        return self.answers

    def listen(self, take: Callable[[Kept | None], None], grant: Callable[[int], int] | None = None) -> None: ...

    def final(self, iteration: int, distance: Tensor) -> Tensor:
        return distance

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


def reception(full: Store, *answers: Kept, walks: bool = True) -> tuple[Reception, list[Kept]]:
    noted: list[Kept] = []
    made = Reception(
        Desk(*answers), full, walks=walks, note=noted.append, reserve=lambda count: count, release=lambda: None
    )
    return made, noted


def test_what_the_store_lacks_is_taken_in_once() -> None:
    full = store()
    first, second = kept(1, 0), kept(2, 3)
    full.put_kept(first)
    made, noted = reception(full, first, second)
    made.recover()
    made.recover()
    assert drawn(full) == {(1.0, 0), (2.0, 3)}
    assert noted == [second]
    assert full.shelves[0].answers == 2


def test_a_correction_is_drawn_in_place_of_what_it_corrects_also_when_the_store_is_read_again() -> None:
    room = Memory(LAYOUT)
    full = store(room)
    for place in range(5):
        full.put_kept(kept(place, 0))
    made, _ = reception(full)
    made.take(kept(3, 2, "correction"))
    made.take(kept(3, 1, "correction"))
    expected = {(0.0, 0), (1.0, 0), (2.0, 0), (3.0, 1), (4.0, 0)}
    assert drawn(full) == expected
    assert full.shelves[0].answers == 5
    again = store(room)
    again.shelves[0].recall(full.shelves[0].rows)
    assert drawn(again) == expected
    assert again.shelves[0].answers == 5
    assert LAYOUT.sound(room.array[: full.shelves[0].rows]).all()


def test_a_correction_that_comes_before_what_it_corrects_waits_for_it() -> None:
    full = store()
    made, _ = reception(full)
    made.take(kept(1, 3, "correction"))
    assert full.shelves[0].rows == 0
    full.put_kept(kept(1, 0))
    assert made.new() == 0
    assert drawn(full) == {(1.0, 3)}


def test_a_review_by_another_teacher_is_an_answer_of_its_own() -> None:
    full = store()
    full.put_kept(kept(1, 0))
    made, _ = reception(full)
    made.take(kept(1, 2, "review", identity=1))
    assert drawn(full) == {(1.0, 0), (1.0, 2)}
    assert made.new() == 1


def test_walks_that_are_walked_again_ask_again_and_only_corrections_are_taken_in() -> None:
    full = store()
    full.put_kept(kept(1, 0))
    made, _ = reception(full, replace(kept(1, 2), kind="live"), kept(2, 1), walks=False)
    made.recover()
    assert drawn(full) == {(1.0, 2)}


def test_a_corrected_episode_is_drawn_whole_with_its_correction() -> None:
    full = new_store(LAYOUT, 4, LearnerSettings(replay=16), [0])
    rows = np.zeros(3, LAYOUT.dtype)
    rows["iteration"], rows["step"], rows["flags"], rows["action"] = 5, [0, 1, 2], [1, 0, 1], [1, 0, 1]
    LAYOUT.seal(rows)
    full.shelves[0].add(rows)
    made, _ = reception(full, walks=False)
    made.take(replace(kept(5, 3, "correction"), step=2))
    lessons, _ = full.sample(Streams([0]).draws("replay", 0))
    assert lessons.action[0, 0].tolist()[:3] == pytest.approx([1, 0, 3])
    assert lessons.live[0, 0].tolist() == [True, True, True, False]
    assert full.shelves[0].answers == 2
