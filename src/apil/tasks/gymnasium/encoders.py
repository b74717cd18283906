"""State encoders: from the structured observation to a state vector, learned with the policy."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from apil.errors import ApilError, in_one_line
from apil.tasks.gymnasium.layout import Field, Layout, Structured

Encoder = Literal["auto", "raw", "learned"] | nn.Module | Callable[[Layout], nn.Module]

_WIDTH = 64
"""Numbers that each part of an observation is encoded into."""
_CHANNELS = (16, 32, 32)


class FromFeatures(nn.Module):
    """Gives an encoder of structured observations its place behind the row of features."""

    def __init__(self, layout: Layout, encoder: nn.Module) -> None:
        super().__init__()
        self._layout = layout
        self.encoder = encoder

    def forward(self, features: Tensor) -> Tensor:
        """[n, F] -> [n, S]"""
        name = type(self.encoder).__name__
        try:
            state: Tensor = self.encoder(self._layout.structured(features))
        except (RuntimeError, TypeError, KeyError) as error:
            raise ApilError(f"The encoder {name} raised {in_one_line(error)}") from error
        if not isinstance(state, Tensor) or state.dim() != 2 or state.shape[0] != features.shape[0]:
            found = list(state.shape) if isinstance(state, Tensor) else type(state).__name__
            raise ApilError(
                f"The encoder {name} returned {found} for {features.shape[0]} observations: expected a tensor [n, S], "
                "one state vector for each."
            )
        return state


class PartsEncoder(nn.Module):
    """The default: an MLP for each vector, a small CNN for each image, their outputs side by side."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self._names = [field.name for field in layout.fields]
        self.parts = nn.ModuleList([_part(field) for field in layout.fields])

    def forward(self, observation: Structured) -> Tensor:
        """[n, 64 for each part]"""
        if isinstance(observation, Tensor):
            observation = {"": observation}
        return torch.cat([part(observation[name]) for name, part in zip(self._names, self.parts, strict=True)], dim=-1)


def _part(field: Field) -> nn.Module:
    if field.kind == "vector":
        return nn.Sequential(nn.Linear(field.size, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.ReLU())
    channels, height, width = field.shape
    layers: list[nn.Module] = []
    for wider in _CHANNELS:
        layers += [nn.Conv2d(channels, wider, kernel_size=3, stride=2, padding=1), nn.ReLU()]
        channels, height, width = wider, (height + 1) // 2, (width + 1) // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * height * width, _WIDTH), nn.ReLU())


def state_encoder(encoder: Encoder, layout: Layout) -> Callable[[], nn.Module] | None:
    """A function that makes a new encoder of features; None where the features are the state."""
    if encoder == "auto":
        encoder = "learned" if any(field.kind == "image" for field in layout.fields) else "raw"
    if encoder == "raw":
        return None
    own = PartsEncoder if encoder == "learned" else encoder
    if isinstance(own, nn.Module):
        return lambda: FromFeatures(layout, copy.deepcopy(own))
    if callable(own):
        return lambda: FromFeatures(layout, own(layout))
    raise ApilError(
        f"encoder is {encoder!r}: give auto, raw, learned, a torch.nn.Module, or a function of the layout that "
        "makes one."
    )
