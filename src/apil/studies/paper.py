"""What the paper reports of every task, and where this library reads it differently.

The paper is "Active Imitation Learning from Multiple Non-Deterministic Teachers: Formulation, Challenges, and
Algorithms" by Khanh Nguyen and Hal Daumé III (2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from apil.studies.statistics import Estimate
from apil.studies.text import texts

ROUNDING = 0.005
"""The paper prints uncertainties with two decimals: a printed number stands for itself plus or minus this."""

Printed = Mapping[str, Mapping[str, float]]
"""A column of the paper's Table 1: by teacher, then `intrinsic` or `extrinsic`. Trainer and seeds are not stated."""

EXPECTED: Mapping[str, Mapping[str, str]] = {
    "detm": {"intrinsic": "0", "extrinsic": "0"},
    "rand": {"intrinsic": "> 0", "extrinsic": "0"},
    "tworand": {"intrinsic": "> 0", "extrinsic": "0"},
    "twodifdetm": {"intrinsic": "0", "extrinsic": "> 0"},
}
"""Table 1, column "Expectation": of a perfect copy of a teacher."""


def differs(printed: float, ours: Estimate) -> bool:
    """Whether our interval misses every number that the printed, rounded one may stand for."""
    return ours.known and not (ours.low - ROUNDING <= printed <= ours.high + ROUNDING)


@dataclass(frozen=True)
class Reading:
    """A place where the paper is silent or ambiguous, and what is done here."""

    title: str
    text: str


def readings(package: str) -> dict[str, Reading]:
    """Those in the file `readings.toml` of a package, by their keys."""
    return {key: Reading(**entry) for key, entry in texts("readings.toml", package).items()}


SHARED = readings("apil.studies")
READINGS = tuple(SHARED[key] for key in ("sign", "acting", "extrun", "later", "exact", "alone"))
"""Those of every task, in the order in which the report shows them."""
