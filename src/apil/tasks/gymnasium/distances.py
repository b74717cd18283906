"""Distances that can be had without knowing the task: from success, from survival, from the return.

APIL reads a distance twice: the final one says whether an episode ended well, those on the way whether it came nearer.
Each of these three says the first; what it says of the second is told with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

from apil.errors import ApilError

if TYPE_CHECKING:
    from apil.tasks.gymnasium.episode import Episode

Distance = Callable[["Episode"], float]
Derived = Literal["success", "steps", "return"]


def success(env: Episode) -> float:
    """0 once the episode has succeeded, else 1: info['is_success'] or info['success'] is true, or it terminated with a
    positive reward. Nothing on the way counts as progress: every step of a failed episode is labelled *query*.
    """
    info = env.info
    told = info.get("is_success", info.get("success")) if info else None
    reached = env.terminated and env.reward > 0 if told is None else bool(told)
    return 0.0 if reached else 1.0


def steps(env: Episode, horizon: int) -> float:
    """Steps still to survive; 0 for an episode that lasted to the horizon or was truncated there.

    For tasks that are about not ending early. It falls by 1 a step whatever the agent does, so early in an episode it
    tells no good step from a bad one.
    """
    return 0.0 if env.truncated and not env.terminated else float(max(0, horizon - env.steps))


def return_gap(env: Episode, best: float) -> float:
    """What the return so far lacks of the best known one, 0 from there on.

    Rewards that come late make it large until then; where rewards are negative it grows while the agent nears its goal,
    and no step counts as progress.
    """
    return max(0.0, best - env.total)


def derived(name: str, horizon: int, best_return: float | None) -> Distance:
    """The distance of that name."""
    if name == "success":
        return success
    if name == "steps":
        return partial(steps, horizon=horizon)
    if name != "return":
        raise ApilError(
            f"Unknown distance '{name}': give success, steps, return (with best_return), or a function of the "
            "environment."
        )
    if best_return is None:
        raise ApilError("The distance 'return' needs best_return, the return of a perfect episode: give a number.")
    return partial(return_gap, best=best_return)
