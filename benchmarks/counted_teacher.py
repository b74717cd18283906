"""Teachers that count: each answer takes its time and is noted in a file before it is given. For `kill.py`.

As a plug-in (APIL_PLUGINS) it registers the teacher "counted"; COUNTED_LOG is the file, COUNTED_DELAY the delay.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

import apil
from apil.rng import Draws
from apil.teachers.committee import committee
from apil.teachers.protocol import Session, Teacher
from apil.types import Answer, Observation, Reference


@dataclass(frozen=True)
class Counted:
    """The teacher inside, asked one question at a time. Nothing is noted while an agent is measured."""

    inner: Teacher
    log: Path | None = None
    delay: float = 0.0
    """Seconds for each answer."""

    @property
    def members(self) -> tuple[str, ...]:
        return self.inner.members

    def begin(self, draws: Draws, episodes: int, horizon: int) -> CountedSession:
        training = not math.isinf(draws.time)
        inner = self.inner.begin(draws, episodes, horizon)
        return CountedSession(inner, self.log if training else None, self.delay if training else 0.0)


@dataclass(frozen=True)
class CountedSession:
    inner: Session
    log: Path | None
    """Has a byte for every answer."""
    delay: float

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        time.sleep(self.delay * int(asked.sum()))
        said = self.inner.answer(observation, reference, asked, t)
        if self.log is not None:
            given = asked if said.given is None else asked & said.given
            file = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.write(file, b"." * int(given.sum()))
            os.close(file)
        return said


def given(log: Path) -> int:
    """How many answers were given."""
    return log.stat().st_size if log.exists() else 0


if "COUNTED_LOG" in os.environ:
    apil.register_teacher(
        "counted",
        lambda: Counted(
            committee("twodifdetm"), Path(os.environ["COUNTED_LOG"]), float(os.environ.get("COUNTED_DELAY", "0"))
        ),
    )
