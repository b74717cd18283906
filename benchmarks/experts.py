"""Environments with two scripted experts each, who differ where several actions are right.

`DEVELOPMENT` is for choosing defaults; `REPORTED` is for measuring them once they are chosen.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import gymnasium
import numpy as np
from planners import landing, right_moves, steps_to

from apil.tasks import from_gymnasium
from apil.tasks.gymnasium import Episode, GymnasiumTask
from apil.teachers import Scripted, Team
from expert_grids import Cells, minigrid_level, right_in_cells, right_in_minigrid  # also finds planners.py

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]
Expert = Callable[[Any], int]
"""What an expert does in an `Episode`, which it looks at and does not step."""
Decide = Callable[[Sequence[Episode]], Sequence[Any]]
"""An action for each episode of a batch that steps together."""
STEPS = 800
"""Steps of an iteration, at most: a task with long episodes has fewer of them in a batch."""


@dataclass(frozen=True)
class Bench:
    """An environment and its experts."""

    name: str
    make: MakeEnv
    experts: Mapping[str, Expert]
    horizon: int
    """Steps of the longest episode; enough for the experts."""
    distance: Any = "success"
    """As `from_gymnasium` takes it."""
    needs: str | None = None
    """A module that not everyone has installed."""

    @property
    def available(self) -> bool:
        """Whether everything that it needs is installed."""
        return self.needs is None or importlib.util.find_spec(self.needs) is not None

    def task(self, **options: Any) -> GymnasiumTask:
        """The environment as a task; `options` are those of `from_gymnasium`."""
        own = {"horizon": self.horizon, "batch": max(1, min(16, STEPS // self.horizon)), "name": self.name}
        return from_gymnasium(self.make, distance=self.distance, **{**own, **options})

    def team(self, heard: Callable[[Any, int], None] = lambda observation, action: None) -> Team:
        """The experts as teachers; `heard` is called with each observation and answer."""
        return Team({name: Scripted(partial(_answer, expert, heard), True) for name, expert in self.experts.items()})


def _answer(expert: Expert, heard: Callable[[Any, int], None], episode: Any, rng: np.random.Generator) -> int:
    action = expert(episode)
    heard(episode.observation, action)
    return action


def success(task: GymnasiumTask, decide: Decide, episodes: int, seed: int) -> float:
    """The share of new episodes that end at distance 0."""
    envs = [task.make() for _ in range(episodes)]
    for place, env in enumerate(envs):
        env.reset(seed=1_000_000 * (seed + 1) + place)
    for _ in range(task.horizon):
        for env, action in zip(envs, decide(envs), strict=True):
            env.step(action)
        if all(env.over for env in envs):
            break
    reached = [float(env.record[0]) <= task.success_distance for env in envs]
    for env in envs:
        env.close()
    return sum(reached) / episodes


def expert_success(bench: Bench, episodes: int, seed: int = 0) -> dict[str, float]:
    """How often each expert reaches the goal when it is followed."""

    def following(expert: Expert) -> Decide:
        return lambda envs: [0 if env.over else expert(env) for env in envs]

    task = bench.task()
    return {name: success(task, following(expert), episodes, seed) for name, expert in bench.experts.items()}


def ties(right: Callable[[Any], list[int]]) -> dict[str, Expert]:
    """Two experts who take the first and the last of the actions that are right."""
    return {"first": lambda episode: right(episode)[0], "last": lambda episode: right(episode)[-1]}


def planned(make: MakeEnv) -> dict[str, Expert]:
    """Two exact planners of an environment with numbered states and a table P of where its actions lead."""

    @cache
    def plan() -> tuple[dict[int, dict[int, int]], dict[int, int]]:
        env: Any = make().unwrapped
        table = {s: {a: outcomes[0][1:] for a, outcomes in row.items()} for s, row in env.P.items()}
        best = max(reward for row in table.values() for _, reward, over in row.values() if over)
        moves: dict[int, dict[int, int]] = {
            state: {a: -1 if over and reward == best else int(to) for a, (to, reward, over) in row.items()}
            for state, row in table.items()
        }
        # A hole leads back into itself: it is never on a way to the goal, which is -1.
        return moves, steps_to([-1], {state: tuple(row.values()) for state, row in moves.items()})

    def right(episode: Any) -> list[int]:
        moves, steps = plan()
        return right_moves(steps, moves[int(episode.observation)])

    return ties(right)


def terminated(episode: Episode) -> float:
    """0 once the episode has terminated, for environments that terminate at their goal alone."""
    return 0.0 if episode.terminated else 1.0


def linear(gains: Sequence[float]) -> Expert:
    """Pushes the way that a weighted sum of the observation says."""
    return lambda episode: int(np.dot(gains, episode.observation) > 0)


def swing(brake: float) -> Expert:
    """Pumps energy into an acrobot: the torque follows the second joint, less a share of the first."""
    return lambda episode: 2 if episode.observation[5] > brake * episode.observation[4] else 0


def pump(episode: Episode) -> int:
    """Pushes a mountain car the way it rolls."""
    return 2 if episode.observation[1] >= 0 else 0


def pump_and_turn(episode: Episode) -> int:
    """The same, but turns before it runs into the wall on the left."""
    return 2 if episode.observation[0] < -1.1 else pump(episode)


def land(favour: float) -> Expert:
    """Gymnasium's own heuristic of the lander; it fires the main engine where that needs `favour` times as much."""
    return lambda episode: landing(episode.observation, favour)


def lander() -> gymnasium.Env[Any, Any]:
    """A lander that tumbles turns farther than its observation space says: clipped."""
    env = gymnasium.make("LunarLander-v3")
    space: Any = env.observation_space
    return gymnasium.wrappers.TransformObservation(env, lambda seen: np.clip(seen, space.low, space.high), space)


def _made(name: str, **options: Any) -> MakeEnv:
    return lambda: gymnasium.make(name, **options)


def _by_table(name: str, make: MakeEnv, horizon: int, distance: Any = "success") -> Bench:
    return Bench(name, make, planned(make), horizon, distance)


def _minigrid(name: str, level: str, horizon: int, planes: bool = True) -> Bench:
    return Bench(name, minigrid_level(level, planes), ties(right_in_minigrid), horizon, needs="minigrid")


DEVELOPMENT = (
    _by_table("taxi", _made("Taxi-v4"), horizon=40),
    _by_table("frozen-lake", _made("FrozenLake-v1", map_name="8x8", is_slippery=False), horizon=40),
    Bench(
        "cart-pole",
        _made("CartPole-v1"),
        {"calm": linear((0.05, 0.15, 1.0, 0.3)), "lively": linear((0.1, 0.25, 1.0, 0.5))},
        horizon=200,
        distance="steps",
    ),
    Bench("acrobot", _made("Acrobot-v1"), {"both": swing(0.5), "second": swing(0.8)}, 200, terminated),
    _minigrid("empty-image", "MiniGrid-Empty-Random-6x6-v0", horizon=30, planes=False),
    _minigrid("crossing", "MiniGrid-SimpleCrossingS9N1-v0", horizon=50),
    Bench("cells", Cells, ties(right_in_cells), horizon=40),
)
REPORTED = (
    _by_table("cliff", _made("CliffWalking-v1"), horizon=50, distance=terminated),
    Bench("mountain-car", _made("MountainCar-v0"), {"pump": pump, "turn": pump_and_turn}, 200, terminated),
    _minigrid("lava-gap", "MiniGrid-LavaGapS5-v0", horizon=30),
    _minigrid("door-key", "MiniGrid-DoorKey-5x5-v0", horizon=50),
    Bench("lander", lander, {"own": land(1.0), "upright": land(1.5)}, 400, needs="Box2D"),
)
SETS: Mapping[str, tuple[Bench, ...]] = {"development": DEVELOPMENT, "reported": REPORTED}
