"""What people are shown: the last states of every episode as pictures."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from apil.learning.group import Group
from apil.tasks.protocol import Task
from apil.teachers.protocol import Teacher, desk_of
from apil.types import Belief, Picture, Scene


class Film:
    """The last states of a batch of episodes.

    Pictures are drawn by the walk itself: an environment may refuse to draw in another thread.
    """

    def __init__(self, task: Task[Any], frames: int) -> None:
        self._task, self._frames = task, frames
        self._last: dict[tuple[int, int], deque[Picture]] = {}

    def add(self, state: Any, live: Tensor) -> None:
        """The states at a step, of the episodes that are `live` [runs, episodes]."""
        for run, episode in live.nonzero().tolist():
            last = self._last.setdefault((run, episode), deque(maxlen=self._frames))
            last.append(self._task.picture(state, run, episode))

    def scene(self, iteration: int, step: int, belief: Belief, put: Tensor) -> Scene:
        """The scene of a step, for the episodes `put` [runs, episodes]."""
        runs, episodes = put.shape
        asked = put.tolist()
        pictures = tuple(
            tuple(tuple(self._last[run, episode]) if asked[run][episode] else () for episode in range(episodes))
            for run in range(runs)
        )
        return Scene(iteration, step, pictures, belief.mean)


def film_of(teachers: Iterable[Group[Teacher]], task: Task[Any]) -> Film | None:
    """A film for the teachers who want one; None where nobody does."""
    frames = max((desk.frames for group in teachers if (desk := desk_of(group.part)) is not None), default=0)
    return Film(task, frames) if frames else None
