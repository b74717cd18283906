"""Continuous control with two controllers of different styles: MountainCarContinuous-v0.

APIL_PLUGINS=examples/mountain_car.py apil study examples/mountain_car.toml --out results/mountain-car
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

HOLD, HORIZON = 8, 32
"""Steps of the environment that an action is held for, and actions of the longest episode."""


class Held(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Holds each action for several steps: a decision every 8 steps is enough to drive up a hill."""

    def __init__(self, env: gymnasium.Env[Any, Any], hold: int) -> None:
        super().__init__(env)
        self.hold = hold

    def step(self, action: Any) -> Any:
        """Up to `hold` steps; ends with the first that ends the episode."""
        for _ in range(self.hold):
            outcome = self.env.step(action)
            if outcome[2] or outcome[3]:
                break
        return outcome


def energy(position: float, velocity: float) -> float:
    """Of the car: kinetic, and that of its height on the hill."""
    return velocity**2 / 2 + 0.0025 * math.sin(3 * position) / 3


def distance(episode: Any) -> float:
    """The energy that the car lacks for the top, as a share of what it lacks at the bottom; 0 at the goal alone."""
    top, bottom = energy(0.45, 0.0), energy(-math.pi / 6, 0.0)
    lacks = (top - energy(*map(float, episode.observation))) / (top - bottom)
    return 0.0 if episode.terminated else max(0.01, lacks)


def make_env(hold: int = HOLD) -> gymnasium.Env[Any, Any]:
    """The car, whose actions are held."""
    return Held(gymnasium.make("MountainCarContinuous-v0"), hold)


def task(hold: int = HOLD) -> Any:
    """A car too weak for the hill has to swing up; failure is possible."""
    # Two bare numbers are learned from slowly, and the dropout on the policy's input hides them.
    return from_gymnasium(
        lambda: make_env(hold), distance=distance, horizon=HORIZON, name="mountain-car", encoder="learned"
    )


def controller(force: float) -> Any:
    """Pushes the way the car rolls, always with this force."""
    return lambda seen, rng: np.array([math.copysign(force, float(seen[1]))], np.float32)


def controllers() -> Team:
    """Two who reach the top in their own style: with full force, and gently."""
    return Team({"full": controller(1.0), "gentle": controller(0.6)})


def phases(options: Mapping[str, Any]) -> Plane:
    """Position and velocity, from what is scaled to -1 to 1."""
    return Plane(
        lambda seen: np.stack([0.9 * seen[:, 0] - 0.3, 0.07 * seen[:, 1]], 1),
        "position",
        "velocity",
        bounds=(-1.2, 0.6, -0.07, 0.07),
    )


apil.register_task("mountain-car", task, plane=phases)
apil.register_teacher("full-and-gentle", controllers)


def moody(seen: Any, rng: np.random.Generator) -> Any:
    """Pushes the way the car rolls, with a force that is drawn for each answer."""
    return controller(rng.uniform(0.6, 1.0))(seen, rng)


apil.register_teacher("car-detm", lambda: Team({"full": controller(1.0)}))
apil.register_teacher("car-rand", lambda: Team({"moody": moody}))
apil.register_teacher("car-twodif", controllers)
apil.register_teacher("car-three", lambda: Team({"full": controller(1.0), "gentle": controller(0.6), "moody": moody}))
