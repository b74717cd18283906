"""How a run goes, for its owner: success alone, measured now and then, and what else the page shows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from apil.learning.collect import collect
from apil.learning.trainer import Trainer
from apil.people.desk import Desk
from apil.people.teacher import People

EPISODES = 50
"""Episodes of a measurement; nobody is asked in them."""
_SHARE = 0.1
"""Of the time, for measurements."""
_BETWEEN = 0.5
"""Seconds between two reports at least."""


class Progress:
    """Looks at a trainer after every iteration and tells the desk."""

    def __init__(self, people: People, budget: int | None, opened: Callable[[], None]) -> None:
        """`opened` is called once the run folder is there."""
        assert isinstance(people.desk, Desk)
        self._desk, self._budget = people.desk, budget
        announce = self._desk.announce

        def opening(desk: Desk) -> None:
            opened()
            announce(desk)

        self._desk.announce = opening
        self._reported = self._measured = 0.0
        self._took, self._at = 0.0, -1
        self._success: float | None = None

    def tell(self, done: int) -> None:
        """The bar of other trainings; here the owner's page shows it."""

    def __call__(self, trainer: Trainer) -> None:
        now = time.monotonic()
        if now - self._reported < _BETWEEN and not trainer.done:
            return
        self._reported = now
        answers = trainer.answers(0)
        point = self._measure(trainer, answers) if self._due(answers, now) or trainer.done else None
        rows = trainer.rows[0]
        last = rows[-1] if rows else {}
        status = {
            "iteration": trainer.iteration,
            "answers": answers,
            "budget": self._budget,
            "query_rate": last.get("query_rate"),
            "success_with_help": last.get("success"),
            "success_alone": self._success,
            "validation_loss": last.get("validation_loss"),
            "personas": personas(trainer),
        }
        self._desk.report(status, point)

    def _due(self, answers: int, now: float) -> bool:
        return answers != self._at and now - self._measured > self._took / _SHARE

    def _measure(self, trainer: Trainer, answers: int) -> dict[str, Any]:
        start = time.monotonic()
        with trainer.averaged() as agents:
            alone = collect(agents, 0, EPISODES, "alone", "evaluation/")
        self._success = float(alone.success.double().mean())
        self._at, self._measured = answers, time.monotonic()
        self._took = self._measured - start
        return {"answers": answers, "success": self._success}


def personas(trainer: Trainer) -> list[dict[str, Any]]:
    """Where each teacher's persona lies, on the two directions in which personas differ most."""
    names = trainer.agents.teachers[0].name.split("+")
    vectors = trainer.agents.model.policy.get("persona")
    if vectors is None or len(names) < 2:
        return []
    table = vectors.detach()[0].double().numpy()[: len(names)]
    centred = table - table.mean(0)
    across = np.linalg.svd(centred, full_matrices=False)
    places = (across.U * across.S)[:, :2]
    flat = np.pad(places, ((0, 0), (0, 2 - places.shape[1])))
    return [{"name": name, "x": float(x), "y": float(y)} for name, (x, y) in zip(names, flat.tolist(), strict=True)]
