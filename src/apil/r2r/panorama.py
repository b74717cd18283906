"""Seeing: what a viewpoint shows becomes vectors for its eight directions and its exits, and what the agent makes of
them at a step: tokens of what it sees, what it looks for, and logits of the candidates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from apil.nn import Parameters, initial_normal
from apil.r2r import transformer
from apil.r2r.layout import DIRECTIONS
from apil.r2r.scenes import LEADING, Panoramas
from apil.r2r.transformer import Drop, Weights, affine, attend_to, feed_forward, linear_parameters, norm, pick, same
from apil.rng import Streams

_GEOMETRY = 11
"""Numbers that describe an exit."""

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

    def table(self, rows: Tensor, actions: int, fill: float) -> Tensor:
        """Rows of candidates [M, ...] -> [n, A, ...], with `fill` where there is none."""
        empty = rows.new_full((len(self.here) * actions, *rows.shape[1:]), fill)
        return empty.index_copy(0, self.step * actions + self.action, rows).view(-1, actions, *rows.shape[1:])


def sight_parameters(streams: Streams, see: Panoramas, size: int) -> Parameters:
    """Weights of `glance`."""
    sizes = {name: (size, size) for name in ("captions", "objects") if getattr(see, name) is not None}
    if see.images is not None:
        sizes["images"] = (see.images.shape[-1], size)
    made = linear_parameters(streams, sizes)
    if see.rooms is not None:
        made["rooms"] = initial_normal(streams, "rooms", (see.room_names, size)) * 0.1
    made |= linear_parameters(streams, {"around": (4, size), "exits": (_GEOMETRY, size)})
    made["stop"] = initial_normal(streams, "stop", (size,)) * 0.1
    made |= transformer.norm_parameters("candidate.n", size)
    return made | transformer.feed_forward_parameters(streams, "candidate.f", size)


def glance(
    weights: Weights,
    see: Panoramas,
    words: Tensor,
    features: Tensor,
    keep: Keep | None = None,
    rates: tuple[float, float] = (0.0, 0.0),
    side: Tensor | None = None,
) -> Glance:
    """Looks around at n steps.

    `words` [W, d] are the word vectors, `features` [n, 4 + 2 D] the observations. `keep` drops shown words and parts of
    the directions at the two `rates`, in learning. `side` [n] is -1 where the place is seen in a mirror, else 1."""
    count, place, heading = len(features), features[:, 1].long(), features[:, 2]
    seen, bare = _directions(weights, see, words, place, keep, rates)
    side = torch.ones_like(heading) if side is None else side
    angle = (torch.arange(DIRECTIONS) * (2 * math.pi / DIRECTIONS) - heading.unsqueeze(-1)) * side.unsqueeze(-1)
    here = weights["rooms"][see.rooms[place]] if see.rooms is not None else seen.new_zeros(count, seen.shape[-1])
    choice = torch.cat([torch.ones(count, 1, dtype=torch.bool), see.exits[place]], 1)
    step, action = choice.nonzero(as_tuple=True)
    slot = (action - 1).clamp_min(0)
    toward = see.heading[place[step], slot]
    direction = step * DIRECTIONS + (toward / (2 * math.pi / DIRECTIONS)).round().long() % DIRECTIONS
    leads = seen.flatten(0, 1).index_select(0, direction)
    turn = (toward - heading[step]) * side[step]
    leads = leads + affine(weights, "exits", _geometry(see, features[step], slot, turn))
    stop = (weights["stop"] + here + seen.mean(1)).index_select(0, step)
    is_stop = (action == 0).unsqueeze(-1)
    candidates = torch.where(is_stop, stop, leads)
    inner = norm(weights, "candidate.n", candidates)
    return Glance(
        around=seen + affine(weights, "around", _turned(angle)),
        here=here,
        candidates=candidates + feed_forward(weights, "candidate.f", inner),
        shown=torch.where(is_stop, bare.mean(1).index_select(0, step), bare.flatten(0, 1).index_select(0, direction)),
        step=step,
        action=action,
    )


def _turned(angle: Tensor) -> Tensor:
    """[...] radians -> [..., 4]"""
    return torch.stack([angle.sin(), angle.cos(), (2 * angle).sin(), (2 * angle).cos()], -1)


def _geometry(see: Panoramas, features: Tensor, slot: Tensor, turn: Tensor) -> Tensor:
    """[M, 11]: turn, slope and length of an exit; whether it leads back, and to a place visited before."""
    place, rows = features[:, 1].long(), torch.arange(len(features))
    slope, steep = see.elevation[place, slot], torch.pi / 12
    numbers = [2 * slope.sin(), slope.cos(), slope > steep, slope < -steep, see.length[place, slot] / 3.0]
    flags = features[:, LEADING:].reshape(len(rows), 2, -1)[rows, :, slot]
    return torch.cat([_turned(turn), torch.stack([number.float() for number in numbers], -1), flags], -1)


def _directions(
    weights: Weights, see: Panoramas, words: Tensor, place: Tensor, keep: Keep | None, rates: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """What each direction shows [n, 8, d], and the same as bare word vectors."""
    count, size = len(place), words.shape[-1]
    seen = bare = words.new_zeros(count * DIRECTIONS, size)
    for name, table in (("captions", see.captions), ("objects", see.objects)):
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


def step_tokens(weights: Weights, seen: Glance, around: Tensor, came: Tensor, time: Tensor) -> Tensor:
    """[n, d]: what enters the decoder at a step: the action that led here, the time, the room, and what of the
    panorama these make the agent look at."""
    tokens = affine(weights, "last", came) + weights["step.at"][time] + seen.here
    query = affine(weights, "around.q", tokens).unsqueeze(1)
    score = (query @ around.transpose(1, 2) / math.sqrt(tokens.shape[-1])).softmax(-1)
    return tokens + (score @ around).squeeze(1)


def look_again(weights: Weights, rows: Tensor, around: Tensor, heads: int, drop: Drop = same) -> Tensor:
    """[n, d]: after reading, a second look at the panorama [n, 8, d], for what was read of."""
    asking = norm(weights, "again.n", rows).unsqueeze(1)
    return rows + drop(attend_to(weights, "again", asking, around, None, heads).squeeze(1))


def look_for(weights: Weights, table: Tensor, text: Tensor, bare: Tensor, bias: Tensor) -> Tensor:
    """[n, steps, d]: the bare words [n, L, d] that the states pick from the text [n, L, d], turned a little."""
    queries = affine(weights, "look.q", table) @ (weights["look.k.w"] / math.sqrt(table.shape[-1]))
    return functional.linear(pick(queries, text, bare, bias), weights["sought.w"])


def match(weights: Weights, seen: Glance, sought: Tensor) -> Tensor:
    """[M]: how well the words shown towards each candidate fit the words that its state looks for."""
    return (sought * seen.shown).sum(-1) * (weights["match"] / math.sqrt(sought.shape[-1]))
