"""What an agent makes of a step: tokens of what it sees, what it looks for, and logits of the candidates."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional

from apil.r2r.panorama import Glance, Keep
from apil.r2r.transformer import Drop, Weights, affine, attend_to, norm, pick


def step_tokens(weights: Weights, seen: Glance, around: Tensor, came: Tensor, time: Tensor) -> Tensor:
    """[n, d]: what enters the decoder at a step: the action that led here, the time, the room, and what of the
    panorama these make the agent look at."""
    tokens = affine(weights, "last", came) + weights["step.at"][time] + seen.here
    query = affine(weights, "around.q", tokens).unsqueeze(1)
    score = (query @ around.transpose(1, 2) / math.sqrt(tokens.shape[-1])).softmax(-1)
    return tokens + (score @ around).squeeze(1)


def look_again(weights: Weights, rows: Tensor, around: Tensor, heads: int, drop: Drop) -> Tensor:
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


def compare(weights: Weights, seen: Glance, wanted: Tensor, sought: Tensor) -> Tensor:
    """[M]: the logits of the candidates."""
    return (wanted * seen.candidates).sum(-1) / math.sqrt(wanted.shape[-1]) + match(weights, seen, sought)


def same(branch: Tensor) -> Tensor:
    return branch


def dropping(keep: Keep, rate: float) -> Drop:
    return (lambda branch: branch * keep(rate, tuple(branch.shape))) if rate else same
