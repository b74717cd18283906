"""Settings of R2R agents by name. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

Name = Literal["desk", "paper"]


@dataclass(frozen=True)
class Preset:
    """Settings that a run takes where nothing else is said."""

    settings: MappingProxyType[str, Any]
    """Fields of a run's config."""
    encoder: MappingProxyType[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Sizes of the state encoder that differ from their defaults."""


PRESETS: dict[str, Preset] = {
    "desk": Preset(
        MappingProxyType(
            {
                "iterations": 1000,
                "learning_rate": 3e-3,
                "optimizer": "muon",
                "hidden": 256,
                "persona": 32,
                "warmup": 50,
                "clip": 1.0,
                "average": 0.995,
            }
        )
    ),
    "paper": Preset(
        MappingProxyType(
            {
                "iterations": 100_000,
                "learning_rate": 1e-4,
                "hidden": 512,
                "persona": 256,
                "warmup": 1000,
                "clip": 1.0,
                "average": 0.999,
            }
        ),
        MappingProxyType({"width": 512, "heads": 8, "text_layers": 2, "words": 80}),
    ),
}
"""desk: a run fits 15 minutes of one core. paper: the sizes, rate and iterations of the paper's appendix; where it is
silent (width and depth of the transformer) those of HANNA."""
