"""R2R: follow an instruction through a house to a place, on the graphs of a compiled world."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Module

from apil.errors import ApilError
from apil.r2r.houses_folder import default_houses
from apil.r2r.options import R2RArguments
from apil.r2r.oracle import STOP, reference_actions
from apil.r2r.scenes import LEADING, Panoramas
from apil.r2r.shown import shown
from apil.r2r.text import mirror_words
from apil.r2r.world import World
from apil.rng import Draws
from apil.types import ActionBox, Observation, Picture, Reference

Reading = Literal["closer", "literal"]


@dataclass(frozen=True)
class Walk:
    """States of walking agents; every tensor leads with [runs, episodes]."""

    episode: Tensor
    """Long: the episode, numbered through all splits."""
    at: Tensor
    """Long: the viewpoint."""
    heading: Tensor
    """Float: radians clockwise from +y; of the annotation at first, then of the last move."""
    last: Tensor
    """Long: the last action; 0 before the first."""
    came: Tensor
    """Long: the viewpoint before the last move; -1 before the first."""
    visited: Tensor
    """[runs, episodes, T + 1] long: the viewpoints so far; -1 for steps to come."""
    stopped: Tensor
    """Bool: the agent has said that it is there."""


class R2R:
    """Stop or walk to a neighbour; within 3 m of the goal after at most T steps is a success.

    What the agent sees is the panorama of the viewpoint it stands on, by index into `panoramas`, the geometry of the
    exits, and which exits lead back to where it has been. It never sees the map, the goal or a panorama from afar."""

    name = "r2r"
    box: ActionBox | None = None
    encoder: Callable[[], Module] | None = None
    batch = 100
    success_distance = 3.0

    def __init__(
        self,
        data: str = "",
        horizon: int = 10,
        reading: Reading = "closer",
        held_out: int = 0,
        digest: str = "",
        tables: str = "",
    ) -> None:
        """`data` is a compiled file or its folder; generated houses if empty. `digest` guards against other data, and
        `tables`, their checksum, against the same data with changes.

        `held_out` scans of the train split, evenly spread, are kept for the split 'held_out', to tune on."""
        R2RArguments(horizon=horizon, reading=reading)
        self.data = data
        self.world = World.open(Path(data) if data else default_houses())
        if digest not in ("", self.world.digest):
            raise ApilError(
                f"{data or 'The generated houses'} is not the data that the run was trained on: name that with --data."
            )
        if tables not in ("", self.world.tables):
            raise ApilError(
                f"{data or 'The generated houses'} was changed since the run was trained on it (checksum "
                f"{self.world.tables[:12]}, not {tables[:12]}): restore it, or compile it again from the same files."
            )
        self.horizon = horizon
        self._held_out = held_out
        self._literal = reading == "literal"
        self.split, self.episodes = "train", self._numbers("train")
        self._fixed: Tensor | None = None
        self._reads: Tensor | None = None
        self.actions = 1 + self.world.neighbours.shape[1]
        self.state_size = LEADING + 2 * (self.actions - 1)
        self.action_names = ("stop", *(f"exit {number}" for number in range(1, self.actions)))

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits with goals."""
        known = [name for name, split in self.world.splits.items() if bool((split.goal >= 0).all())]
        return (*known, "held_out") if self._held_out else tuple(known)

    def _numbers(self, split: str) -> Tensor:
        """[E] long: the episodes of a split, numbered through all splits."""
        held_out = bool(self._held_out) and split == "held_out"
        name = "train" if held_out else split
        episodes = self.world.split(name)
        if bool((episodes.goal < 0).any()):
            raise ApilError(f"The goals of the split '{split}' are not public: use val_unseen.")
        before = list(self.world.splits)[: list(self.world.splits).index(name)]
        numbers = torch.arange(len(episodes.start)) + sum(len(self.world.splits[other].start) for other in before)
        if not self._held_out or name != "train":
            return numbers
        scan = self.world.scan[episodes.start]
        scans = torch.tensor(sorted(set(scan.tolist())))
        if not 1 <= self._held_out < len(scans):
            most = f"{len(scans) - 1}, since there are {len(scans)} train scans"
            raise ApilError(f"held-out is {self._held_out}: give 0 (none) to {most}.")
        kept_out = scans[torch.arange(self._held_out) * len(scans) // self._held_out]
        return numbers[torch.isin(scan, kept_out) == held_out]

    def _with(self, **changes: Any) -> R2R:
        """The same task with some attributes changed."""
        other = copy(self)
        other.__dict__.update(changes)
        return other

    def on(self, episodes: Tensor) -> R2R:
        """The same task on just these episodes [n], in this order: `reset` then starts all of them."""
        return self._with(_fixed=episodes)

    def of_split(self, split: str) -> R2R:
        """The same task with the episodes of another split."""
        return self._with(split=split, episodes=self._numbers(split), _fixed=None)

    def shuffled(self) -> R2R:
        """The same task, but each episode of the split comes with the instruction of another one, half the split away:
        what remains is what an agent can do without language."""
        reads = torch.arange(len(self.goals))
        reads[self.episodes] = self.episodes.roll(len(self.episodes) // 2)
        return self._with(_reads=reads)

    def reset(self, draws: Draws, episodes: int) -> Walk:
        """Episodes drawn from the split, each as likely as any other."""
        if self._fixed is not None:
            assert len(self._fixed) == episodes
            return self.start(self._fixed.expand(draws.runs, -1))
        place = (draws.uniform(episodes).double() * len(self.episodes)).long()
        return self.start(self.episodes[place.clamp_max(len(self.episodes) - 1)])

    def start(self, episode: Tensor) -> Walk:
        """The first states of episodes [runs, n]."""
        at = self._every["start"][episode]
        visited = torch.full((*episode.shape, self.horizon + 1), -1)
        visited[..., 0] = at
        zero = torch.zeros_like(episode)
        return Walk(episode, at, self._every["heading"][episode], zero, zero - 1, visited, zero.bool())

    @cached_property
    def _every(self) -> dict[str, Tensor]:
        """Tables of all episodes, split after split; see `Split`."""
        splits, names = self.world.splits.values(), ("start", "heading", "goal", "tokens")
        return {name: torch.cat([getattr(split, name) for split in splits]) for name in names}

    @property
    def goals(self) -> Tensor:
        """[all episodes] long: the goal of each; -1 where it is not public."""
        return self._every["goal"]

    @cached_property
    def paths(self) -> Tensor:
        """[all episodes, P] long: the annotated paths, then -1."""
        longest = max(split.path.shape[1] for split in self.world.splits.values())
        pad = torch.nn.functional.pad
        return torch.cat([pad(s.path, (0, longest - s.path.shape[1]), value=-1) for s in self.world.splits.values()])

    @cached_property
    def panoramas(self) -> Panoramas:
        """What there is to see at each viewpoint and to read in each episode; no neighbours, no goals, no distances."""
        world = self.world
        shown = {"captions": world.captions, "objects": world.objects, "rooms": world.room}
        tables: dict[str, Any] = {name: table if name in world.features else None for name, table in shown.items()}
        tables |= {name: getattr(world, name) for name in ("read", "glove", "images", "heading", "elevation", "length")}
        return Panoramas(
            tokens=self._every["tokens"],
            words=len(world.vocabulary),
            mirrored=torch.tensor(mirror_words(world.vocabulary)),
            room_names=len(world.room_names),
            exits=world.neighbours >= 0,
            **tables,
        )

    def observe(self, state: Walk) -> Observation:
        """Numbers of the instruction and the viewpoint, the heading, the last action, and two flags an exit: it leads
        back to where the agent came from; it leads to a viewpoint visited before."""
        exits = self.world.neighbours[state.at]
        back = exits == state.came.unsqueeze(-1)
        seen = (exits.unsqueeze(-1) == state.visited.unsqueeze(-2)).any(-1) & (exits >= 0)
        reads = state.episode if self._reads is None else self._reads[state.episode]
        leading = [reads, state.at, state.heading, state.last]
        features = torch.cat([torch.stack([x.float() for x in leading], -1), (back & seen).float(), seen.float()], -1)
        valid = torch.cat([torch.ones_like(exits[..., :1], dtype=torch.bool), exits >= 0], -1)
        return Observation(features, valid)

    def reference(self, state: Walk) -> Reference:
        """The oracle."""
        goal = self.goals[state.episode]
        actions, count = reference_actions(self.world, state.at, goal, self._literal)
        return Reference(actions, count, self.world.distance(state.at, goal))

    def step(self, state: Walk, action: Tensor) -> Walk:
        """Walks through the exit, or stops for good."""
        stopped = state.stopped | (action == STOP)
        slot = (action - 1).clamp_min(0).unsqueeze(-1)
        moved = self.world.neighbours[state.at].gather(-1, slot).squeeze(-1)
        heading = self.world.heading[state.at].gather(-1, slot).squeeze(-1)
        at = torch.where(stopped, state.at, moved)
        place = (state.visited >= 0).sum(-1, keepdim=True).clamp_max(self.horizon)
        return replace(
            state,
            at=at,
            heading=torch.where(stopped, state.heading, heading),
            last=torch.where(state.stopped, state.last, action),
            came=torch.where(stopped, state.came, state.at),
            visited=state.visited.scatter(-1, place, torch.where(stopped, -1, at).unsqueeze(-1)),
            stopped=stopped,
        )

    def distance(self, state: Walk) -> Tensor:
        """Metres along the shortest path to the goal."""
        return self.world.distance(state.at, self.goals[state.episode])

    def done(self, state: Walk) -> Tensor:
        """The agent has stopped."""
        return state.stopped

    def describe(self, state: Walk, run: int, episode: int) -> str:
        """Where the agent stands, and in which episode."""
        at = int(state.at[run, episode])
        scan, split = self.world.scans[int(self.world.scan[at])], self.name_of(int(state.episode[run, episode]))
        return f"viewpoint {self.world.viewpoints[at]} of {scan}, {split}"

    def name_of(self, episode: int) -> str:
        """An episode as 'split path_k'."""
        return [f"{split} {name}" for split, own in self.world.splits.items() for name in own.names][episode]

    def instruction(self, episode: int) -> str:
        """The words of an episode's instruction, as the agent reads them."""
        tokens = self.panoramas.tokens[episode]
        return " ".join(self.world.vocabulary[int(word)] for word in tokens[tokens > 2])

    def picture(self, state: Walk, run: int, episode: int) -> Picture:
        """The neighbourhood from above, 15 x 31 cells of half a metre, north up: 'A' agent, 'G' goal, 'o' exits, '.'
        nothing. What lies outside is drawn at the border."""
        at, goal = int(state.at[run, episode]), int(self.goals[state.episode[run, episode]])
        exits = [place for place in self.world.neighbours[at].tolist() if place >= 0]
        board = [["."] * 31 for _ in range(15)]
        for place, mark in (*((place, "o") for place in exits), (goal, "G"), (at, "A")):
            east, north = (self.world.position[place] - self.world.position[at])[:2].tolist()
            board[min(max(7 - round(north / 0.5), 0), 14)][min(max(15 + round(east / 0.5), 0), 30)] = mark
        return shown(self, state, run, episode, tuple("".join(row) for row in board))

    def contested(self) -> Observation:
        """The first 200 starts of the split at which several reference actions lead on."""
        state = self.start(self.episodes.unsqueeze(0))
        several = (self.reference(state).count[0] > 1).nonzero().flatten()[:200]
        return self.observe(self.start(self.episodes[several].unsqueeze(0)))
