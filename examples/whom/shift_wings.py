"""Three teachers for MiniGrid-DistShift1 who are not equally good; in the lava the episode is over.

APIL_PLUGINS=examples/whom/shift_wings.py apil train --task dist-shift --teacher shift-wings --query random \
--answer-budget 300 --select learned --acting by-skill --out runs/shift
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "budget"))
from minigrid_levels import Seen  # which registers dist-shift

import apil
from apil.teachers import Member, Scripted, Team

MIDDLE = 4
"""The column in the middle of the level."""
SLOPPY = 0.3
"""How often the quick one is wrong."""


def mover(mistakes: float = 0.0, *, only_east: bool = False) -> Scripted:
    """Takes the first action on a shortest way, but for mistakes by chance, and outside of the east if it is so."""

    def act(episode: Any, rng: np.random.Generator) -> int:
        level: Seen = episode.env
        right = level.right()
        x, y = level.pose().cell
        lost = only_east and not (x > MIDDLE or (x == MIDDLE and y > level.world.height // 2))
        wrong = [action for action in range(len(level.actions)) if action not in right]
        return wrong[0] if wrong and (lost or rng.random() < mistakes) else right[0]

    return Scripted(act, privileged=True)


def wings() -> Team:
    """Careful at cost 3, quick (wrong three times in ten) at cost 1, eastern (wrong in the west) at cost 1."""
    return Team(
        [
            Member("careful", mover(), cost=3.0),
            Member("quick", mover(SLOPPY), cost=1.0),
            Member("eastern", mover(only_east=True), cost=1.0),
        ]
    )


apil.register_teacher("shift-wings", wings)
