"""Choices drawn one after another from one keyed stream: the same on every machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import TypeVar

from apil.rng import Streams

T = TypeVar("T")
_BLOCK = 4096


class Dice:
    """The choices of one stream, which is known by a seed and a name."""

    def __init__(self, seed: int, stream: str) -> None:
        streams = Streams([seed])
        blocks = (streams.draws(stream, number).uniform(_BLOCK)[0].tolist() for number in count())
        self._numbers: Iterator[float] = (number for block in blocks for number in reversed(block))

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """A number between `low` and `high`."""
        return low + (high - low) * next(self._numbers)

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self.uniform() < probability

    def below(self, count: int) -> int:
        """One of 0 .. count - 1."""
        return int(self.uniform() * count)

    def choose(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self.below(len(options))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in random order."""
        rest = list(items)
        for i in range(len(rest) - 1, 0, -1):
            j = self.below(i + 1)
            rest[i], rest[j] = rest[j], rest[i]
        return rest
