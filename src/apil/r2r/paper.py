"""What the paper reports of R2R, and where this library reads it differently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from apil.studies.paper import SHARED, Printed, readings
from apil.studies.records import StudyRecords
from apil.studies.text import texts

_PRINTED = texts("paper.toml", "apil.r2r")
UNCERTAINTY: Printed = _PRINTED["uncertainty"]
"""Table 1, column "R2R"."""


@dataclass(frozen=True)
class Result:
    """Success rate and query rate as the paper's Table 2 prints them, in percent."""

    success: float
    query_rate: float


RESULTS: Mapping[str, Mapping[str, Result]] = {
    query: {teacher: Result(*pair) for teacher, pair in row.items()} for query, row in _PRINTED["results"].items()
}
"""Table 2, R2R test set, by method and teacher."""


def printed_results(study: StudyRecords) -> Mapping[str, Mapping[str, Result]]:
    """Table 2 by query policy and teacher; empty for a study on other data than the paper's."""
    return RESULTS if study.printed else {}


READINGS = (SHARED["bits"], SHARED["trainer"], *readings("apil.r2r").values())
"""In the order in which the report shows them."""
