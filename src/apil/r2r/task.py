"""R2R: follow an instruction through a house to a place, on the graphs of a compiled world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn import Module

from apil.errors import ApilError
from apil.r2r.houses_folder import default_houses
from apil.r2r.oracle import STOP, reference_actions
from apil.r2r.scenes import Panoramas
from apil.r2r.text import mirror_words
from apil.r2r.world import World
from apil.rng import Draws
from apil.types import ActionBox, Observation, Picture, Reference

Reading = Literal["closer", "literal"]

LEADING = 4
"""Features of an observation before the flags of the exits: instruction, viewpoint, heading, last action."""


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
    step: Tensor
    """Long: moves and waits so far."""
    stopped: Tensor
    """Bool: the agent has said that it is there."""


class R2R:
    """Stop or walk to a neighbour; within 3 m of the goal after at most T steps is a success.

    What the agent sees is the panorama of the viewpoint it stands on, by index into `panoramas`, the geometry of the
    exits, and which exits lead back to where it has been. It never sees the map, the goal or a panorama from afar.
    """

    name = "r2r"
    box: ActionBox | None = None
    encoder: Callable[[], Module] | None = None
    batch = 100
    success_distance = 3.0

    def __init__(
        self, data: str = "", horizon: int = 10, reading: Reading = "closer", held_out: int = 0, digest: str = ""
    ) -> None:
        """`data` is a compiled file or its folder; generated houses if empty. `digest` guards against other data.

        `held_out` scans of the train split, evenly spread, are kept out of training: the split 'held_out', for
        choosing hyperparameters.
        """
        if reading not in ("closer", "literal"):
            raise ApilError(f"reading is '{reading}': give closer or literal.")
        if not 1 <= horizon <= 1000:
            raise ApilError(f"horizon is {horizon}: give a number of steps from 1 to 1000.")
        self.data = data
        self.world = World.open(data_path(data))
        if digest not in ("", self.world.digest):
            raise ApilError(
                f"{data or 'The generated houses'} is not the data that the run was trained on: name that with --data."
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
        if self._held_out and split in ("train", "held_out"):
            return self._train_numbers(held_out=split == "held_out")
        episodes = self.world.split(split)
        if bool((episodes.goal < 0).any()):
            raise ApilError(f"The goals of the split '{split}' are not public: use val_unseen.")
        return torch.arange(len(episodes.start)) + self._first(split)

    def _first(self, split: str) -> int:
        """The number of the first episode of a split."""
        names = list(self.world.splits)
        return sum(len(self.world.splits[name].start) for name in names[: names.index(split)])

    def _train_numbers(self, held_out: bool) -> Tensor:
        """The episodes of the train split in the scans that are held out, or in the others."""
        start = self.world.split("train").start
        scan = self.world.scan[start]
        scans = torch.tensor(sorted(set(scan.tolist())))
        if not 1 <= self._held_out < len(scans):
            raise ApilError(
                f"held-out is {self._held_out}: give 0 (none) to {len(scans) - 1}, since there are {len(scans)} train "
                "scans."
            )
        kept_out = scans[torch.arange(self._held_out) * len(scans) // self._held_out]
        return (torch.isin(scan, kept_out) == held_out).nonzero().squeeze(-1) + self._first("train")

    def on(self, episodes: Tensor) -> R2R:
        """The same task on just these episodes [n], in this order: `reset` then starts all of them."""
        other = object.__new__(R2R)
        other.__dict__.update(self.__dict__)
        other._fixed = episodes
        return other

    def of_split(self, split: str) -> R2R:
        """The same task with the episodes of another split."""
        other = object.__new__(R2R)
        other.__dict__.update(self.__dict__)
        other.split, other.episodes, other._fixed = split, self._numbers(split), None
        return other

    def shuffled(self) -> R2R:
        """The same task, but each episode of the split comes with the instruction of another one, half the split away:
        what remains is what an agent can do without language."""
        other = object.__new__(R2R)
        other.__dict__.update(self.__dict__)
        other._reads = torch.arange(len(self._starts))
        other._reads[self.episodes] = self.episodes.roll(len(self.episodes) // 2)
        return other

    def reset(self, draws: Draws, episodes: int) -> Walk:
        """Episodes drawn from the split, each as likely as any other."""
        if self._fixed is not None:
            assert len(self._fixed) == episodes
            chosen = self._fixed.expand(draws.runs, -1)
        else:
            place = (draws.uniform(episodes).double() * len(self.episodes)).long()
            chosen = self.episodes[place.clamp_max(len(self.episodes) - 1)]
        return self.start(chosen)

    def start(self, episode: Tensor) -> Walk:
        """The first states of episodes [runs, n]."""
        at = self._starts[episode]
        visited = torch.full((*episode.shape, self.horizon + 1), -1)
        visited[..., 0] = at
        zero = torch.zeros_like(episode)
        return Walk(episode, at, self._headings[episode], zero, zero - 1, visited, zero, zero.bool())

    @cached_property
    def _starts(self) -> Tensor:
        return torch.cat([split.start for split in self.world.splits.values()])

    @cached_property
    def _headings(self) -> Tensor:
        return torch.cat([split.heading for split in self.world.splits.values()])

    @cached_property
    def goals(self) -> Tensor:
        """[all episodes] long: the goal of each; -1 where it is not public."""
        return torch.cat([split.goal for split in self.world.splits.values()])

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
        return Panoramas(
            tokens=torch.cat([split.tokens for split in world.splits.values()]),
            words=len(world.vocabulary),
            mirrored=torch.tensor(mirror_words(world.vocabulary)),
            read=world.read,
            glove=world.glove,
            captions=world.captions if "captions" in world.features else None,
            objects=world.objects if "objects" in world.features else None,
            rooms=world.room if "rooms" in world.features else None,
            room_names=len(world.room_names),
            images=world.images,
            exits=world.neighbours >= 0,
            heading=world.heading,
            elevation=world.elevation,
            length=world.length,
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
        step = state.step + 1
        place = step.clamp_max(self.horizon).unsqueeze(-1)
        visited = state.visited.scatter(-1, place, torch.where(stopped, -1, at).unsqueeze(-1))
        return replace(
            state,
            at=at,
            heading=torch.where(stopped, state.heading, heading),
            last=torch.where(state.stopped, state.last, action),
            came=torch.where(stopped, state.came, state.at),
            visited=visited,
            step=step,
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
        for name, split in self.world.splits.items():
            if episode < len(split.start):
                return f"{name} {split.names[episode]}"
            episode -= len(split.start)
        raise IndexError

    def instruction(self, episode: int) -> str:
        """The words of an episode's instruction, as the agent reads them."""
        tokens = self.panoramas.tokens[episode]
        return " ".join(self.world.vocabulary[int(word)] for word in tokens[tokens > 2])

    def picture(self, state: Walk, run: int, episode: int) -> Picture:
        """The neighbourhood from above, 15 x 31 cells of half a metre: 'A' agent, 'G' goal, 'o' exits, '.' nothing."""
        return top_view(self.world, int(state.at[run, episode]), int(self.goals[state.episode[run, episode]]))

    def contested(self) -> Observation:
        """The first 200 starts of the split at which several reference actions lead on."""
        state = self.start(self.episodes.unsqueeze(0))
        several = (self.reference(state).count[0] > 1).nonzero().flatten()[:200]
        return self.observe(self.start(self.episodes[several].unsqueeze(0)))


def top_view(world: World, at: int, goal: int, *, rows: int = 15, columns: int = 31) -> Picture:
    """A board of cells around a viewpoint, north up; what lies outside is drawn at the border."""
    board = [["."] * columns for _ in range(rows)]

    def put(viewpoint: int, mark: str) -> None:
        east, north = (world.position[viewpoint] - world.position[at])[:2].tolist()
        row = min(max(rows // 2 - round(north / 0.5), 0), rows - 1)
        column = min(max(columns // 2 + round(east / 0.5), 0), columns - 1)
        board[row][column] = mark

    for exit_to in world.neighbours[at].tolist():
        if exit_to >= 0:
            put(exit_to, "o")
    put(goal, "G")
    put(at, "A")
    return Picture(tuple("".join(row) for row in board))


def data_path(data: str) -> Path:
    """The compiled data: as given, or generated houses, made on first use."""
    return Path(data) if data else default_houses()
