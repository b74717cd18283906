"""What the study of a task adds to the general report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from apil.errors import ApilError
from apil.studies.paper import BITS, TRAINER, Reading, Uncertainty
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

    printed: Mapping[str, Uncertainty] = field(default_factory=dict)
    """The paper's Table 1 by teacher. It states neither the trainer nor the number of seeds."""
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
    """The main results as sentences, in the place of the general ones."""
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
        "detm": Uncertainty(0.04, 0.00),
        "rand": Uncertainty(0.72, 0.00),
        "tworand": Uncertainty(0.72, 0.00),
        "twodifdetm": Uncertainty(0.05, 0.56),
    },
    readings=(
        Reading(
            "In GRID every label of APIL is continue",
            "APIL teaches its query policy to go on wherever the episode makes progress, and an episode that "
            "ends at the goal counts as progress at every step. In GRID every episode ends at the goal, "
            "whatever the agent does. So APIL sees no other label, and a query policy that never asks would "
            "look just as good. GRID shows how uncertainty misleads the other rules; it does not show that "
            "APIL learns when to ask.",
        ),
        Reading(
            "Uncertainty is entropy in bits",
            "The paper does not name the unit. A uniformly random walk over right and down stands at a cell "
            "with a real choice for 5.8125 of its 8 steps, so a perfect copy of RAND has intrinsic uncertainty "
            "5.8125 / 8 = 0.727 bits in GRID, and the paper prints 0.72. In nats it would be 0.504.",
        ),
        TRAINER,
    ),
)

MAZE = Extras(
    readings=(
        Reading(
            "The maze is not in the paper",
            "It is here because the paper's small task, GRID, cannot show whether a query policy learns "
            "anything: there every walk ends at the goal. In the maze an agent can fail, so asking has to earn "
            "its cost. There are no numbers of the paper to compare with.",
        ),
        BITS,
    )
)
