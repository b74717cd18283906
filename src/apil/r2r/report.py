"""What a study of R2R adds to the general report."""

from __future__ import annotations

from apil.r2r.figures import r2r_plates
from apil.r2r.findings import r2r_findings
from apil.r2r.paper import READINGS, UNCERTAINTY
from apil.r2r.tables import differences_from_paper, r2r_tables
from apil.studies.extras import Examples, Extras
from apil.studies.text import texts

REPORT = Extras(
    printed=UNCERTAINTY,
    readings=READINGS,
    other_data=lambda summary: "" if summary.get("public_data", True) else "houses",
    tables=r2r_tables,
    comparison=differences_from_paper,
    findings=r2r_findings,
    plates=r2r_plates,
    examples=Examples(**texts("figures.toml", "apil.r2r")["examples"]),
)
