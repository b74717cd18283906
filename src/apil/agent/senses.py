"""Between an environment and an agent: observations in, actions out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apil.agent.spec import AgentSpec
from apil.errors import ApilError
from apil.tasks.gymnasium.actions import Actions
from apil.tasks.gymnasium.layout import Layout
from apil.tasks.gymnasium.space_json import space_from_json
from apil.types import Observation


class Senses:
    """Reads observations as the environment gives them, and says actions as it takes them."""

    def __init__(self, spec: AgentSpec) -> None:
        self.actions = Actions(space_from_json(spec.action_space), spec.task)
        space = spec.observation_space
        self.layout = None if space is None else Layout(space_from_json(space), spec.task)
        self._task, self._features = spec.task, spec.features
        if self.layout is not None and self.layout.size != spec.features:
            raise ApilError(
                f"The description of the agent of '{spec.task}' has {spec.features} features and a space of "
                f"{self.layout.size}: restore the file, or save the agent again."
            )

    def observe(self, observation: Any, valid: Any) -> tuple[Observation, bool]:
        """What was given as [1, n, ...], and whether it was one observation alone; arguments as in `Agent.act`."""
        read = self._rows if self.layout is None or isinstance(observation, Observation) else self.layout.read
        if isinstance(observation, Observation):
            observation, valid = observation.features, observation.valid if valid is None else valid
            if observation.dim() == 3 and len(observation) == 1:
                observation, valid = observation[0], valid[0] if np.ndim(valid) == 3 else valid
        rows, alone = read(observation)
        return Observation(torch.from_numpy(rows).unsqueeze(0), self._valid(valid, len(rows))), alone

    def _rows(self, features: Any) -> tuple[NDArray[np.float32], bool]:
        """[n, F] from the features themselves."""
        try:
            rows = np.asarray(features, np.float32).copy()
        except (TypeError, ValueError):
            rows = np.zeros((0, 0, 0), np.float32)
        if rows.shape[-1:] != (self._features,) or rows.ndim not in (1, 2) or not np.isfinite(rows).all():
            told = f"shape {rows.shape}" if rows.size else type(features).__name__
            raise ApilError(
                f"The observation ({told}) is none of '{self._task}': give {self._features} finite features, or a "
                f"batch [n, {self._features}]."
            )
        return rows.reshape(-1, self._features), rows.ndim == 1

    def _valid(self, valid: Any, count: int) -> Tensor:
        """[1, n, A]"""
        actions = self.actions.count
        if valid is None:
            return torch.ones(1, count, actions, dtype=torch.bool)
        flags = np.asarray(valid)
        if flags.shape not in ((actions,), (count, actions)) or not flags.any(-1).all():
            raise ApilError(
                f"The valid actions have shape {flags.shape}: give {actions} truth values for each of {count} "
                "observations, at least one of them true."
            )
        return torch.from_numpy(np.broadcast_to(flags.astype(bool), (count, actions)).copy()).unsqueeze(0)
