"""Where the agent lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from apil.registry import Registry

if TYPE_CHECKING:
    from apil.tasks.gymnasium import from_gymnasium as from_gymnasium

TASKS = Registry("task", "apil.tasks")
TASK_MODELS: dict[str, str] = {}
"""The model of each task whose observation is not a state vector; 'vector' for all others."""
TASKS.register(
    "grid",
    "apil.tasks.grid:Grid",
    "5 x 5 grid, right or down to the far corner; every walk succeeds (the paper's)",
)
TASKS.register(
    "maze",
    "apil.tasks.maze:Maze",
    "7 x 7 grid with walls, random start and goal, 20 steps; failure is possible",
)
TASKS.register(
    "r2r",
    "apil.r2r.task:R2R",
    "Room-to-Room: follow an instruction through a house (the paper's); generated houses without --data",
    agent="apil.r2r.acting:ACTING",
)
TASK_MODELS["r2r"] = "instruction"


def __getattr__(name: str) -> Any:
    """`from_gymnasium` is imported when it is used: the names of tasks must be known without torch."""
    if name == "from_gymnasium":
        from apil.tasks.gymnasium import from_gymnasium

        return from_gymnasium
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
