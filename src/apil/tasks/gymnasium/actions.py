"""Actions of an environment as the learner has them, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from apil.errors import ApilError
from apil.types import ActionBox


class Actions:
    """The action space of an environment: Discrete, or Box with finite bounds."""

    def __init__(self, space: spaces.Space[Any], owner: str) -> None:
        """Reads `space`; `owner` names the environment in messages."""
        self.space = space
        self._owner = owner
        self.box: ActionBox | None = None
        if isinstance(space, spaces.Discrete):
            self.count = int(space.n)
            self._start = int(space.start)
        elif isinstance(space, spaces.Box) and space.shape and np.issubdtype(space.dtype, np.floating):
            self.count = int(np.prod(space.shape))
            low, high = (torch.from_numpy(np.asarray(bound, np.float32).flatten()) for bound in (space.low, space.high))
            if not bool((low.isfinite() & high.isfinite() & (low < high)).all()):
                raise ApilError(
                    f"The action space {space} of the environment '{owner}' has no finite range in every place: give "
                    "it one, for example with gymnasium.wrappers.TransformAction."
                )
            self.box = ActionBox(low, high)
        else:
            raise ApilError(
                f"The environment '{owner}' has the action space {space}: known are Discrete and Box of floats; wrap "
                "the environment with gymnasium.wrappers.TransformAction."
            )

    def taken(self, actions: Tensor) -> Any:
        """[...] long or [..., numbers] float -> a batch of actions of the environment, one after the other.

        Elements of the batch are what the space itself samples: numbers of NumPy's, of the space's type.
        """
        if self.box is None:
            return (actions.numpy().reshape(-1) + self._start).astype(self.space.dtype, copy=False)
        assert isinstance(self.space, spaces.Box)
        shaped = actions.numpy().reshape(-1, *self.space.shape).astype(self.space.dtype, copy=False)
        # Rounding to the space's own type must not step over a bound.
        return np.clip(shaped, self.space.low, self.space.high)

    def learned(self, action: Any) -> Tensor:
        """An element of the space as the learner has it: [] long or [numbers] float."""
        element = action[()] if isinstance(action, np.ndarray) and action.ndim == 0 else action
        try:
            if self.box is not None:
                element = np.asarray(action, dtype=self.space.dtype).reshape(self.space.shape or ())
            inside = self.space.contains(element)
        except (TypeError, ValueError):
            inside = False
        if not inside:
            value = action.tolist() if isinstance(action, np.ndarray) else action
            raise ApilError(f"action {value!r:.80} is not in the action space {self.space} of '{self._owner}'")
        if self.box is None:
            return torch.tensor(int(element) - self._start)
        flat = torch.from_numpy(np.asarray(element, dtype=np.float32).flatten())
        return flat.clamp(self.box.low, self.box.high)
