"""Who answers: teachers by name, and the parts to build your own from.

Examples:
    >>> from apil.teachers import Member, Team
    >>> ann = Member("ann", lambda observation, rng: 0)
    >>> bob = Member("bob", lambda observation, rng: 1)
    >>> Team([ann, bob]).members
    ('ann', 'bob')
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from apil.registry import Registry

if TYPE_CHECKING:
    from apil.people.teacher import People as People
    from apil.teachers.minari import load_demonstrations as load_demonstrations
    from apil.teachers.policies import Demonstrations as Demonstrations
    from apil.teachers.policies import Drift as Drift
    from apil.teachers.policies import Predicting as Predicting
    from apil.teachers.policies import Scripted as Scripted
    from apil.teachers.team import Member as Member
    from apil.teachers.team import Team as Team
    from apil.teachers.wrappers import Anonymous as Anonymous
    from apil.teachers.wrappers import NoisyDistance as NoisyDistance
    from apil.teachers.wrappers import NoisyIdentity as NoisyIdentity

TEACHERS = Registry("teacher", "apil.teachers")
for _name, _summary in {
    "detm": "one teacher, always the first reference action",
    "rand": "one teacher, any reference action with equal chance",
    "tworand": "two identical Rand teachers, one drawn for each episode",
    "twodifdetm": "two deterministic teachers who differ (first, last), one drawn for each episode",
}.items():
    TEACHERS.register(_name, f"apil.teachers.committee:{_name}", _summary)

TEACHERS.register(
    "people", "apil.people.teacher:people", "people who answer in a browser: people:ann+bob; see `apil teach`"
)

_HOMES = {
    "minari": ("load_demonstrations",),
    "policies": ("Demonstrations", "Drift", "Predicting", "Scripted"),
    "team": ("Member", "Team"),
    "wrappers": ("Anonymous", "NoisyDistance", "NoisyIdentity"),
}
"""Where the public parts live: listing teachers must not import torch."""


def __getattr__(name: str) -> Any:
    if name == "People":  # with a server, of which this room knows nothing
        return importlib.import_module("apil.people.teacher").People
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"apil.teachers.{module}"), name)
    raise AttributeError(f"module 'apil.teachers' has no attribute '{name}'")
