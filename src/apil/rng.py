"""One seed, named independent streams, and no state.

Every random number is a pure function of (seed, stream, iteration, position): SplitMix64 over a counter. So a run
draws the same numbers alone and in a stack, and a resumed run needs no saved generator.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from copy import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_BLOCK = 16384
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser, in place: every input bit reaches every output bit."""
    bits ^= bits >> np.uint64(30)
    bits *= _MIX_1
    bits ^= bits >> np.uint64(27)
    bits *= _MIX_2
    bits ^= bits >> np.uint64(31)
    return bits


def stream_key(seed: int, stream: str) -> int:
    """A 64-bit key that is the same on every machine and Python version."""
    digest = hashlib.blake2b(f"{seed}/{stream}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


class Share(int):
    """A number of things, such as episodes, that are some of a larger batch and stand side by side in it.

    Draws of a shape with a share in it are those of the whole batch, cut to the share.
    """

    first: int
    """The place of the first of them in the batch."""
    total: int
    """The size of the batch."""

    def __new__(cls, count: int, first: int, total: int) -> Share:
        made = super().__new__(cls, count)
        made.first, made.total = first, total
        return made


def whole_of(count: int) -> tuple[int, int]:
    """The place of the first of `count` things in their batch, and the size of that: 0 and `count` but for a share."""
    return (count.first, count.total) if isinstance(count, Share) else (0, count)


def _wholes(shape: Sequence[int]) -> list[int]:
    return [whole_of(size)[1] for size in shape]


def _cut(shape: Sequence[int]) -> tuple[slice, ...]:
    """Where the numbers of a shape are in those of the whole batches; the runs lead."""
    return (slice(None), *(slice(first := whole_of(size)[0], first + size) for size in shape))


class Draws:
    """Random numbers of one stream for every run of a stack, at one iteration; the runs lead every result.

    Each call takes the next numbers. They depend on the run's seed and the shapes drawn before, never on other runs.
    They are drawn on the host, and come to the device where tensors are made (`apil.device`).
    """

    def __init__(self, keys: NDArray[np.uint64], iteration: int, time: float | None = None) -> None:
        self.iteration = iteration
        self.time = iteration if time is None else time
        """Iterations of training before this one, for what changes over time; infinite where an agent is measured."""
        offset = np.uint64(((iteration + 1) * int(_GAMMA)) % 2**64)
        self._base = _mix(keys + offset)
        self._next = 0
        self.runs = len(keys)

    def of_runs(self, runs: slice) -> Draws:
        """The same draws of some runs only, from here on."""
        some = copy(self)
        some._base = self._base[runs]
        some.runs = len(some._base)
        return some

    def _bits(self, count: int, skip: int = 0, total: int | None = None) -> NDArray[np.uint64]:
        """[runs, count] 64-bit words; `skip` come before them and are not made, of a `total` that is used up."""
        first = self._next + 1 + skip
        positions = np.arange(first, first + count, dtype=np.uint64)
        positions *= _GAMMA
        self._next += count if total is None else total
        bits = self._base[:, None] + positions
        for rows in self._blocks(count):
            _mix(bits[rows])
        return bits

    def _blocks(self, count: int) -> Iterator[slice]:
        """The runs, in blocks of about `_BLOCK` numbers: what is done in several passes stays in the cache."""
        step = max(1, _BLOCK // max(count, 1))
        for start in range(0, self.runs, step):
            yield slice(start, start + step)

    def uniform(self, *shape: int) -> Tensor:
        """[runs, *shape] float32 in the open interval (0, 1): neither end is ever drawn."""
        if Share in map(type, shape):
            return self.uniform(*_wholes(shape))[_cut(shape)].contiguous()
        count = math.prod(shape)
        words = self._bits((count + 1) // 2).view(np.uint32)[:, :count]
        values = np.empty(words.shape, np.float32)
        for rows in self._blocks(count):
            np.right_shift(words[rows], np.uint32(9), out=values[rows], casting="unsafe")
            values[rows] += np.float32(0.5)
            values[rows] *= np.float32(2.0**-23)
        return torch.as_tensor(values.reshape(-1, *shape))

    def exponential(self, *shape: int) -> Tensor:
        """[runs, *shape] float32, exponential with mean 1: the arrival times of `race`."""
        return -torch.log(self.uniform(*shape))

    def normal(self, *shape: int) -> Tensor:
        """[runs, *shape] float32, normal with mean 0 and variance 1."""
        angle, length = self.uniform(2, *shape).unbind(1)
        return torch.sqrt(-2.0 * torch.log(length)) * torch.cos(2.0 * math.pi * angle)

    def words(self, *shape: int) -> NDArray[np.uint64]:
        """[runs, *shape] random 64-bit words: keys for generators of other people's code (`generator`)."""
        return self._bits(math.prod(_wholes(shape))).reshape(-1, *_wholes(shape))[_cut(shape)]

    def kept(self, rate: float, *shape: int) -> Tensor:
        """[runs, *shape] dropout mask: 0 with probability `rate` (in steps of 2^-16), else 1 / (1 - rate)."""
        count = math.prod(shape)
        if shape and type(shape[0]) is Share:  # a part of the rows: the others are not drawn
            row = math.prod(shape[1:])
            start, total = shape[0].first * row, shape[0].total * row
            skip = start // 4
            words = self._bits((start + count + 3) // 4 - skip, skip, (total + 3) // 4)
            lanes = words.view(np.uint16)[:, start - 4 * skip : start - 4 * skip + count]
        else:
            lanes = self._bits((count + 3) // 4).view(np.uint16)[:, :count]
        kept = (lanes >= np.uint16(min(round(rate * 65536), 65535))).astype(np.float32)
        kept *= np.float32(1.0 / (1.0 - rate))
        return torch.as_tensor(kept.reshape(-1, *shape))


class Undropped(Draws):
    """Draws for measuring what is learned with dropout: nothing is dropped."""

    def __init__(self, runs: int) -> None:
        super().__init__(np.zeros(runs, np.uint64), 0)

    def kept(self, rate: float, *shape: int) -> Tensor:
        """[runs, *shape] ones."""
        return torch.ones(self.runs, *shape)


class Streams:
    """The named streams of a stack of runs; hands out `Draws` by name and iteration."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self.seeds = tuple(seeds)
        self._keys: dict[str, NDArray[np.uint64]] = {}

    def draws(self, stream: str, iteration: int, time: float | None = None) -> Draws:
        """The draws of `stream` at `iteration`, from their beginning; `time` is `iteration` if not given."""
        if stream not in self._keys:
            keys = [stream_key(seed, stream) for seed in self.seeds]
            self._keys[stream] = np.array(keys, dtype=np.uint64)
        return Draws(self._keys[stream], iteration, time)


def generator(word: np.uint64 | int) -> np.random.Generator:
    """A NumPy generator that is a pure function of a 64-bit word."""
    return np.random.Generator(np.random.Philox(key=int(word)))


def race(probabilities: Tensor, arrival: Tensor) -> Tensor:
    """Samples an index of the last axis from exponential arrival times: the first to arrive at speed p_i wins with
    probability p_i. An index with p_i = 0 never wins, whatever the rounding.
    """
    return (probabilities / arrival).argmax(-1)
