"""A teacher made of demonstrations: what was done in the nearest demonstrated state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from apil.errors import ApilError
from apil.teachers.policies import Question, Reply, flat, gather


class Demonstrations:
    """Answers with the action of the nearest demonstrated state, among those whose action can be taken here.

    Nearness is the Euclidean distance between flattened observations. Of several equally near ones any is taken with
    equal chance, so a state that was demonstrated with different actions is answered with them as often as they were
    shown. Farther than `within` there is no answer; with `within=0` only demonstrated states are answered.

    The distance d(s) is the task's, not a part of the demonstrations.
    """

    def __init__(self, observations: Sequence[Any], actions: Sequence[Any], within: float = math.inf) -> None:
        """`observations` and `actions` as the environment has them (state vectors in a built-in task), one a step."""
        if len(observations) != len(actions) or len(actions) == 0:
            raise ApilError(
                f"{len(observations)} observations and {len(actions)} actions are no demonstrations: give as many of "
                "both, at least one."
            )
        if not within >= 0:
            raise ApilError(f"within is {within:g}: give a distance between observations from 0 up.")
        self.within = within
        self._states = np.stack([flat(observation) for observation in observations])
        self._raw = list(actions)
        self._actions: Tensor | None = None

    def __len__(self) -> int:
        return len(self._raw)

    def reply(self, question: Question) -> Reply:
        """Looks each state up."""
        if self._actions is None:
            self._actions = torch.stack([question.action(value) for value in self._raw])
        return gather(question, lambda run, episode: self._lookup(question, run, episode))

    def _lookup(self, question: Question, run: int, episode: int) -> Any:
        """The demonstrated action, as the environment has it; None where there is none near enough."""
        assert self._actions is not None
        here = flat(question.seen(run, episode))
        if here.shape != self._states.shape[1:]:
            raise ApilError(
                f"was shown with observations of {self._states.shape[1]} numbers, and this task shows {len(here)}"
            )
        far = np.sqrt(np.square(self._states - here).sum(-1))
        if not self._actions.is_floating_point():
            valid = question.observation.valid[run, episode].numpy()
            far = np.where(valid[self._actions.numpy()], far, np.inf)
        least = far.min()
        if not least <= self.within or math.isinf(least):
            return None
        nearest = np.flatnonzero(far == least)
        return self._raw[int(question.rng(run, episode).choice(nearest))]
