"""The files of the benchmark: `summary.json`, tables, figures and a page, from its records alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from apil.files import write_bytes, write_json, write_text
from apil.studies.bill import bill_tables
from apil.studies.budget.compare import Comparison, findings, scales, summary
from apil.studies.budget.definition import NEVER
from apil.studies.budget.figures import all_figures
from apil.studies.budget.tables import MARKS, all_tables
from apil.studies.budget.where import read_asked
from apil.studies.headline import Headline
from apil.studies.pages import Shown, page
from apil.studies.tables import NOTHING
from apil.studies.text import spelled


def write_report(folder: Path, compared: Comparison, about: Mapping[str, Any]) -> None:
    """`about` is what `about.json` says."""
    write_json(folder / "summary.json", summary(compared, about["winner"]))
    write_json(folder / "scales.json", scales(compared))
    tables = [*all_tables(compared, about), *bill_tables(folder)]
    for table in tables:
        write_text(folder / f"{table.name}.md", table.markdown())
    figures = all_figures(compared, about, read_asked(folder))
    for figure in figures:
        write_bytes(folder / f"{figure.name}.png", figure.formats["png"])
    shown = [Shown(figure.name, figure.title, figure.caption, figure.formats["svg"]) for figure in figures]
    leading = next(figure for figure in shown if figure.name == "figure_share")
    said = findings(compared, about["winner"])
    values = {
        "title": "Where to ask: query rules at the same numbers of answers",
        "about": about,
        "headline": _headline(compared, about["winner"], said),
        "leading": leading,
        "figures": [figure for figure in shown if figure is not leading],
        "findings": said,
        "tables": tables,
        "marks": {name: mark.strip() for name, mark in MARKS.items()},
    }
    write_text(folder / "report.html", page("budget", **values))


def _headline(compared: Comparison, winner: str, said: Sequence[str]) -> Headline:
    """The winner, its standing at the middle budget, and the share of the gap that each rule closes."""
    rows = []
    for rule in compared.rules:
        if rule != NEVER:
            found = [compared.share_over_tasks(rule, level) for level in compared.levels]
            cells = tuple(
                (f"{each.mean:.3f}", f"[{each.low:.3f}, {each.high:.3f}]") if each.known else (NOTHING, "")
                for each in found
            )
            rows.append((spelled(rule), cells))
    header = ("rule", *(f"{level} budget" for level in compared.levels))
    caption = "Share of the gap between never asking and DAgger that is closed, over all tasks"
    return Headline("", (f"Winner: {spelled(winner)}.", *said[-1:], *said[:1]), caption, header, tuple(rows))
