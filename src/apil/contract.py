"""What the contract checks share: they call other people's parts and report in words what is wrong."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from apil.errors import ApilError, in_one_line

Result = TypeVar("Result")


class GivenUp(Exception):  # noqa: N818 (no error: the way out of a check that cannot go on)
    """Nothing more can be checked."""


class Problems:
    """What is wrong with a part. Of problems that differ in their numbers alone, the first is kept."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        """Messages, by their words without the numbers."""

    def expect(self, good: bool | Tensor, otherwise: str) -> bool:
        """Notes a problem where something is not good; returns whether it is."""
        if not good:
            self.found.setdefault(re.sub(r"[\d.]+", "#", otherwise), otherwise)
        return bool(good)

    def require(self, good: bool | Tensor, otherwise: str) -> None:
        """The same, and gives up: the rest of the check builds on it."""
        if not self.expect(good, otherwise):
            raise GivenUp

    def attempt(self, what: str, call: Callable[..., Result], *arguments: Any) -> Result:
        """The result of a call into the part; an exception is a problem and ends the check."""
        try:
            return call(*arguments)
        except Exception as error:
            self.expect(False, f"{what} raised {in_one_line(error)}")
            raise GivenUp from error


@contextmanager
def problems_of(part: str, remedy: str) -> Iterator[Problems]:
    """For a check of `part`, whose code runs inside: raises one error that lists what is wrong. Draws from global
    random state are wrong too; `remedy` says what to use instead.
    """
    problems, before = Problems(), global_random_state()
    with suppress(GivenUp):
        yield problems
    untouched = global_random_state() == before
    problems.expect(untouched, f"it touches global random state (torch, numpy.random or random): {remedy}")
    if problems.found:
        listed = "; ".join(f"({n}) {text}" for n, text in enumerate(problems.found.values(), 1))
        raise ApilError(f"{part} has {len(problems.found)} problem{'s' * (len(problems.found) > 1)}: {listed}.")


def global_random_state() -> tuple[Any, ...]:
    """The state of the generators that all code shares, to see whether somebody drew from them."""
    # NumPy's is a table of numbers and how many of them are used: few draws change the table.
    legacy: Any = np.random.get_state()  # noqa: NPY002 (looked at, not used)
    return random.getstate(), legacy[1].tobytes(), legacy[2], torch.get_rng_state().numpy().tobytes()
