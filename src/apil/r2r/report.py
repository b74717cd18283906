"""What a study of R2R adds to the general report."""

from __future__ import annotations

from apil.r2r.figures import r2r_plates
from apil.r2r.findings import r2r_findings
from apil.r2r.paper import READINGS, UNCERTAINTY
from apil.r2r.tables import differences_from_paper, r2r_tables
from apil.studies.extras import Examples, Extras

REPORT = Extras(
    printed=UNCERTAINTY,
    readings=READINGS,
    other_data=lambda summary: "" if summary.get("public_data", True) else "houses",
    tables=r2r_tables,
    comparison=differences_from_paper,
    findings=r2r_findings,
    plates=r2r_plates,
    examples=Examples(
        heading="Episodes from above",
        note="Episodes of an agent trained by apil, with help where it asks. Each map says which agent and how the "
        "episode ended. The episodes are spread evenly over the first that an evaluation takes; they were not chosen "
        "by how they end. Numbers at the agent's way count its steps; the circle is 3 m as the crow flies, while "
        "success is 3 m along the shortest path. Paths on other floors are faint.",
        files="map_*.svg",
    ),
)
