"""check_task is quiet about every registered task, and names each thing that is wrong with a broken one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import apil
from apil.errors import ApilError
from apil.rng import Draws
from apil.tasks import TASKS
from apil.tasks.grid import Grid
from apil.tasks.maze import Maze, MazeState
from apil.types import Observation, Reference


@pytest.mark.parametrize("name", [entry.name for entry in TASKS if not entry.own])
def test_every_registered_task_is_sound(name: str) -> None:
    factory = TASKS.load(name)
    try:
        task = factory()
    except ApilError as error:
        pytest.skip(f"needs data that is not here: {error}")
    apil.check_task(task)


class _Maze(Maze):
    """A maze with one method changed."""

    def __init__(self, method: str, change: Callable[..., Any], **settings: Any) -> None:
        super().__init__(**settings)
        sound = getattr(self, method)
        setattr(self, method, lambda *arguments: change(sound, *arguments))


def _seen(change: Callable[[Observation], Observation]) -> Callable[..., Observation]:
    return lambda sound, state: change(sound(state))


def _oracle(change: Callable[[Reference], Reference]) -> Callable[..., Reference]:
    return lambda sound, state: change(sound(state))


def _raises(sound: Any, *arguments: Any) -> Any:
    raise RuntimeError("no fuel\nat all")


def _moves_on(sound: Any, state: MazeState, action: Tensor) -> MazeState:
    """Episodes that have ended leave the goal again."""
    after: MazeState = sound(state, action)
    return MazeState(torch.where(state.cell == state.goal, 0, after.cell), after.goal)


def _global_luck(sound: Any, draws: Draws, episodes: int) -> MazeState:
    state: MazeState = sound(draws, episodes)
    other = torch.randint(state.cell.shape[1], state.cell.shape)
    return MazeState(state.cell.gather(1, other), state.goal)


def _numpy_luck(sound: Any, draws: Draws, episodes: int) -> Any:
    np.random.random()  # noqa: NPY002 (the fault)
    return sound(draws, episodes)


def _first_run_counts(sound: Any, draws: Draws, episodes: int) -> MazeState:
    state: MazeState = sound(draws, episodes)
    return MazeState(state.cell[:1].expand_as(state.cell), state.goal)


def _nothing_valid(seen: Observation) -> Observation:
    return Observation(seen.features, torch.zeros_like(seen.valid))


_FAULTS: list[tuple[str, Callable[..., Any], str]] = [
    (
        "observe",
        _seen(lambda o: Observation(o.features[..., :5], o.valid)),
        r"features is \[2, 6, 5\] torch.float32, expected a tensor \[2, 6, 152\]",
    ),
    (
        "observe",
        _seen(lambda o: Observation(o.features.double(), o.valid)),
        r"float64, expected a tensor \[2, 6, 152\] torch.float32",
    ),
    (
        "observe",
        _seen(lambda o: Observation(o.features, o.valid.long())),
        "observe: valid is .*int64, expected .* torch.bool",
    ),
    ("observe", _seen(lambda o: Observation(o.features / 0, o.valid)), "features at step 0 are not finite"),
    ("observe", _seen(_nothing_valid), "allows no action at all"),
    ("observe", _seen(lambda o: o.features), "observe returned Tensor, expected an Observation"),  # type: ignore[arg-type, return-value]
    ("observe", _raises, "observe raised RuntimeError: no fuel"),
    ("step", _raises, "step raised RuntimeError: no fuel"),
    ("step", _moves_on, "changes the features of an episode that had ended"),
    ("step", _moves_on, "continues an episode that had ended"),
    ("reset", _global_luck, "reset is not the same with the same draws"),
    ("reset", _global_luck, "touches global random state"),
    ("reset", _numpy_luck, "touches global random state"),
    ("reset", _first_run_counts, "not the same alone as beside another run"),
    ("distance", lambda sound, state: sound(state) - 30, "distance at step 0 is -.*, expected a number from 0 up"),
    ("distance", lambda sound, state: sound(state) * torch.nan, "distance at step 0 is nan"),
    ("distance", lambda sound, state: sound(state) + 1e-6, "misses success .* by less than 0.0001"),
    ("distance", lambda sound, state: sound(state)[0], r"distance is \[6\] torch.float32, expected a tensor \[2, 6\]"),
    ("done", lambda sound, state: sound(state).float(), "done is .*float32, expected .* torch.bool"),
    ("reference", _oracle(lambda r: replace(r, distance=r.distance + 1)), "distance at step 0 is not that of distance"),
    ("reference", _oracle(lambda r: replace(r, count=r.count * 0)), "count at step 0 is outside of 1 to 4"),
    ("reference", _oracle(lambda r: replace(r, count=r.count * 0 + 4)), "include one that is not valid"),
    (
        "reference",
        _oracle(lambda r: replace(r, actions=r.actions * 0 + r.actions[..., :1], count=r.count * 0 + 2)),
        "name an action twice",
    ),
    ("reference", _oracle(lambda r: replace(r, actions=r.actions.float())), "reference: actions is .*float32"),
    ("describe", lambda sound, *place: "two\nlines", "expected one line of text"),
    ("picture", lambda sound, *place: "a board", "picture returned str, expected a Picture"),
]


@pytest.mark.parametrize(("method", "change", "message"), _FAULTS)
def test_each_fault_is_named(method: str, change: Callable[..., Any], message: str) -> None:
    with torch.random.fork_rng(), pytest.raises(ApilError, match=message) as caught:
        apil.check_task(_Maze(method, change))
    assert str(caught.value).startswith("Task 'maze' has ")
    assert "\n" not in str(caught.value)


def test_all_faults_are_told_at_once() -> None:
    task: Any = Maze()
    task.horizon, task.action_names, task.success_distance = 0, ("up",), -1.0
    with pytest.raises(ApilError) as caught:
        apil.check_task(task)
    told = str(caught.value)
    assert told.startswith("Task 'maze' has 3 problems: (1) horizon is 0, expected a whole number from 1 up; (2) ")
    assert "expected a tuple of 4 words" in told
    assert "success_distance is -1.0" in told


def test_a_task_that_writes_into_what_it_showed_is_found() -> None:
    class Reuses(Maze):
        """Hands out the same tensor at every step."""

        shown: Tensor | None = None

        def observe(self, state: MazeState) -> Observation:
            seen = super().observe(state)
            if self.shown is None or self.shown.shape != seen.features.shape:
                self.shown = seen.features.clone()
            self.shown.copy_(seen.features)
            return Observation(self.shown, seen.valid)

        def step(self, state: MazeState, action: Tensor) -> MazeState:
            after = super().step(state, action)
            self.observe(after)
            return after

    with pytest.raises(ApilError, match="changes what was observed before it"):
        apil.check_task(Reuses())


def _moved(seen: Observation, by: int) -> Observation:
    assert seen.place is not None
    return replace(seen, place=seen.place + by)


@pytest.mark.parametrize(
    ("method", "change", "message"),
    [
        ("observe", _seen(lambda o: replace(o, place=None)), r"observe: place is NoneType, expected a tensor \[2, 6\]"),
        ("observe", _seen(lambda o: _moved(o, 1)), "not what states\\(\\) has at its place"),
        ("observe", _seen(lambda o: _moved(o, 25)), "place at step 0 is outside of 0 to n - 1"),
        ("states", lambda sound: None, "states returned something else than an Observation"),
    ],
)
def test_faults_of_a_task_that_numbers_its_states_are_named(
    method: str, change: Callable[..., Any], message: str
) -> None:
    task: Any = Grid()
    sound = getattr(task, method)
    setattr(task, method, lambda *given: change(sound, *given))
    with pytest.raises(ApilError, match=message):
        apil.check_task(task)
