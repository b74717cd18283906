"""LunarLander-v3 with Gymnasium's own heuristic in three styles: a mistake near the ground is the end.

APIL_PLUGINS=examples/budget/lunar_lander.py apil train --task lander --teacher pilot-three --query random \
--answer-budget 1000 --out runs/lander (needs the extra box2d)

The pilots disagree on when the main engine goes before turning upright. Each action is held for two steps.
"""

import math
from collections.abc import Mapping
from typing import Any

import gymnasium
from planners import landing

import apil
from apil.tasks import from_gymnasium
from apil.tasks.plane import Plane
from apil.teachers import Team

HOLD, HORIZON = 2, 180
"""Steps of the environment that an action is held for, and actions of the longest episode."""
LOST = 5.0
"""The distance after a crash; what is farther on the way counts as this far."""


class Held(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Holds each action for two steps: half the decisions, and the pilots land as well."""

    def step(self, action: Any) -> Any:
        """Ends with the first step that ends the episode."""
        for _ in range(HOLD):
            outcome = self.env.step(action)
            if outcome[2] or outcome[3]:
                break
        return outcome


def distance(episode: Any) -> float:
    """0 after a landing; else how far from the pad, how fast and how tilted the lander is, in its own units."""
    if episode.terminated:
        return 0.0 if episode.reward > 0 else LOST
    x, y, vx, vy, angle, *_ = map(float, episode.observation)
    return min(LOST, max(0.01, math.hypot(x, y) + math.hypot(vx, vy) + abs(angle)))


def lander(gravity: float = -10.0, wind: float = 0.0) -> Any:
    """To come down on the pad in one piece and at rest; `wind` is its power, 0 for none."""
    weather: dict[str, Any] = {
        "gravity": gravity,
        "enable_wind": wind > 0,
        "wind_power": wind,
        "turbulence_power": wind / 10,
    }
    return from_gymnasium(
        lambda: Held(gymnasium.make("LunarLander-v3", disable_env_checker=True, **weather)),
        distance=distance,
        horizon=HORIZON,
        batch=4,
        name="lander",
        encoder="learned",
        action_names=("nothing", "left engine", "main engine", "right engine"),
    )


def pilot(favour: float, spread: float = 0.0) -> Any:
    """Gymnasium's heuristic; it fires the main engine where that needs `favour` times as much as turning does.

    With a `spread` it draws its favour for each answer, so much to either side.
    """
    return lambda seen, rng: landing(seen, favour + spread * rng.uniform(-1, 1))


PILOTS = {"own": pilot(1.0), "upright": pilot(1.5), "moody": pilot(1.25, spread=0.5)}


def pilots(*names: str) -> Team:
    """Teachers by name."""
    return Team({name: PILOTS[name] for name in names})


def sky(options: Mapping[str, Any]) -> Plane:
    """Where the lander is; the pad is at 0, 0."""
    return Plane(lambda seen: 2.5 * seen[:, :2], "across", "height", bounds=(-1.2, 1.2, -0.2, 1.8))


apil.register_task("lander", lander, plane=sky)
apil.register_teacher("pilot-detm", lambda: pilots("own"))
apil.register_teacher("pilot-rand", lambda: pilots("moody"))
apil.register_teacher("pilot-twodif", lambda: pilots("own", "upright"))
apil.register_teacher("pilot-three", lambda: pilots("own", "upright", "moody"))
