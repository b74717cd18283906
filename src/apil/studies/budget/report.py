"""The files of the benchmark: `summary.json`, tables, figures and a page, from its records alone."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apil.files import write_bytes, write_json, write_text
from apil.studies.budget.compare import Comparison, findings, scales, summary
from apil.studies.budget.figures import all_figures
from apil.studies.budget.tables import MARKS, all_tables
from apil.studies.budget.where import read_asked
from apil.studies.pages import page


def write_report(folder: Path, compared: Comparison, about: Mapping[str, Any]) -> None:
    """`about` is what `about.json` says."""
    write_json(folder / "summary.json", summary(compared, about["winner"]))
    write_json(folder / "scales.json", scales(compared))
    tables = all_tables(compared, about)
    for table in tables:
        write_text(folder / f"{table.name}.md", table.markdown())
    figures = all_figures(compared, about, read_asked(folder))
    for figure in figures:
        write_bytes(folder / f"{figure.name}.png", figure.formats["png"])
    drawn = [(figure, b64encode(figure.formats["svg"]).decode()) for figure in figures]
    said = findings(compared, about["winner"])
    marks = {name: mark.strip() for name, mark in MARKS.items()}
    text = page("budget", title="Where to ask", about=about, findings=said, tables=tables, figures=drawn, marks=marks)
    write_text(folder / "report.html", text)
