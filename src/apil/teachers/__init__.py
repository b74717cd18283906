"""Who answers."""

from __future__ import annotations

from apil.registry import Registry

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
