"""Seeing: what a viewpoint shows becomes vectors for its eight directions and its exits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from apil.nn import Parameters, initial_normal
from apil.r2r.scenes import Panoramas
from apil.r2r.transformer import (
    Weights,
    affine,
    feed_forward,
    feed_forward_parameters,
    linear_parameters,
    norm,
    norm_parameters,
)
from apil.rng import Streams

DIRECTIONS = 8
_GEOMETRY = 9
_FLAGS = 2

Keep = Callable[[float, tuple[int, ...]], Tensor]
"""(rate, shape) -> a mask of 0 and 1 / (1 - rate): dropout in learning."""


@dataclass(frozen=True)
class Glance:
    """What the agents see at n steps. Candidates (stop, and the exits) are packed: M rows of all steps in order."""

    around: Tensor
    """[n, 8, d]: the directions of the panorama, as seen from the heading."""
    here: Tensor
    """[n, d]: the kind of room."""
    candidates: Tensor
    """[M, d]"""
    shown: Tensor
    """[M, d]: the bare words shown in the direction of a candidate; for stop, all around."""
    step: Tensor
    """[M] long: which of the n steps."""
    action: Tensor
    """[M] long: 0 stop, 1 + i exit i."""


def sight_parameters(streams: Streams, see: Panoramas, size: int) -> Parameters:
    """Weights of `glance`."""
    runs = len(streams.seeds)
    made: Parameters = {}
    for name in ("captions", "objects"):
        if getattr(see, name) is not None:
            made |= linear_parameters(streams, name, size, size)
    if see.images is not None:
        made |= linear_parameters(streams, "images", see.images.shape[-1], size)
    if see.rooms is not None:
        made["rooms"] = initial_normal(streams, "rooms", (see.room_names, size)) * 0.1
    made |= linear_parameters(streams, "around", 4, size)
    made |= linear_parameters(streams, "exits", _GEOMETRY + _FLAGS, size)
    made["stop"] = initial_normal(streams, "stop", (size,)) * 0.1
    made |= norm_parameters(runs, "candidate.n", size)
    return made | feed_forward_parameters(streams, "candidate.f", size)


def glance(
    weights: Weights,
    see: Panoramas,
    words: Tensor,
    place: Tensor,
    heading: Tensor,
    flags: Tensor,
    keep: Keep | None,
    rates: tuple[float, float],
    side: Tensor | None = None,
) -> Glance:
    """Looks around at n steps.

    `words` [W, d] are the word vectors; `place` [n] long, `heading` [n]; `flags` [n, 2 D]: exits that lead back, exits
    that lead to visited places. `keep` drops shown words and parts of the directions at the two `rates`, in learning.
    `side` [n] is -1 where the place is seen in a mirror, else 1.
    """
    count = len(place)
    seen, bare = _directions(weights, see, words, place, keep, rates)
    side = torch.ones_like(heading) if side is None else side
    angle = (torch.arange(DIRECTIONS) * (2 * math.pi / DIRECTIONS) - heading.unsqueeze(-1)) * side.unsqueeze(-1)
    turned = torch.stack([angle.sin(), angle.cos(), (2 * angle).sin(), (2 * angle).cos()], -1)
    here = weights["rooms"][see.rooms[place]] if see.rooms is not None else seen.new_zeros(count, seen.shape[-1])
    choice = torch.cat([torch.ones(count, 1, dtype=torch.bool), see.exits[place]], 1)
    step, action = choice.nonzero(as_tuple=True)
    slot = (action - 1).clamp_min(0)
    toward = see.heading[place[step], slot]
    direction = step * DIRECTIONS + (toward / (2 * math.pi / DIRECTIONS)).round().long() % DIRECTIONS
    leads = seen.flatten(0, 1).index_select(0, direction)
    turn = (toward - heading[step]) * side[step]
    leads = leads + affine(weights, "exits", _geometry(see, place[step], slot, turn, flags[step]))
    stop = (weights["stop"] + here + seen.mean(1)).index_select(0, step)
    is_stop = (action == 0).unsqueeze(-1)
    candidates = torch.where(is_stop, stop, leads)
    inner = norm(weights, "candidate.n", candidates)
    return Glance(
        around=seen + affine(weights, "around", turned),
        here=here,
        candidates=candidates + feed_forward(weights, "candidate.f", inner),
        shown=torch.where(is_stop, bare.mean(1).index_select(0, step), bare.flatten(0, 1).index_select(0, direction)),
        step=step,
        action=action,
    )


def _geometry(see: Panoramas, place: Tensor, slot: Tensor, turn: Tensor, flags: Tensor) -> Tensor:
    """[M, 11]: turn, slope and length of an exit; whether it leads back, and to a place visited before."""
    slope, length = see.elevation[place, slot], see.length[place, slot]
    exits = see.exits.shape[1]
    steep = torch.pi / 12
    return torch.stack(
        [
            turn.sin(),
            turn.cos(),
            (2 * turn).sin(),
            (2 * turn).cos(),
            2 * slope.sin(),
            slope.cos(),
            (slope > steep).float(),
            (slope < -steep).float(),
            length / 3.0,
            flags.gather(1, slot.unsqueeze(1)).squeeze(1),
            flags.gather(1, exits + slot.unsqueeze(1)).squeeze(1),
        ],
        -1,
    )


def _directions(
    weights: Weights, see: Panoramas, words: Tensor, place: Tensor, keep: Keep | None, rates: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """What each direction shows [n, 8, d], and the same as bare word vectors."""
    count, size = len(place), words.shape[-1]
    seen = bare = words.new_zeros(count * DIRECTIONS, size)
    for name in ("captions", "objects"):
        table: Tensor | None = getattr(see, name)
        if table is not None:
            bag = _bag(words, table[place].flatten(0, 1), keep, rates[0])
            bare = bare + bag
            seen = seen + affine(weights, name, bag)
    if see.images is not None:
        seen = seen + affine(weights, "images", see.images[place].flatten(0, 1).float())
    if keep is not None and rates[1]:
        seen = seen * keep(rates[1], (count * DIRECTIONS, size))
    return seen.view(count, DIRECTIONS, size), bare.view(count, DIRECTIONS, size)


def _bag(words: Tensor, shown: Tensor, keep: Keep | None, rate: float) -> Tensor:
    """[rows, d]: the sum of the word vectors of each row of `shown` [rows, C], over the root of their number."""
    present = shown > 0
    if keep is not None and rate:
        present = present & (keep(rate, tuple(shown.shape)) > 0)
    count = present.sum(1)
    total = functional.embedding_bag(shown[present].int(), words, (count.cumsum(0) - count).int(), mode="sum")
    return total / count.clamp_min(1).sqrt().unsqueeze(1)
