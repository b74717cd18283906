"""What the study of a task adds to the general report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from apil.errors import ApilError
from apil.studies.paper import SHARED, Printed, Reading
from apil.tasks import TASKS

if TYPE_CHECKING:
    from apil.studies.figures import Plate
    from apil.studies.records import StudyRecords
    from apil.studies.tables import Table


@dataclass(frozen=True)
class Examples:
    """Pictures of example episodes."""

    heading: str
    note: str
    files: str
    """Pattern of the SVG files in the study's folder."""


@dataclass(frozen=True)
class Extras:
    """What a task adds to the report of its study; by default nothing."""

    printed: Printed = field(default_factory=dict)
    readings: tuple[Reading, ...] = ()
    """Where this library reads the paper differently on this task; shown before those of every task."""
    other_data: Callable[[Mapping[str, Any]], str] = lambda summary: ""
    """From `summary.json`: the label of a study whose data are not the paper's, else empty. The paper's numbers do not
    stand beside such a study."""
    tables: Callable[[StudyRecords], Sequence[Table]] = lambda study: ()
    """Shown before the general ones."""
    comparison: Callable[[StudyRecords], Sequence[Table]] = lambda study: ()
    """Our numbers minus the paper's, beyond its Table 1; notes and blocks are shown."""
    findings: Callable[[StudyRecords], Sequence[str]] | None = None
    """The main results as sentences, instead of the general ones."""
    plates: Callable[[Sequence[Plate]], Sequence[Plate]] = lambda general: general
    """All figures, given the general ones."""
    examples: Examples | None = None


NO_EXTRAS = Extras()


def extras_of(task: str) -> Extras:
    """The facet `report` of a task; nothing for an unknown task, and for one that brings none."""
    found = TASKS.facet(task, "report") if task in TASKS.names() else None
    if found is not None and not isinstance(found, Extras):
        raise ApilError(f"The report of the task '{task}' is {found!r:.60}: give an apil.studies.extras.Extras.")
    return found or NO_EXTRAS


GRID = Extras(
    printed={
        "detm": {"intrinsic": 0.04, "extrinsic": 0.00},
        "rand": {"intrinsic": 0.72, "extrinsic": 0.00},
        "tworand": {"intrinsic": 0.72, "extrinsic": 0.00},
        "twodifdetm": {"intrinsic": 0.05, "extrinsic": 0.56},
    },
    readings=(SHARED["grid-labels"], SHARED["grid-bits"], SHARED["trainer"]),
)
MAZE = Extras(readings=(SHARED["maze"], SHARED["bits"]))
