"""What the paper reports of R2R, and where this library reads it differently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from apil.studies.paper import BITS, TRAINER, Reading, Uncertainty
from apil.studies.records import StudyRecords

UNCERTAINTY: Mapping[str, Uncertainty] = MappingProxyType(
    {
        "detm": Uncertainty(0.21, 0.00),
        "rand": Uncertainty(0.27, 0.00),
        "tworand": Uncertainty(0.27, 0.00),
        "twodifdetm": Uncertainty(0.26, 0.05),
    }
)
"""Table 1, column "R2R", by teacher."""


@dataclass(frozen=True)
class Result:
    """Success rate and query rate as the paper's Table 2 prints them, in percent."""

    success: float
    query_rate: float


def _results(success: tuple[float, ...], query_rate: tuple[float, ...]) -> dict[str, Result]:
    teachers = ("detm", "rand", "tworand", "twodifdetm")
    return {name: Result(*pair) for name, *pair in zip(teachers, success, query_rate, strict=True)}


_ALWAYS = (100.0, 100.0, 100.0, 100.0)

RESULTS: Mapping[str, Mapping[str, Result]] = MappingProxyType(
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


def printed_results(study: StudyRecords) -> Mapping[str, Mapping[str, Result]]:
    """Table 2 by query policy and teacher; empty for a study on other data than the paper's."""
    return RESULTS if study.printed else {}


READINGS = (
    BITS,
    TRAINER,
    Reading(
        "What the agent sees on R2R",
        "The paper's agent is given the panoramic view of its location, through the transformer of HANNA, which takes "
        "image features. Here the agent reads words instead, unless it is given image features: captions and objects "
        "of each of eight directions and the kind of room, with the geometry of the exits. Its state encoder is a "
        "transformer after HANNA's, too, but smaller. Where the data were compiled with a language model, that has "
        "read the instructions, and knows more of English than the paper's agent did. So the numbers compare with each "
        "other, and with the paper's only as far as words stand in for pictures.",
    ),
    Reading(
        "val_unseen in the place of the test split",
        "The paper's Table 2 is on the test split, whose goals are not public. Here agents are evaluated on "
        "val_unseen, also of houses that were not trained on, and on val_seen.",
    ),
    Reading(
        "What Table 2 calls success and query rate",
        "It prints a query rate of 100 % for BC and DAGGER and yet a success of 30 to 35 %, while their teachers "
        "reach nearly every goal. So success is read as that of the agent alone, and the query rate as the share of "
        "steps at which the query rule fires.",
    ),
    Reading(
        "Reference actions on R2R",
        "The paper takes the exits within 60 degrees of the way to the next location on the path, 1.6 on average. Here "
        "that is the next location on the shortest path from where the agent stands, angles are between segments in "
        "space, and the exit must also lead closer to the goal: that gives the paper's 1.6. Without the second "
        "condition there are 1.74, and a teacher who takes the last one walks in circles. At the goal the one "
        "reference action is to stop. The literal reading is the setting --reading literal of apil train.",
    ),
    Reading(
        "The horizon of R2R",
        "The paper does not give it. Episodes end after 10 steps.",
    ),
    Reading(
        "Losses on R2R are averaged over asked steps",
        "The paper speaks of a total loss. In R2R the policy and identity losses are means over the steps of a batch "
        "at which the teachers were asked; APIL's query loss is a sum over all steps of an episode, averaged "
        "over episodes.",
    ),
    Reading(
        "The distance is learned beside the policy",
        "The paper's state encoder learns from the policy loss alone. Here, unless a run sets distance_weight to 0, it "
        "also learns to predict the distance that the teachers tell with every answer, whoever asks.",
    ),
    Reading(
        "Agents of the desk preset are still unsure",
        "The preset has a hundredth of the paper's iterations, with dropout. An agent that has not learned which way "
        "leads to the goal spreads its bets, and most of what it takes for a teacher's own variation, the intrinsic "
        "uncertainty, is that. The order of the teachers can be compared with the paper's, the size cannot.",
    ),
    Reading(
        "Averaged weights are evaluated",
        "What is evaluated is a moving average of the weights, once, at the end of training: single sets of weights "
        "swing. The agent takes its likeliest action; the paper's samples.",
    ),
    Reading(
        "Thresholds on R2R",
        "They are found on DETM, in runs of a fifth of the length, so that a rule asks about as often as APIL, and "
        "hold for all teachers. Runs are too long to search among many, so each is found in a few short ones. "
        "What was found is listed above.",
    ),
)
"""In the order in which the report shows them."""
