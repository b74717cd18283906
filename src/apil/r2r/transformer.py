"""Pieces of transformers as functions of named weights. Token-wise layers see packed rows [rows, d] of sequences of
different lengths without padding; only attention pads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from apil.nn import Parameters, initial_uniform
from apil.rng import Streams

Weights = Mapping[str, Tensor]
"""Named weights of one run, without the runs axis."""
Drop = Callable[[Tensor], Tensor]
"""Dropout of a branch."""
same: Drop = torch.nn.Identity()
"""None, as while acting."""


def linear_parameters(streams: Streams, sizes: Mapping[str, tuple[int, int]], bias: bool = True) -> Parameters:
    """Linear layers by name, each from (inputs, outputs): uniform in ±1/sqrt(fan in), torch's default."""
    made = {}
    for name, (inputs, outputs) in sizes.items():
        bound = 1.0 / math.sqrt(inputs)
        made[f"{name}.w"] = initial_uniform(streams, f"{name}.w", (outputs, inputs), bound)
        if bias:
            made[f"{name}.b"] = initial_uniform(streams, f"{name}.b", (outputs,), bound)
    return made


def norm_parameters(name: str, size: int) -> Parameters:
    """A layer norm of one run that begins as one without scale and shift."""
    return {f"{name}.w": torch.ones(1, size), f"{name}.b": torch.zeros(1, size)}


def attention_parameters(streams: Streams, name: str, size: int) -> Parameters:
    """Projections of queries, of keys and values in one, and of the outcome."""
    sizes = {f"{name}.q": (size, size), f"{name}.kv": (size, 2 * size), f"{name}.o": (size, size)}
    return linear_parameters(streams, sizes)


def feed_forward_parameters(streams: Streams, name: str, size: int) -> Parameters:
    """Two layers with a rectifier between."""
    return linear_parameters(streams, {f"{name}.1": (size, 2 * size), f"{name}.2": (2 * size, size)})


def affine(weights: Weights, name: str, rows: Tensor) -> Tensor:
    """[..., in] -> [..., out]"""
    return functional.linear(rows, weights[f"{name}.w"], weights.get(f"{name}.b"))


def norm(weights: Weights, name: str, rows: Tensor) -> Tensor:
    """[..., d] -> [..., d]"""
    return functional.layer_norm(rows, rows.shape[-1:], weights[f"{name}.w"], weights[f"{name}.b"])


def feed_forward(weights: Weights, name: str, rows: Tensor) -> Tensor:
    """[..., d] -> [..., d]"""
    return affine(weights, f"{name}.2", functional.relu(affine(weights, f"{name}.1", rows)))


@dataclass(frozen=True)
class Packing:
    """Rows of `count` sequences side by side, and where each stands in the padded [count, width] table."""

    place: Tensor
    """[rows] long: into the flattened table."""
    count: int
    width: int
    bias: Tensor
    """[count, 1, width] float: 0 for rows, minus infinity for padding; added to attention scores."""

    @staticmethod
    def of(present: Tensor) -> Packing:
        """From a mask [count, width] of the places that hold a row; every sequence has at least one."""
        count, width = present.shape
        bias = torch.zeros(count, 1, width).masked_fill(~present[:, None], -torch.inf)
        return Packing(present.flatten().nonzero().squeeze(-1), count, width, bias)

    def pad(self, rows: Tensor) -> Tensor:
        """[rows, d] -> [count, width, d], zeros as padding."""
        table = rows.new_zeros(self.count * self.width, rows.shape[-1]).index_copy_(0, self.place, rows)
        return table.view(self.count, self.width, -1)

    def pack(self, table: Tensor) -> Tensor:
        """[count, width, d] -> [rows, d]"""
        return table.flatten(0, 1).index_select(0, self.place)


def heads_of(table: Tensor, heads: int) -> Tensor:
    """[n, width, d] -> [n, heads, width, d / heads]"""
    return table.view(*table.shape[:-1], heads, -1).transpose(1, 2)


def packed_keys_values(
    weights: Weights, name: str, rows: Tensor, packing: Packing, heads: int
) -> tuple[Tensor, Tensor]:
    """Keys and values of packed rows, each [n, heads, width, d / heads]; the product is taken without padding."""
    keys, values = packing.pad(affine(weights, f"{name}.kv", rows)).chunk(2, -1)
    return heads_of(keys, heads).contiguous(), heads_of(values, heads).contiguous()


def encode(weights: Weights, name: str, rows: Tensor, packing: Packing, heads: int, drop: Drop = same) -> Tensor:
    """One encoder layer, norms first: packed rows attend to all rows of their own sequence."""
    inner = norm(weights, f"{name}.n1", rows)
    queries = heads_of(packing.pad(affine(weights, f"{name}.a.q", inner)), heads)
    keys, values = packed_keys_values(weights, f"{name}.a", inner, packing, heads)
    mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=packing.bias.unsqueeze(1))
    mixed = packing.pack(mixed.transpose(1, 2).flatten(2))
    rows = rows + drop(affine(weights, f"{name}.a.o", mixed))
    return rows + drop(feed_forward(weights, f"{name}.f", norm(weights, f"{name}.n2", rows)))


def layer_parameters(streams: Streams, name: str, size: int, *, decoder: bool = False) -> Parameters:
    """Weights of `encode`, or of `decode`."""
    made = norm_parameters(f"{name}.n1", size) | attention_parameters(streams, f"{name}.a", size)
    made |= norm_parameters(f"{name}.n2", size) | feed_forward_parameters(streams, f"{name}.f", size)
    if decoder:
        made |= norm_parameters(f"{name}.n3", size) | attention_parameters(streams, f"{name}.c", size)
    return made


def attend_to(weights: Weights, name: str, rows: Tensor, table: Tensor, bias: Tensor | None, heads: int) -> Tensor:
    """Attention of `rows` [n, q, d] over a `table` [n, width, d], projected: [n, q, d].

    Keys and values are never made, as there are fewer queries than rows of the table: the weights of the keys turn
    the queries, and those of the values what was picked. The bias of the keys would add the same to all scores of a
    query and is left out. `bias` [n or 1, q * heads or 1, width] is added to the scores."""
    count, asking, size = rows.shape
    of_keys, of_values = weights[f"{name}.kv.w"].view(2, heads, size // heads, size)
    queries = affine(weights, f"{name}.q", rows).view(count * asking, heads, -1).transpose(0, 1)
    # Weights are the fewest numbers to scale.
    queries = torch.bmm(queries, of_keys / math.sqrt(size // heads)).transpose(0, 1)
    picked = pick(queries.reshape(count, asking * heads, size), table, table, bias)
    picked = picked.view(count * asking, heads, size).transpose(0, 1)
    mixed = torch.bmm(picked, of_values.mT).transpose(0, 1).reshape(count, asking, size)
    return affine(weights, f"{name}.o", mixed + weights[f"{name}.kv.b"][size:])


def pick(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
    """[n, q, d]: what the `queries` [n, q, d] pick from the `values` [n, width, d]."""
    scores = torch.bmm(queries, keys.mT) if bias is None else torch.baddbmm(bias, queries, keys.mT)
    return torch.bmm(scores.softmax(-1), values)


def decode(
    weights: Weights,
    name: str,
    table: Tensor,
    before: Tensor | None,
    bias: Tensor | None,
    text: Tensor,
    text_bias: Tensor,
    heads: int,
    drop: Drop = same,
) -> tuple[Tensor, Tensor]:
    """One decoder layer, norms first: [n, steps, d] attends to the steps so far, then to the text [n, L, d].

    `before` is what earlier steps showed of themselves; returned is that of all steps so far, to go on from. `bias`
    hides later steps where several are given at once, `text_bias` [n, 1, L] the padding of the text."""
    inner = norm(weights, f"{name}.n1", table)
    so_far = inner if before is None else torch.cat([before, inner], 1)
    table = table + drop(attend_to(weights, f"{name}.a", inner, so_far, bias, heads))
    inner = norm(weights, f"{name}.n2", table)
    table = table + drop(attend_to(weights, f"{name}.c", inner, text, text_bias, heads))
    return table + drop(feed_forward(weights, f"{name}.f", norm(weights, f"{name}.n3", table))), so_far
