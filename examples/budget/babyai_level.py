"""A level of BabyAI, whose mission is given in words, with BabyAI's own bot among the teachers.

APIL_PLUGINS=examples/budget/babyai_level.py apil train --task go-to-local --teacher bot-three --query random \
--answer-budget 500 --out runs/go-to-local

BabyAI-GoToLocalS6N3: go to the one of three objects that the mission names by colour and kind. The planners know all of
the room; the bot sees what the agent sees, and turns round first where it does not see the object. The distance is the
number of actions until the agent stands before the object.
"""

from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from planners import FORWARD, HEADINGS, LEFT, RIGHT, WAYS, Cell, right_moves, steps_to, things_in

import apil
from apil.tasks import from_gymnasium
from apil.tasks.plane import Plane
from apil.teachers import Scripted, Team

OBJECTS, HORIZON = 3, 24
WORDS = ("red", "green", "blue", "purple", "yellow", "grey", "ball", "box", "key")
"""That tell objects apart; all missions share the others."""
Pose = tuple[Cell, int]
"""The agent's cell and heading."""


def words(text: str) -> NDArray[np.float32]:
    """[9]: a bag of words."""
    said = text.split()
    return np.array([word in said for word in WORDS], np.float32)


class Seen(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The room as a vector, seen from where the agent stands and the way it looks, and its planner.

    The words of the mission; the cells around that are blocked; and for each object, the nearest first, how far it is
    ahead and to the right, its words, and those of them that are in the mission too.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.world = world = cast(Any, env.unwrapped)
        size = len(WORDS) + 9 + OBJECTS * (2 + 2 * len(WORDS))
        self.observation_space = spaces.Box(-1.0, 1.0, (size,), np.float32)
        self.action_space = spaces.Discrete(3)
        world.gen_obs = dict  # its own view, which nobody reads, takes longer than all else

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        """A new room, and the plan for it."""
        with redirect_stdout(None):  # it prints which rooms it throws away
            self.env.reset(**given)
        things = things_in(self.world)
        self.mission = words(self.world.mission)
        objects = {cell: thing for cell, thing in things.items() if thing is not None and thing.type in WORDS}
        self.objects = {cell: words(f"{thing.color} {thing.type}") for cell, thing in objects.items()}
        self.wanted = {(int(x), int(y)) for x, y in self.world.instrs.desc.obj_poss}
        self.free = {cell for cell, thing in things.items() if thing is None}
        following = {pose: self.moves(pose) for pose in ((cell, heading) for cell in self.free for heading in range(4))}
        reached = [pose for pose in following if self.ahead(pose) in self.wanted]
        self.to_go = steps_to(reached, {pose: after.values() for pose, after in following.items()})
        self.blocked = np.ones((self.world.width, self.world.height), np.float32)
        for cell in self.free:
            self.blocked[cell] = 0
        return self.seen(), {}

    def step(self, action: int) -> Any:
        """Left, right or forward."""
        _, reward, terminated, truncated, _ = self.env.step(int(action))
        return self.seen(), reward, terminated, truncated, {}

    def pose(self) -> Pose:
        """Where the agent stands."""
        return (int(self.world.agent_pos[0]), int(self.world.agent_pos[1])), int(self.world.agent_dir)

    def ahead(self, pose: Pose) -> Cell:
        """The cell before the agent."""
        (x, y), (dx, dy) = pose[0], HEADINGS[pose[1]]
        return x + dx, y + dy

    def moves(self, pose: Pose) -> dict[int, Pose]:
        """Where the actions lead; one stays where the way is blocked."""
        cell, heading = pose
        ahead = self.ahead(pose)
        forward = (ahead if ahead in self.free else cell, heading)
        return {LEFT: (cell, (heading - 1) % 4), RIGHT: (cell, (heading + 1) % 4), FORWARD: forward}

    def seen(self) -> NDArray[np.float32]:
        """The observation."""
        ((x, y), heading), side = self.pose(), self.world.width
        dx, dy = HEADINGS[heading]
        around = np.rot90(self.blocked[x - 1 : x + 2, y - 1 : y + 2], -heading).reshape(-1)
        rows = []
        for (east, south), said in sorted(
            (((cell[0] - x, cell[1] - y), said) for cell, said in self.objects.items()),
            key=lambda row: (abs(row[0][0]) + abs(row[0][1]), row[0]),
        ):
            where = np.array([(east * dx + south * dy) / side, (south * dx - east * dy) / side], np.float32)
            rows += [where, said, said * self.mission]
        return np.concatenate([self.mission, around, *rows])

    def right(self) -> list[int]:
        """The actions on a shortest way."""
        pose = self.pose()
        return [FORWARD] if self.ahead(pose) in self.wanted else right_moves(self.to_go, self.moves(pose))


def distance(episode: Any) -> float:
    """Actions to go. An agent that begins before the object has to stay there for one."""
    return 0.0 if episode.terminated else max(1.0, float(episode.env.to_go[episode.env.pose()]))


def go_to_local() -> Any:
    """BabyAI-GoToLocalS6N3: a mission in words, and three objects."""
    from minigrid.envs.babyai import GoToLocal

    return from_gymnasium(
        lambda: Seen(GoToLocal(room_size=6, num_dists=OBJECTS)),
        distance=distance,
        horizon=HORIZON,
        name="go-to-local",
        action_names=("left", "right", "forward"),
    )


def bot(episode: Any, rng: np.random.Generator) -> int:
    """BabyAI's own, which plans from what the agent sees now. Where it would clear its way, it goes round instead."""
    from minigrid.utils.baby_ai_bot import BabyAIBot

    action = int(BabyAIBot(episode.unwrapped).replan())
    return action if action <= FORWARD else int(episode.env.right()[0])


def teachers(*names: str) -> Team:
    """By name: the bot, or planners who differ in which of several shortest ways they take."""
    scripts: Mapping[str, Any] = {
        "bot": bot,
        **{name: lambda episode, rng, way=way: way(episode.env.right(), rng) for name, way in WAYS.items()},
    }
    return Team({name: Scripted(scripts[name], privileged=True) for name in names})


def nearest(options: Mapping[str, Any]) -> Plane:
    """Where the nearest object lies, from the agent."""
    first = len(WORDS) + 9
    cells, bounds = (11, 11), (-5.5, 5.5, -5.5, 5.5)
    return Plane(
        lambda seen: 6.0 * seen[:, [first + 1, first]], "nearest object, right", "nearest object, ahead", cells, bounds
    )


apil.register_task("go-to-local", go_to_local, plane=nearest)
apil.register_teacher("bot-detm", lambda: teachers("bot"))
apil.register_teacher("bot-rand", lambda: teachers("drifter"))
apil.register_teacher("bot-twodif", lambda: teachers("bot", "turner"))
apil.register_teacher("bot-three", lambda: teachers("bot", "turner", "drifter"))
