"""The store of answers: rows as bytes, what is drawn, what is held out, and budgets of answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apil.errors import ApilError
from apil.learning.rows import ANSWERED, VALIDATION, Kind, RowFormat, Rows
from apil.learning.store import Shelf, Store, new_store
from apil.learning.trainer import Trainer
from apil.rng import Draws, Streams, Undropped
from apil.settings import LearnerSettings, RunSettings
from apil.types import Lessons

_BITS = RowFormat([(8, "bits")], 4, False)


def _values(kind: Kind, count: int, rows: int) -> torch.Tensor:
    luck = np.random.default_rng(0)
    if kind == "floats":
        return torch.from_numpy(luck.normal(size=(rows, count)).astype(np.float32))
    if kind == "bits":
        return torch.from_numpy(luck.integers(0, 2, (rows, count)).astype(np.float32))
    return torch.from_numpy(luck.integers(0, 256, (rows, count)).astype(np.float32) * np.float32(1 / 255))


def _rows(count: int, start: int = 0, layout: RowFormat = _BITS) -> Rows:
    """Answers whose step and distance are their number, each an episode of its own."""
    numbers = torch.arange(start, start + count)
    columns: dict[str, Any] = {"episode": numbers, "step": numbers, "distance": numbers.float()}
    columns |= {"flags": ANSWERED, "identity": numbers % 2}
    valid = torch.ones(count, layout.actions, dtype=torch.bool)
    return layout.write(columns, torch.zeros(count, layout.features), valid)


def _store(count: int, seeds: tuple[int, ...] = (0,), **settings: Any) -> Store:
    store = new_store(_BITS, 1, LearnerSettings(**settings), seeds)
    for shelf in store.shelves:
        shelf.add(_rows(count))
    return store


def _drawn(store: Store, batches: int) -> list[int]:
    """The numbers of the answers in so many batches of the first run."""
    streams = Streams(range(len(store.shelves)))
    return [each for number in range(batches) for each in _numbers(store, streams.draws("replay", number))[0].tolist()]


def _numbers(store: Store, luck: Draws, fresh: torch.Tensor | None = None) -> torch.Tensor:
    """[runs, replay]: the numbers of the answers in a batch."""
    return store.sample(luck, fresh)[0].distance[:, :, 0].long()


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize(
    "kinds",
    [
        [(11, "bits")],
        [(64 * 64 * 3, "bytes")],
        [(5, "floats")],
        [(3, "floats"), (9, "bits"), (6, "bytes")],
    ],
)
def test_rows_give_back_what_was_written(kinds: list[tuple[int, Kind]], continuous: bool) -> None:
    layout = RowFormat(kinds, 3, continuous)
    features = torch.cat([_values(kind, count, 20) for count, kind in kinds], 1)
    valid = torch.rand(20, 3) < 0.5
    action = torch.randn(20, 3) if continuous else torch.arange(20) % 3
    columns: dict[str, Any] = {"action": action, "distance": torch.rand(20), "identity": torch.arange(20), "step": 7}
    rows = layout.write(columns, features, valid)
    assert layout.sound(rows).all()
    assert torch.equal(layout.read_features(rows), features)
    assert torch.equal(layout.read_action(rows), action)
    assert torch.equal(layout.read_valid(rows), torch.ones_like(valid) if continuous else valid)
    assert rows["distance"].tolist() == columns["distance"].tolist()
    assert RowFormat.from_json(layout.to_json()).dtype == layout.dtype


def test_images_take_a_byte_a_number_and_bits_an_eighth() -> None:
    plain = RowFormat([(8, "bits")], 4, False).dtype.itemsize
    assert RowFormat([(80, "bits")], 4, False).dtype.itemsize == plain + 9
    assert RowFormat([(12_288, "bytes")], 4, False).dtype.itemsize == plain - 1 + 12_288


def test_features_that_are_not_what_the_task_says_are_refused() -> None:
    with pytest.raises(ApilError, match="Features 0 to 7 are no bits"):
        _BITS.write({}, torch.full((1, 8), 0.5), torch.ones(1, 4, dtype=torch.bool))


@given(st.integers(0, 19), st.integers(4, 28), st.integers(0, 7))
def test_a_flipped_bit_is_noticed(row: int, byte: int, bit: int) -> None:
    rows = _rows(20)
    content = rows.view(np.uint8).reshape(20, -1)
    content[row, byte] ^= 1 << bit
    assert (~_BITS.sound(rows)).nonzero()[0].tolist() == [row]


@pytest.mark.parametrize("value", [None, {}, {"features": [[1, "words"]], "actions": 1, "continuous": True}])
def test_what_describes_no_rows_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="does not describe its rows"):
        RowFormat.from_json(value or {"features": []})


def test_draws_are_uniform_over_all_answers() -> None:
    """20,000 draws over 50 answers: each count is binomial, and five standard deviations are never left."""
    counts = np.bincount(_drawn(_store(50, replay=100), 200), minlength=50)
    expected = 20_000 / 50
    assert counts.sum() == 20_000
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


def test_the_capacity_is_a_window_over_the_newest() -> None:
    drawn = _drawn(_store(500, replay=64, capacity=100), 50)
    assert min(drawn) == 400
    assert max(drawn) == 499


def test_a_recent_share_is_drawn_from_the_newest() -> None:
    """Half of a batch of 40 is of the newest 40; the other half of all 1,000, of which 4 % are among them."""
    drawn = np.array(_drawn(_store(1000, replay=40, recent=0.5), 250))
    newest = (drawn >= 960).mean()
    expected, spread = 0.5 + 0.5 * 0.04, np.sqrt(0.25 / len(drawn))
    assert abs(newest - expected) < 5 * spread


@pytest.mark.parametrize("count", [300, 6000])
def test_answers_are_drawn_by_how_far_they_are_trusted(count: int) -> None:
    """Those of teacher 1 a quarter as often; also where there are too many to weigh them all."""
    store = _store(count, replay=100, validation=0.1)
    store.weigh(0, lambda states, who: torch.where(who == 1, 0.25, 1.0).double())
    drawn = np.array(_drawn(store, 200))
    assert abs((drawn % 2).mean() - 0.2) < 5 * np.sqrt(0.16 / len(drawn))
    assert abs(drawn.mean() - count / 2) < 5 * count / np.sqrt(12 * len(drawn))
    assert not set(drawn.tolist()) & set(store.shelves[0].validation.table[:, 0].tolist())


def test_a_recent_share_is_drawn_from_the_newest_that_are_trusted() -> None:
    store = _store(1000, replay=40, recent=0.99)  # all 40 of a batch
    store.weigh(0, lambda states, who: (who == 0).double())
    assert set(_drawn(store, 100)) == set(range(960, 1000, 2))


def test_nothing_changes_while_no_teacher_is_known() -> None:
    store = _store(50, replay=32)
    before = _drawn(store, 3)
    store.weigh(0, lambda states, who: None)
    assert _drawn(store, 3) == before


def test_a_few_answers_fill_a_batch() -> None:
    assert set(_drawn(_store(3, replay=64, recent=0.25), 10)) == {0, 1, 2}


def test_without_fresh_answers_the_newest_are_drawn_no_more_than_others() -> None:
    store = _store(1000, seeds=(0, 1), replay=40, recent=0.5)
    fresh, idle = _numbers(store, Streams([0, 0]).draws("replay", 0), torch.tensor([True, False])).tolist()
    assert min(fresh[:20]) >= 960
    assert min(idle[:20]) < 500
    assert idle == _numbers(_store(1000, replay=40), Streams([0]).draws("replay", 0))[0].tolist()


def test_what_is_held_out_is_never_drawn() -> None:
    store = _store(200, replay=128, validation=0.1)
    held = store.shelves[0].validation.table[:, 0].tolist()
    assert len(held) == 20
    drawn = set(_drawn(store, 200))
    assert drawn == set(range(200)) - set(held)
    [(lessons, counts)] = store.held_out()
    assert counts.tolist() == [20]
    assert int(lessons.live.sum()) == 20


@given(st.integers(0, 2**31), st.lists(st.integers(1, 30), min_size=1, max_size=12))
def test_one_in_ten_is_held_out_and_two_of_twenty(seed: int, sizes: list[int]) -> None:
    """However they arrive: exactly one of each ten, so two from twenty answers on."""
    shelf = Shelf(_BITS, seed, 0.1, whole=False)
    for size in sizes:
        shelf.add(_rows(size, shelf.rows))
    held = shelf.validation.table[:, 0]
    full = shelf.rows // 10
    assert [int((held // 10 == block).sum()) for block in range(full)] == [1] * full
    assert full <= len(held) <= full + 1
    again = Shelf(_BITS, seed, 0.1, whole=False)
    again.add(_rows(shelf.rows))
    assert again.validation.table[:, 0].tolist() == held.tolist()


def test_what_is_recalled_is_what_was_added() -> None:
    shelf = Shelf(_BITS, 3, 0.1, whole=False)
    for start in range(0, 900, 90):
        shelf.add(_rows(90, start))
    again = Shelf(_BITS, 3, 0.1, whole=False, room=shelf.room)
    again.recall(900)
    assert (again.rows, again.answers) == (900, 900)
    assert np.array_equal(again.learned.table, shelf.learned.table)
    assert np.array_equal(again.validation.table, shelf.validation.table)
    assert _BITS.sound(again.room.array[:900]).all()


def test_whole_episodes_are_drawn_whole() -> None:
    shelf = Shelf(_BITS, 0, 0.0, whole=True)
    for iteration in range(4):
        rows = _rows(6)
        rows["iteration"] = iteration
        rows["episode"] = [0, 0, 0, 1, 1, 2]
        rows["step"] = [0, 1, 2, 0, 1, 0]
        rows["flags"][[1, 4]] = 0
        _BITS.seal(rows)
        shelf.add(rows)
    assert shelf.learned.table[:3].tolist() == [[0, 3], [3, 2], [5, 1]]
    again = Shelf(_BITS, 0, 0.0, whole=True, room=shelf.room)
    again.recall(24)
    assert np.array_equal(again.learned.table, shelf.learned.table)
    assert shelf.answers == again.answers == 16
    store = Store(_BITS, 4, LearnerSettings(replay=32), [shelf])
    lessons, _ = store.sample(Streams([0]).draws("replay", 0))
    lengths = lessons.live.sum(-1)
    assert set(lengths.flatten().tolist()) == {1, 2, 3}
    assert not bool((lessons.answered & ~lessons.live).any())
    assert bool(lessons.distance[~lessons.answered].isnan().all())


def test_everything_is_seen_once() -> None:
    store = new_store(_BITS, 1, LearnerSettings(replay=8, validation=0.1), [0, 1])
    for shelf, count in zip(store.shelves, (30, 7), strict=True):
        shelf.add(_rows(count))
    seen: list[Lessons] = list(store.everything())
    assert sum(part.live.sum((1, 2)) for part in seen).tolist() == [30, 7]  # type: ignore[union-attr]


def test_nothing_is_drawn_from_an_empty_store() -> None:
    store = new_store(_BITS, 1, LearnerSettings(replay=8, validation=0.1), [0, 1])
    store.shelves[1].add(_rows(5))
    lessons, some = store.sample(Streams([0, 1]).draws("replay", 0))
    assert some.tolist() == [False, True]
    assert lessons.answered.any(-1).any(-1).tolist() == [False, True]


_SMALL = {"iterations": 30, "batch": 4, "log_every": 5, "hidden": 8, "persona": 4, "models": 3, "encode": 8}
_LEARNS = {"replay": 16, "updates": 3, "validation": 0.1, "standardise": True, "recent": 0.25}


def _settings(query: str, seed: int, **more: Any) -> RunSettings:
    given = {"budget": 0.3} if query in ("apil", "intrun") else {"threshold": 0.4} if query == "random" else {}
    return RunSettings.of("maze", "twodifdetm", query, seed=seed, **{**_SMALL, **_LEARNS, **given, **more})


def test_a_run_gives_the_same_bits_alone_as_in_a_stack() -> None:
    runs = [_settings("dagger", 0), _settings("random", 1), _settings("apil", 2, answer_budget=90), _settings("bc", 3)]
    runs.append(_settings("random", 4).changed(threshold=0.0))  # nothing to learn from
    stack = Trainer(runs)
    stack.train()
    for place, run in enumerate(runs):
        alone = Trainer([run])
        alone.train()
        assert alone.rows[0] == stack.rows[place]
        assert alone.store is not None
        assert stack.store is not None
        own, among = alone.store.shelves[0], stack.store.shelves[place]
        assert own.rows == among.rows
        assert own.room.array[: own.rows].tobytes() == among.room.array[: own.rows].tobytes()


def test_budgets_are_spent_exactly_and_runs_end_by_themselves() -> None:
    """Several rules and budgets in one stack, one without."""
    budgets = {"dagger": 57, "bc": 130, "random": 21, "apil": 33, "intrun": None, "always": 1}
    runs = [
        _settings(query, seed, answer_budget=budget, iterations=400)
        for seed, (query, budget) in enumerate(budgets.items())
    ]
    trainer = Trainer(runs)
    trainer.train()
    answers = [trainer.answers(run) for run in range(len(runs))]
    assert [own for own, budget in zip(answers, budgets.values(), strict=True) if budget] == [57, 130, 21, 33, 1]
    assert trainer.store is not None
    assert [shelf.answers for shelf in trainer.store.shelves] == answers
    assert trainer.running == [budget is None for budget in budgets.values()]
    ends = [rows[-1]["iteration"] for rows in trainer.rows]
    assert ends[4] == 400
    assert all(end < 400 for end in ends[:4])


def test_the_loss_on_held_out_answers_is_that_of_the_weights_that_will_act() -> None:
    trainer = Trainer([_settings("dagger", 0, average=0.9, iterations=5)])
    trainer.train()
    ((lessons, counts),) = trainer.store.held_out()  # type: ignore[union-attr]

    def loss() -> float:
        with torch.no_grad():
            return float(trainer.agents.model.losses(lessons, Undropped(1))[0] * lessons.live.shape[1] / counts)

    of_last = loss()
    trainer.trained_agents()
    of_average = loss()
    assert trainer.rows[0][-1]["validation_loss"] == pytest.approx(of_average)
    assert of_last != pytest.approx(of_average)


def test_held_out_rows_are_marked_for_good() -> None:
    trainer = Trainer([_settings("dagger", 0)])
    trainer.train()
    assert trainer.store is not None
    shelf = trainer.store.shelves[0]
    flags = shelf.room.array["flags"][: shelf.rows]
    assert np.flatnonzero(flags & VALIDATION).tolist() == shelf.validation.table[:, 0].tolist()
    assert abs(shelf.validation.count - shelf.answers / 10) <= 1
