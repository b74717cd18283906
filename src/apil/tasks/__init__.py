"""Where the agent lives: tasks by name.

Examples:
    >>> {"grid", "maze", "r2r"} <= set(apil.tasks.TASKS.names())
    True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from apil.registry import Registry

if TYPE_CHECKING:
    from apil.tasks.gymnasium import from_gymnasium as from_gymnasium

TASKS = Registry("task", "apil.tasks")
TASK_FACETS = (
    "options",
    "arguments",
    "model",
    "evaluation",
    "study",
    "study_settings",
    "report",
    "agent",
    "commands",
    "plane",
)
"""What a task may bring beside itself; docs/guide/plug-ins.md says what each is."""
TASKS.register(
    "grid",
    "apil.tasks.grid:Grid",
    "5 x 5 grid, right or down to the far corner; every walk succeeds (the paper's)",
    arguments="apil.tasks.options:GridArguments",
    study_settings={"expectation": "monte-carlo"},
    report="apil.studies.extras:GRID",
)
TASKS.register(
    "maze",
    "apil.tasks.maze:Maze",
    "7 x 7 grid with walls, random start and goal, 20 steps; failure is possible",
    arguments="apil.tasks.options:MazeArguments",
    report="apil.studies.extras:MAZE",
    plane="apil.tasks.plane:maze_plane",
)
TASKS.register(
    "r2r",
    "apil.r2r.task:R2R",
    "Room-to-Room: follow an instruction through a house (the paper's); generated houses without --data",
    options="apil.r2r.options:OPTIONS",
    model="apil.r2r.instruction:instruction_model",
    evaluation="apil.r2r.evaluation:EVALUATION",
    study="apil.r2r.study:STUDY",
    report="apil.r2r.report:REPORT",
    agent="apil.r2r.acting:ACTING",
    commands="apil.r2r.commands:COMMANDS",
)


def __getattr__(name: str) -> Any:
    """`from_gymnasium` is imported when it is used: the names of tasks must be known without torch."""
    if name == "from_gymnasium":
        return importlib.import_module("apil.tasks.gymnasium").from_gymnasium
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
