"""Pieces of transformers as functions of named weights, with room for packed rows.

Rows of different lengths are packed: token-wise layers see [rows, d] without padding, and only attention pads.
"""

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
"""Dropout of a branch; the identity while acting."""


def linear_parameters(streams: Streams, name: str, inputs: int, outputs: int, *, bias: bool = True) -> Parameters:
    """Uniform in ±1/sqrt(fan in), torch's default for a linear layer."""
    bound = 1.0 / math.sqrt(inputs)
    made = {f"{name}.w": initial_uniform(streams, f"{name}.w", (outputs, inputs), bound)}
    if bias:
        made[f"{name}.b"] = initial_uniform(streams, f"{name}.b", (outputs,), bound)
    return made


def norm_parameters(runs: int, name: str, size: int) -> Parameters:
    """A layer norm that begins as one without scale and shift."""
    return {f"{name}.w": torch.ones(runs, size), f"{name}.b": torch.zeros(runs, size)}


def attention_parameters(streams: Streams, name: str, size: int) -> Parameters:
    """Projections of queries, of keys and values in one, and of the outcome."""
    made = linear_parameters(streams, f"{name}.q", size, size)
    made |= linear_parameters(streams, f"{name}.kv", size, 2 * size)
    return made | linear_parameters(streams, f"{name}.o", size, size)


def feed_forward_parameters(streams: Streams, name: str, size: int, factor: int = 2) -> Parameters:
    """Two layers with a rectifier between."""
    made = linear_parameters(streams, f"{name}.1", size, factor * size)
    return made | linear_parameters(streams, f"{name}.2", factor * size, size)


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
    """[count, 1, 1, width] float: 0 for rows, minus infinity for padding; added to attention scores."""

    @staticmethod
    def of(present: Tensor) -> Packing:
        """From a mask [count, width] of the places that hold a row; every sequence has at least one."""
        count, width = present.shape
        bias = torch.zeros(count, 1, 1, width).masked_fill(~present[:, None, None], -torch.inf)
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


def keys_values(weights: Weights, name: str, table: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """[n, width, d] -> keys and values, each [n, heads, width, d / heads]."""
    keys, values = affine(weights, f"{name}.kv", table).chunk(2, -1)
    return heads_of(keys, heads), heads_of(values, heads)


def packed_keys_values(
    weights: Weights, name: str, rows: Tensor, packing: Packing, heads: int
) -> tuple[Tensor, Tensor]:
    """The same of packed rows: the product is taken without padding."""
    keys, values = packing.pad(affine(weights, f"{name}.kv", rows)).chunk(2, -1)
    return heads_of(keys, heads).contiguous(), heads_of(values, heads).contiguous()


def attend(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
    """Attention of [n, heads, q, k] over [n, heads, width, k]: [n, q, heads * k]."""
    if queries.shape[2] == 1:
        # Two products are quicker than the fused kernel where there is one query.
        scores = queries @ keys.transpose(2, 3) / math.sqrt(queries.shape[-1])
        mixed = (scores if bias is None else scores + bias).softmax(-1) @ values
    else:
        mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=bias)
    return mixed.transpose(1, 2).flatten(2)


def encode(weights: Weights, name: str, rows: Tensor, packing: Packing, heads: int, drop: Drop) -> Tensor:
    """One encoder layer, norms first: packed rows attend to all rows of their own sequence."""
    inner = norm(weights, f"{name}.n1", rows)
    queries = heads_of(packing.pad(affine(weights, f"{name}.a.q", inner)), heads)
    mixed = attend(queries, *packed_keys_values(weights, f"{name}.a", inner, packing, heads), packing.bias)
    rows = rows + drop(affine(weights, f"{name}.a.o", packing.pack(mixed)))
    return rows + drop(feed_forward(weights, f"{name}.f", norm(weights, f"{name}.n2", rows)))


def encoder_parameters(streams: Streams, name: str, size: int) -> Parameters:
    """Weights of `encode`."""
    runs = len(streams.seeds)
    made = norm_parameters(runs, f"{name}.n1", size) | attention_parameters(streams, f"{name}.a", size)
    made |= norm_parameters(runs, f"{name}.n2", size)
    return made | feed_forward_parameters(streams, f"{name}.f", size)


def decoder_parameters(streams: Streams, name: str, size: int) -> Parameters:
    """Weights of `decode`."""
    runs = len(streams.seeds)
    made = encoder_parameters(streams, name, size)
    made |= norm_parameters(runs, f"{name}.n3", size)
    return made | attention_parameters(streams, f"{name}.c", size)


@dataclass(frozen=True)
class Text:
    """An encoded instruction as a decoder layer reads it."""

    keys: Tensor
    """[n, heads, L, k]"""
    values: Tensor
    bias: Tensor
    """[n, 1, 1, L]"""


def decode(
    weights: Weights,
    name: str,
    table: Tensor,
    before: tuple[Tensor, Tensor] | None,
    bias: Tensor | None,
    text: Text,
    drop: Drop,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """One decoder layer, norms first: [n, steps, d] attends to the steps so far, then to the text.

    `before` are the keys and values of earlier steps; returned are those of all steps so far, to go on from. `bias`
    hides later steps where several are given at once.
    """
    heads = text.keys.shape[1]
    inner = norm(weights, f"{name}.n1", table)
    keys, values = keys_values(weights, f"{name}.a", inner, heads)
    if before is not None:
        keys, values = torch.cat([before[0], keys], 2), torch.cat([before[1], values], 2)
    queries = heads_of(affine(weights, f"{name}.a.q", inner), heads)
    table = table + drop(affine(weights, f"{name}.a.o", attend(queries, keys, values, bias)))
    queries = heads_of(affine(weights, f"{name}.c.q", norm(weights, f"{name}.n2", table)), heads)
    mixed = attend(queries, text.keys, text.values, text.bias)
    table = table + drop(affine(weights, f"{name}.c.o", mixed))
    return table + drop(feed_forward(weights, f"{name}.f", norm(weights, f"{name}.n3", table))), (keys, values)
