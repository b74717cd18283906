"""Who answers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from apil.registry import Registry

if TYPE_CHECKING:
    from apil.teachers.demonstrations import Demonstrations as Demonstrations
    from apil.teachers.minari import load_demonstrations as load_demonstrations
    from apil.teachers.policies import Drift as Drift
    from apil.teachers.policies import Predicting as Predicting
    from apil.teachers.policies import Scripted as Scripted
    from apil.teachers.team import Member as Member
    from apil.teachers.team import Team as Team
    from apil.teachers.wrappers import Anonymous as Anonymous
    from apil.teachers.wrappers import NoisyDistance as NoisyDistance
    from apil.teachers.wrappers import NoisyIdentity as NoisyIdentity

TEACHERS = Registry("teacher", "apil.teachers")
TEACHERS.register("detm", "apil.teachers.committee:detm", "one teacher, always the first reference action")
TEACHERS.register("rand", "apil.teachers.committee:rand", "one teacher, any reference action with equal chance")
TEACHERS.register(
    "tworand", "apil.teachers.committee:tworand", "two identical RAND teachers, one drawn for each episode"
)
TEACHERS.register(
    "twodifdetm",
    "apil.teachers.committee:twodifdetm",
    "two deterministic teachers who differ (first, last), one drawn for each episode",
)

_HOMES = {
    "Anonymous": "wrappers",
    "Demonstrations": "demonstrations",
    "Drift": "policies",
    "Member": "team",
    "NoisyDistance": "wrappers",
    "NoisyIdentity": "wrappers",
    "Predicting": "policies",
    "Scripted": "policies",
    "Team": "team",
    "load_demonstrations": "minari",
}
"""Where the public parts live: listing teachers must not import torch."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"apil.teachers.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'apil.teachers' has no attribute '{name}'")
