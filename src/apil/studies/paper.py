"""What the paper reports of every task, and where this library reads it differently.

The paper is "Active Imitation Learning from Multiple Non-Deterministic Teachers: Formulation, Challenges, and
Algorithms" by Khanh Nguyen and Hal Daumé III (2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from apil.studies.statistics import Estimate

ROUNDING = 0.005
"""The paper prints uncertainties with two decimals: a printed number stands for itself plus or minus this."""


@dataclass(frozen=True)
class Uncertainty:
    """Learned uncertainty as the paper's Table 1 prints it."""

    intrinsic: float
    extrinsic: float


@dataclass(frozen=True)
class Expected:
    """The paper's expectation for a perfect copy of a teacher: whether each uncertainty is above zero."""

    intrinsic_positive: bool
    extrinsic_positive: bool


EXPECTED: Mapping[str, Expected] = MappingProxyType(
    {
        "detm": Expected(False, False),
        "rand": Expected(True, False),
        "tworand": Expected(True, False),
        "twodifdetm": Expected(False, True),
    }
)
"""Table 1, column "Expectation"."""


def differs(printed: float, ours: Estimate) -> bool:
    """Whether our interval misses every number that the printed, rounded one may stand for."""
    return ours.known and not (ours.low - ROUNDING <= printed <= ours.high + ROUNDING)


@dataclass(frozen=True)
class Reading:
    """A place where the paper is silent or ambiguous, and what is done here."""

    title: str
    text: str


READINGS = (
    Reading(
        "The sign in Algorithm 2, line 5",
        "The paper prints d_t ≤ σ·d_min, while its text calls it progress when the distance shrinks by at "
        "least the factor σ. The text is followed: d_t ≥ σ·d_min. With the printed sign a question after "
        "which the goal is reached (d_min = 0) would never count as progress.",
    ),
    Reading(
        "How BC and DAGGER act",
        "Both ask at every step. Here BC carries out the teacher's action, while DAGGER carries out the "
        "agent's own sampled action and takes the teacher's as the label. Every other method carries out "
        "the teacher's action when it asks, and its own when it does not.",
    ),
    Reading(
        "The threshold of EXTRUN",
        "The paper tunes thresholds so that a rule asks about as often as APIL under DETM. DETM is a "
        "single teacher: its extrinsic uncertainty is zero by definition, and no threshold can be tuned on "
        "it. EXTRUN therefore has a small threshold that is not calibrated. With a large one it never asks "
        "and never learns, because at the start all personae act alike.",
    ),
    Reading(
        "Which distances count as later ones",
        "In the paper's text both ends of a progress pair are steps at which the agent asked; its "
        "Algorithm 2 starts from the final distance. The algorithm is followed: the final distance counts "
        "too.",
    ),
    Reading(
        "The exact expectation over teachers",
        "With a handful of teachers the expectation over their identities is a short sum, which can be "
        "computed exactly instead of from 5 samples. That removes the sampling error that inflates the "
        "paper's model uncertainty. Which one was in force is stated at the top of this page.",
    ),
    Reading(
        "Success is measured alone",
        "After training the agent is evaluated with nobody to ask; help during training would hide what it "
        "has not learned. Success in training, where it may ask, is reported apart from it.",
    ),
)
"""Those of every task, in the order in which the report shows them."""

BITS = Reading(
    "Uncertainty is entropy in bits",
    "The paper does not name the unit. Its number for the RAND teacher in GRID, 0.72, fits base-2 "
    "logarithms (a perfect copy has 0.727 bits) and no other, so bits are used on every task.",
)

TRAINER = Reading(
    "Who trained the agent of Table 1",
    "Learned uncertainty depends on which query policy chose the training data and on how the "
    "expectation over teacher identities is computed. The paper states neither for its Table 1. All "
    "trainers are shown, and the estimator is named with every table.",
)
