"""MuJoCo's Reacher-v5 with controllers who bend the elbow to different sides: continuous control with two good ways.

APIL_PLUGINS=examples/budget/reacher.py apil train --task reacher --teacher arm-three --query random \
--answer-budget 500 --out runs/reacher (needs the extra mujoco)

The arm starts almost straight, from where it can bend to either side. Once it is bent all controllers leave it so. The
distance is that of the fingertip to the target, in metres.
"""

import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

import apil
from apil.tasks import from_gymnasium
from apil.tasks.plane import Plane
from apil.teachers import Team

FRAMES, HORIZON, NEAR = 4, 25, 0.03
"""Steps of the simulation for an action (usually 2), actions of an episode, metres that count as reached."""
UPPER, LOWER = 0.1, 0.11
"""Lengths of the arm."""
BENT = 0.25
"""An elbow bent by more radians than this stays on its side."""


def distance(episode: Any) -> float:
    """Metres from the fingertip to the target."""
    return math.hypot(*map(float, episode.observation[8:10]))


def reacher() -> Any:
    """To have the fingertip on the target in the end."""
    return from_gymnasium(
        lambda: gymnasium.make("Reacher-v5", disable_env_checker=True, frame_skip=FRAMES),
        distance=distance,
        horizon=HORIZON,
        success_distance=NEAR,
        name="reacher",
        encoder="learned",
        action_names=("shoulder", "elbow"),
    )


def angles(x: float, y: float, side: float) -> tuple[float, float]:
    """Of shoulder and elbow with the fingertip at (x, y) and the elbow bent to a side, 1 or -1."""
    bend = (x * x + y * y - UPPER**2 - LOWER**2) / (2 * UPPER * LOWER)
    elbow = side * math.acos(min(1.0, max(-1.0, bend)))
    return math.atan2(y, x) - math.atan2(LOWER * math.sin(elbow), UPPER + LOWER * math.cos(elbow)), elbow


def controller(side: float, spread: float = 0.0) -> Any:
    """Pulls both joints to where they belong, and brakes; bends a straight arm to `side`, or to any side if that is 0.

    With a `spread` it draws how hard it pulls for each answer, by so much more or less.
    """

    def act(seen: Any, rng: np.random.Generator) -> Any:
        shoulder, elbow = (math.atan2(float(seen[2 + joint]), float(seen[joint])) for joint in (0, 1))
        drawn = side or float(rng.choice((-1.0, 1.0)))
        target = angles(float(seen[4]), float(seen[5]), math.copysign(1.0, elbow) if abs(elbow) > BENT else drawn)
        turn = (target[0] - shoulder + math.pi) % (2 * math.pi) - math.pi
        hard = 0.2 * (1 + spread * rng.uniform(-1, 1))
        pull = [hard * turn - 0.03 * float(seen[6]), hard * (target[1] - elbow) - 0.03 * float(seen[7])]
        return np.clip(pull, -1, 1).astype(np.float32)

    return act


CONTROLLERS = {"left": controller(1.0), "right": controller(-1.0), "either": controller(0.0, spread=0.3)}


def controllers(*names: str) -> Team:
    """Teachers by name."""
    return Team({name: CONTROLLERS[name] for name in names})


def around_target(options: Mapping[str, Any]) -> Plane:
    """Where the fingertip is, seen from the target."""

    def place(seen: Any) -> Any:
        scaled = seen[:, 8:10].astype(np.float64)  # sign(x) log(1 + |x|)
        return np.sign(scaled) * np.expm1(np.abs(scaled))

    return Plane(place, "fingertip beside target (m)", "fingertip above target (m)", bounds=(-0.4, 0.4, -0.4, 0.4))


apil.register_task("reacher", reacher, plane=around_target)
apil.register_teacher("arm-detm", lambda: controllers("left"))
apil.register_teacher("arm-rand", lambda: controllers("either"))
apil.register_teacher("arm-twodif", lambda: controllers("left", "right"))
apil.register_teacher("arm-three", lambda: controllers("left", "right", "either"))
