"""What the paper reports of R2R, and where this library reads it differently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from apil.studies.paper import SHARED, Printed, readings
from apil.studies.records import StudyRecords

UNCERTAINTY: Printed = {
    "detm": {"intrinsic": 0.21, "extrinsic": 0.00},
    "rand": {"intrinsic": 0.27, "extrinsic": 0.00},
    "tworand": {"intrinsic": 0.27, "extrinsic": 0.00},
    "twodifdetm": {"intrinsic": 0.26, "extrinsic": 0.05},
}
"""Table 1, column "R2R"."""


@dataclass(frozen=True)
class Result:
    """Success rate and query rate as the paper's Table 2 prints them, in percent."""

    success: float
    query_rate: float


def _results(success: tuple[float, ...], query_rate: tuple[float, ...]) -> dict[str, Result]:
    teachers = ("detm", "rand", "tworand", "twodifdetm")
    return {name: Result(*pair) for name, *pair in zip(teachers, success, query_rate, strict=True)}


_ALWAYS = (100.0, 100.0, 100.0, 100.0)

RESULTS: Mapping[str, Mapping[str, Result]] = {
    "bc": _results((30.2, 32.2, 30.1, 30.1), _ALWAYS),
    "dagger": _results((35.2, 35.1, 32.8, 34.5), _ALWAYS),
    "intrun": _results((29.2, 30.4, 33.9, 33.0), (30.5, 38.9, 38.3, 32.4)),
    "behvun": _results((29.6, 29.8, 32.2, 33.8), (27.1, 39.0, 38.4, 34.5)),
    "errpred": _results((34.2, 34.9, 33.1, 31.0), (29.0, 31.1, 30.9, 32.2)),
    "apil": _results((35.2, 34.6, 36.9, 35.7), (27.8, 29.6, 29.7, 29.6)),
}
"""Table 2, R2R test set, by method and teacher."""


def printed_results(study: StudyRecords) -> Mapping[str, Mapping[str, Result]]:
    """Table 2 by query policy and teacher; empty for a study on other data than the paper's."""
    return RESULTS if study.printed else {}


READINGS = (SHARED["bits"], SHARED["trainer"], *readings("apil.r2r").values())
"""In the order in which the report shows them."""
