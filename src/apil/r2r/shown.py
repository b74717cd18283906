"""What a person is shown of a state of R2R: the instruction, what lies in each direction, and a map."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from apil.types import Picture, Sketch

if TYPE_CHECKING:
    from apil.r2r.task import R2R, Walk

_SIDES = ("ahead", "ahead right", "right", "behind right", "behind", "behind left", "left", "ahead left")
_REACH = 12.0
"""Metres around the agent that the map shows."""
_STOREY = 1.5
"""Metres of height within which a viewpoint is on the same floor."""
_WORDS = 8
"""Words of a direction."""


def shown(task: R2R, state: Walk, run: int, episode: int, cells: tuple[str, ...]) -> Picture:
    """The picture of one state; `cells` is the board for a terminal."""
    words = task.instruction(int(state.episode[run, episode]))
    return Picture(
        cells, text=words, views=_views(task, state, run, episode), sketch=_sketch(task, state, run, episode)
    )


def _views(task: R2R, state: Walk, run: int, episode: int) -> tuple[tuple[str, str], ...]:
    """For each exit its number, where it lies as seen by the agent, and what can be seen there."""
    world, at = task.world, int(state.at[run, episode])
    heading = float(state.heading[run, episode])
    room = world.room_names[int(world.room[at])]
    found = [("here", f"in a {room}" if int(world.room[at]) else "")]
    for number, to in enumerate(world.neighbours[at].tolist(), 1):
        if to < 0:
            continue
        towards = float(world.heading[at, number - 1])
        side = _SIDES[round((towards - heading) / (math.pi / 4)) % 8]
        found.append((f"exit {number}: {side}, {float(world.length[at, number - 1]):.1f} m", _seen(task, at, towards)))
    return tuple((title, text) for title, text in found if text or title != "here")


def _seen(task: R2R, at: int, heading: float) -> str:
    """The words of what can be seen from a viewpoint in a direction."""
    world, direction = task.world, round(heading / (math.pi / 4)) % 8
    tables = {"captions": world.captions, "objects": world.objects}
    ids = [int(word) for name, table in tables.items() if name in world.features for word in table[at, direction]]
    words = dict.fromkeys(world.vocabulary[word] for word in ids if word > 2)
    return ", ".join(list(words)[:_WORDS])


def _sketch(task: R2R, state: Walk, run: int, episode: int) -> Sketch:
    """The viewpoints around the agent, the way it came, the goal, and the exits by number."""
    world, at = task.world, int(state.at[run, episode])
    goal = int(task.goals[state.episode[run, episode]])
    visited = [int(place) for place in state.visited[run, episode] if place >= 0]
    offset = world.position - world.position[at]
    near = (world.scan == world.scan[at]) & (offset[:, :2].norm(dim=-1) < _REACH) & (offset[:, 2].abs() < _STOREY)
    kept = sorted({*near.nonzero().flatten().tolist(), *visited, at, *([goal] if goal >= 0 else [])})
    number = {place: row for row, place in enumerate(kept)}
    exits = world.neighbours[at].tolist()
    return Sketch(
        places=tuple((float(x), float(y)) for x, y in offset[kept][:, :2].tolist()),
        lines=tuple(
            (number[a], number[b]) for a in kept for b in world.neighbours[a].tolist() if b > a and b in number
        ),
        agent=number[at],
        heading=float(state.heading[run, episode]),
        goal=number.get(goal),
        way=tuple(number[place] for place in visited),
        labels=tuple((number[to], str(slot)) for slot, to in enumerate(exits, 1) if to in number),
    )
