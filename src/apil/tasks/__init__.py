"""Where the agent lives."""

from __future__ import annotations

from apil.registry import Registry

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
