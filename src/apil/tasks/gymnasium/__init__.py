"""Any Gymnasium environment as a task."""

from __future__ import annotations

from apil.tasks.gymnasium.episode import Episode
from apil.tasks.gymnasium.task import GymnasiumTask, from_gymnasium

__all__ = ["Episode", "GymnasiumTask", "from_gymnasium"]
