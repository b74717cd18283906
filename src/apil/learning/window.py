"""The newest training episodes, which query policies that learn look at again.

What a query policy predicts is about the agent as it is, so it learns from recent episodes alone, and what the agent
thought in them (states, mean policies, uncertainties) is computed again with the current weights.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apil.learning.rows import ANSWERED, RowFormat
from apil.learning.walk import Agents
from apil.settings import LearnerSettings
from apil.types import Episodes, Observation, Uncertainty

_NUMBERS = 2**21
"""Features that are looked at again at once: episodes of pictures are too large, and are learned from once."""
_LIVE, _FIRED = 8, 16
"""Flags of a step beside `ANSWERED`."""


class Window:
    """The last episodes of every run of a stack, as rows of bytes."""

    def __init__(self, layout: RowFormat, runs: int, horizon: int, size: int) -> None:
        self._layout, self._size = layout, size
        self._rows: NDArray[Any] = np.zeros((runs, size, horizon), layout.dtype)
        taken = (layout.actions,) if layout.continuous else ()
        self._taken = torch.zeros(runs, size, horizon, *taken, dtype=torch.float32 if taken else torch.int32)
        self._final = torch.zeros(runs, size)
        self._success = torch.zeros(runs, size, dtype=torch.bool)
        self._seen = torch.zeros(runs, dtype=torch.float64)

    def add(self, episodes: Episodes) -> None:
        """Adds the newest episodes and drops the oldest ones."""
        runs, count, horizon = episodes.live.shape
        first = int(self._seen[0])
        places = torch.arange(first, first + count) % self._size
        flags = episodes.answered.byte() * ANSWERED + episodes.live.byte() * _LIVE + episodes.unanswered.byte() * _FIRED
        columns: dict[str, Tensor | int] = {
            "identity": episodes.identity.flatten(),
            "distance": episodes.distance.flatten(),
            "action": episodes.action.flatten(0, 2),
            "flags": flags.flatten(),
        }
        features, valid = episodes.features.flatten(0, 2), episodes.valid_actions.flatten(0, 2)
        rows = self._layout.write(columns, features, valid, sealed=False)
        self._rows[:, places.numpy()] = rows.reshape(runs, count, horizon)
        self._taken[:, places] = episodes.taken.to(self._taken.dtype)
        self._final[:, places], self._success[:, places] = episodes.final_distance, episodes.success
        self._seen += count

    def state(self, run: int) -> dict[str, Tensor]:
        """What a checkpoint keeps of one run, as views."""
        content = torch.from_numpy(self._rows.view(np.uint8).reshape(*self._rows.shape[:2], -1))
        # A checkpoint holds finite numbers only, and a distance may be missing.
        final = self._final.view(torch.int32)
        parts = {"rows": content, "taken": self._taken, "final": final, "success": self._success}
        return {f"window.{name}": value[run] for name, value in (parts | {"seen": self._seen}).items()}

    def episodes(self, agents: Agents, iteration: int) -> Episodes:
        """All of them, oldest places first, as the models of the runs think of them now."""
        known = min(int(self._seen[0]), self._size)
        rows = self._rows[:, :known]
        features, valid = self._layout.read_features(rows), self._layout.read_valid(rows)
        flags = torch.from_numpy(rows["flags"].copy())
        answered, live = (flags & ANSWERED) != 0, (flags & _LIVE) != 0
        taken = self._taken[:, :known]
        shape = live.shape
        steps = shape[1] * shape[2]
        draws = [agents.streams.draws(name, iteration) for name in ("window", "window/identity")]
        seen = agents.thinking.bring(Observation(features.flatten(1, 2), valid.flatten(1, 2)))
        with torch.no_grad(), agents.thinking:
            acting = agents.model.begin(draws[0], draws[1], steps, 1)
            belief = agents.thinking.back(acting.belief(seen, 0, 1))

        def over_time(values: Tensor) -> Tensor:
            return values.view(*shape, *values.shape[2:])

        parts = {f.name: over_time(getattr(belief.uncertainty, f.name)) for f in fields(Uncertainty)}
        return Episodes(
            features=features,
            state=over_time(belief.state),
            valid_actions=valid,
            answered=answered,
            action=self._layout.read_action(rows),
            distance=torch.from_numpy(rows["distance"].copy()),
            identity=torch.from_numpy(rows["identity"].astype(np.int64)),
            live=live,
            mean=over_time(belief.mean),
            identity_belief=over_time(belief.identity),
            unanswered=(flags & _FIRED) != 0,
            taken=taken if self._layout.continuous else taken.long(),
            final_distance=self._final[:, :known],
            success=self._success[:, :known],
            uncertainty=Uncertainty(**parts),
            notes=features[..., :0],
        )


def new_window(agents: Agents, settings: LearnerSettings) -> Window | None:
    """A window for the query policies of a stack; None where none of them learns, where the model remembers the steps
    before, and where so few episodes could be looked at again that the fresh ones serve as well."""
    task = agents.task
    size = min(settings.window, _NUMBERS // (task.horizon * task.state_size))
    learns = any(group.part.parameters for group in agents.queries)
    if not learns or agents.model.recurrent or size <= settings.batch:
        return None
    return Window(RowFormat.of(task), len(agents.streams.seeds), task.horizon, size)
