"""What simulated teachers may know: the reference actions of a viewpoint on the way to a goal."""

from __future__ import annotations

import torch
from torch import Tensor

from apil.r2r.world import World

STOP = 0
"""The action; action 1 + i takes exit i."""


def reference_actions(world: World, at: Tensor, goal: Tensor, literal: bool = False) -> tuple[Tensor, Tensor]:
    """The ordered reference actions [..., 1 + D] long and their count [...] long, at least 1; what stands from `count`
    on means nothing. `at` and `goal` are viewpoints, [...] long.

    Let s' be the next viewpoint on the shortest path from where the agent stands. Reference actions lead to s' and to
    neighbours at most 60 degrees from it (angle of the segments in space) that are strictly closer to the goal than
    the agent; s' first, then in the order of the graph file. The literal reading leaves the closer condition out.
    At the goal, and where no path leads to it, the only one is to stop."""
    slot = world.next_slot(at, goal)
    there = slot < 0
    chosen = slot.clamp_min(0)
    exits = world.neighbours[at]
    wanted = world.similar[at, chosen]
    if not literal:
        to = exits.clamp_min(0)
        goals = goal.unsqueeze(-1).expand_as(to)
        wanted = wanted & (world.distance(to, goals) < world.distance(at, goal).unsqueeze(-1))
    slots = torch.arange(exits.shape[-1], device=exits.device)
    first = slots == chosen.unsqueeze(-1)
    rank = torch.where(wanted | first, slots, exits.shape[-1]).masked_fill(first, -1)
    moves = 1 + rank.argsort(dim=-1, stable=True)
    actions = torch.cat((moves, torch.zeros_like(moves[..., :1])), -1)
    count = (wanted | first).sum(-1)
    return actions.masked_fill(there.unsqueeze(-1), STOP), torch.where(there, 1, count)
