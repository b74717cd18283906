"""What the paper reports, and where this library reads it differently.

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


@dataclass(frozen=True)
class Result:
    """Success rate and query rate as the paper's Table 2 prints them, in percent."""

    success: float
    query_rate: float


EXPECTED: Mapping[str, Expected] = MappingProxyType(
    {
        "detm": Expected(False, False),
        "rand": Expected(True, False),
        "tworand": Expected(True, False),
        "twodifdetm": Expected(False, True),
    }
)
"""Table 1, column "Expectation"."""

UNCERTAINTY: Mapping[str, Mapping[str, Uncertainty]] = MappingProxyType(
    {
        "grid": {
            "detm": Uncertainty(0.04, 0.00),
            "rand": Uncertainty(0.72, 0.00),
            "tworand": Uncertainty(0.72, 0.00),
            "twodifdetm": Uncertainty(0.05, 0.56),
        },
        "r2r": {
            "detm": Uncertainty(0.21, 0.00),
            "rand": Uncertainty(0.27, 0.00),
            "tworand": Uncertainty(0.27, 0.00),
            "twodifdetm": Uncertainty(0.26, 0.05),
        },
    }
)
"""Table 1, columns "GRID" and "R2R", by task and teacher. Trainer and number of seeds are not stated."""


def _results(success: tuple[float, ...], query_rate: tuple[float, ...]) -> dict[str, Result]:
    teachers = ("detm", "rand", "tworand", "twodifdetm")
    return {name: Result(*pair) for name, *pair in zip(teachers, success, query_rate, strict=True)}


_ALWAYS = (100.0, 100.0, 100.0, 100.0)

R2R_RESULTS: Mapping[str, Mapping[str, Result]] = MappingProxyType(
    {
        "bc": _results((30.2, 32.2, 30.1, 30.1), _ALWAYS),
        "dagger": _results((35.2, 35.1, 32.8, 34.5), _ALWAYS),
        "intrun": _results((29.2, 30.4, 33.9, 33.0), (30.5, 38.9, 38.3, 32.4)),
        "behvun": _results((29.6, 29.8, 32.2, 33.8), (27.1, 39.0, 38.4, 34.5)),
        "errpred": _results((34.2, 34.9, 33.1, 31.0), (29.0, 31.1, 30.9, 32.2)),
        "apil": _results((35.2, 34.6, 36.9, 35.7), (27.8, 29.6, 29.7, 29.6)),
    }
)
"""Table 2, R2R test set, by method and teacher."""


def printed_results(task: str) -> Mapping[str, Mapping[str, Result]]:
    """Table 2 by query policy and teacher; empty for any other task."""
    return R2R_RESULTS if task == "r2r" else {}


def printed_uncertainty(task: str, teacher: str, quantity: str) -> float | None:
    """The number that Table 1 prints for `intrinsic` or `extrinsic`; None when it has none."""
    row = UNCERTAINTY.get(task, {}).get(teacher)
    if row is None:
        return None
    return {"intrinsic": row.intrinsic, "extrinsic": row.extrinsic}[quantity]


def differs(printed: float, ours: Estimate) -> bool:
    """Whether our interval misses every number that the printed, rounded one may stand for."""
    return ours.known and not (ours.low - ROUNDING <= printed <= ours.high + ROUNDING)


@dataclass(frozen=True)
class Reading:
    """A place where the paper is silent or ambiguous, and what is done here."""

    title: str
    text: str
    tasks: tuple[str, ...] = ()
    """The tasks that it concerns; empty for all."""


READINGS = (
    Reading(
        "The maze is not in the paper",
        "It is here because the paper's small task, GRID, cannot show whether a query policy learns "
        "anything: there every walk ends at the goal. In the maze an agent can fail, so asking has to earn "
        "its cost. There are no numbers of the paper to compare with.",
        ("maze",),
    ),
    Reading(
        "In GRID every label of APIL is continue",
        "APIL teaches its query policy to go on wherever the episode makes progress, and an episode that "
        "ends at the goal counts as progress at every step. In GRID every episode ends at the goal, "
        "whatever the agent does. So APIL sees no other label, and a query policy that never asks would "
        "look just as good. GRID shows how uncertainty misleads the other rules; it does not show that "
        "APIL learns when to ask.",
        ("grid",),
    ),
    Reading(
        "The sign in Algorithm 2, line 5",
        "The paper prints d_t ≤ σ·d_min, while its text calls it progress when the distance shrinks by at "
        "least the factor σ. The text is followed: d_t ≥ σ·d_min. With the printed sign a question after "
        "which the goal is reached (d_min = 0) would never count as progress.",
    ),
    Reading(
        "Uncertainty is entropy in bits",
        "The paper does not name the unit. A uniformly random walk over right and down stands at a cell "
        "with a real choice for 5.8125 of its 8 steps, so a perfect copy of RAND has intrinsic uncertainty "
        "5.8125 / 8 = 0.727 bits in GRID, and the paper prints 0.72. In nats it would be 0.504.",
        ("grid",),
    ),
    Reading(
        "Uncertainty is entropy in bits",
        "The paper does not name the unit. Its number for the RAND teacher in GRID, 0.72, fits base-2 "
        "logarithms (a perfect copy has 0.727 bits) and no other, so bits are used on every task.",
        ("maze", "r2r"),
    ),
    Reading(
        "Who trained the agent of Table 1",
        "Learned uncertainty depends on which query policy chose the training data and on how the "
        "expectation over teacher identities is computed. The paper states neither for its Table 1. All "
        "trainers are shown, and the estimator is named with every table.",
        ("grid", "r2r"),
    ),
    Reading(
        "What the agent sees on R2R",
        "The paper's agent is given the panoramic view of its location, through the transformer of HANNA, which takes "
        "image features. Here the agent reads words instead, unless it is given image features: captions and objects "
        "of each of eight directions and the kind of room, with the geometry of the exits. Its state encoder is a "
        "transformer after HANNA's, too, but smaller. Where the data were compiled with a language model, that has "
        "read the instructions, and knows more of English than the paper's agent did. So the numbers compare with each "
        "other, and with the paper's only as far as words stand in for pictures.",
        ("r2r",),
    ),
    Reading(
        "val_unseen in the place of the test split",
        "The paper's Table 2 is on the test split, whose goals are not public. Here agents are evaluated on "
        "val_unseen, also of houses that were not trained on, and on val_seen.",
        ("r2r",),
    ),
    Reading(
        "What Table 2 calls success and query rate",
        "It prints a query rate of 100 % for BC and DAGGER and yet a success of 30 to 35 %, while their teachers "
        "reach nearly every goal. So success is read as that of the agent alone, and the query rate as the share of "
        "steps at which the query rule fires.",
        ("r2r",),
    ),
    Reading(
        "Reference actions on R2R",
        "The paper takes the exits within 60 degrees of the way to the next location on the path, 1.6 on average. Here "
        "that is the next location on the shortest path from where the agent stands, angles are between segments in "
        "space, and the exit must also lead closer to the goal: that gives the paper's 1.6. Without the second "
        "condition there are 1.74, and a teacher who takes the last one walks in circles. At the goal the one "
        "reference action is to stop. The literal reading is the setting --reading literal of apil train.",
        ("r2r",),
    ),
    Reading(
        "The horizon of R2R",
        "The paper does not give it. Episodes end after 10 steps.",
        ("r2r",),
    ),
    Reading(
        "Losses on R2R are averaged over asked steps",
        "The paper speaks of a total loss. In R2R the policy and identity losses are means over the steps of a batch "
        "at which the teachers were asked; APIL's query loss is a sum over all steps of an episode, averaged "
        "over episodes.",
        ("r2r",),
    ),
    Reading(
        "The distance is learned beside the policy",
        "The paper's state encoder learns from the policy loss alone. Here, unless a run sets distance_weight to 0, it "
        "also learns to predict the distance that the teachers tell with every answer, whoever asks.",
        ("r2r",),
    ),
    Reading(
        "Agents of the desk preset are still unsure",
        "The preset has a hundredth of the paper's iterations, with dropout. An agent that has not learned which way "
        "leads to the goal spreads its bets, and most of what it takes for a teacher's own variation, the intrinsic "
        "uncertainty, is that. The order of the teachers can be compared with the paper's, the size cannot.",
        ("r2r",),
    ),
    Reading(
        "Averaged weights are evaluated",
        "What is evaluated is a moving average of the weights, once, at the end of training: single sets of weights "
        "swing. The agent takes its likeliest action; the paper's samples.",
        ("r2r",),
    ),
    Reading(
        "Thresholds on R2R",
        "They are found on DETM, in runs of a fifth of the length, so that a rule asks about as often as APIL, and "
        "hold for all teachers. Runs are too long to search among many, so each is found in a few short ones. "
        "What was found is listed above.",
        ("r2r",),
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
"""In the order in which the report shows them."""


def readings(task: str) -> list[Reading]:
    """The readings that concern a task."""
    return [reading for reading in READINGS if not reading.tasks or task in reading.tasks]
