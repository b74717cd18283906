"""The files of the comparison: `summary.json`, a table, figures and a page, from its records alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from apil.files import write_bytes, write_json, write_text
from apil.studies.budget.figures import Drawn
from apil.studies.charts import Chart, Look, Rows, Series
from apil.studies.figures import RC, Style, legend, panel_grid, pictures, styled
from apil.studies.headline import Headline
from apil.studies.pages import page
from apil.studies.statistics import Bands, Floats, bands, estimate
from apil.studies.tables import Table, TableBlock, explained, shown
from apil.studies.text import texts
from apil.studies.whom.compare import Whom, findings, summary

_TEXTS: Any = texts("whom.toml")
_COLOURS = ("#555555", "#c07f00", "#1e96b8", "#009e73", "#c4629a", "#d55e00")
"""Of the first selectors, in their order; further ones have styles of their own."""
_MARKS = {"better": "▲", "worse": "▼"}


def write_report(folder: Path, compared: Whom, about: Mapping[str, Any]) -> None:
    """`about` is what `about.json` says."""
    write_json(folder / "summary.json", summary(compared))
    tables = [_costs(compared, about), _improvement(compared, about)]
    for table in tables:
        write_text(folder / f"{table.name}.md", table.markdown())
    with matplotlib.rc_context(RC):
        drawn = (
            ("figure_cost", _curves(compared), _curves_chart(compared)),
            ("figure_cost_to", _bars(compared), _bars_chart(compared)),
        )
        figures = [
            Drawn(
                name, _TEXTS[name]["title"], _TEXTS[name]["caption"].format(level=compared.level), pictures(own), chart
            )
            for name, own, chart in drawn
        ]
    for figure in figures:
        write_bytes(folder / f"{figure.name}.png", figure.formats["png"])
    leading, *others = [own.shown for own in figures]
    values = {
        "title": "Whom to ask: selectors by what their answers cost",
        "about": about,
        "headline": _headline(compared, about),
        "leading": leading,
        "figures": others,
        "tasks": {},
        "findings": findings(compared),
        "tables": tables,
        "marks": _MARKS,
    }
    write_text(folder / "report.html", page("budget", **values))


def _headline(compared: Whom, about: Mapping[str, Any]) -> Headline:
    """What the winner reaches for a part of the cost, and the cost to the level by selector."""
    rows = []
    for selector in compared.selectors:
        rows.append((selector, tuple(_cost_to(compared, task, selector) for task in compared.tasks)))
    sentences = []
    for task in compared.tasks[:2]:
        held = compared.at_share(task)
        ours, theirs = (f"{100 * own.mean:.1f} %" for own in (held.success, held.of_top))
        sentences.append(
            f"On {task}, the selector {compared.winner} succeeds alone in {ours} of the episodes at "
            f"{100 * held.share:.0f} % of the cost of {compared.top}, which ends at {theirs}."
        )
    but = f" except those of {compared.sparing}" if compared.sparing else ""
    sentences.append(
        f"Means of {len(about['seeds'])} seeds with 95 % intervals; all runs{but} ask equally many questions."
    )
    caption = f"Cost of the answers to {compared.level:g} success alone"
    return Headline("", tuple(sentences), caption, ("selector", *compared.tasks), tuple(rows))


def _cost_to(compared: Whom, task: str, selector: str) -> tuple[str, str]:
    """The cost to the level, and below it the interval; how many runs reached it if fewer than half did."""
    runs, found = compared.costs_to(task, selector), compared.cost_to(task, selector)
    reached = int(np.isfinite(runs).sum())
    if 2 * reached < len(runs):
        return ("not reached", "") if not reached else ("–", f"reached by {reached} of {len(runs)} runs")
    rest = "" if reached == len(runs) else f", {reached} of {len(runs)} runs"
    return f"{found.mean:,.0f}", f"[{found.low:,.0f}, {found.high:,.0f}]{rest}"


def _made(about: Mapping[str, Any]) -> str:
    seeds = about["seeds"]
    return f"Seeds {seeds[0]} to {seeds[-1]}. Made by `{about['command']}`."


def _costs(compared: Whom, about: Mapping[str, Any]) -> Table:
    header = ("selector", "success alone", "cost", f"cost to {compared.level:g}", "reached")
    blocks = []
    for task in compared.tasks:
        rows = []
        for selector in compared.selectors:
            runs, costs = compared.runs(task, selector), compared.costs_to(task, selector)
            reached = f"{int(np.isfinite(costs).sum())} of {len(runs)}"
            success, cost = estimate([run.success for run in runs]), estimate([run.cost for run in runs])
            rows.append((selector, shown(success), shown(cost, 0), shown(compared.cost_to(task, selector), 0), reached))
        blocks.append(TableBlock(task, header, tuple(rows)))
    return explained("table_cost", _made(about), blocks, said=_TEXTS, level=compared.level)


def _improvement(compared: Whom, about: Mapping[str, Any]) -> Table:
    header = ("over", *compared.tasks)
    rows = [
        (other, *(f"{compared.probability(task, compared.winner, other):.2f}" for task in compared.tasks))
        for other in compared.selectors
        if other != compared.winner
    ]
    block = TableBlock(f"{compared.winner} needs less", header, tuple(rows))
    return explained("table_improvement", _made(about), [block], said=_TEXTS, level=compared.level)


def _style(compared: Whom, selector: str) -> Style:
    known: dict[str, Style] = {
        name: {"color": colour, "linestyle": "-"} for name, colour in zip(compared.selectors, _COLOURS, strict=False)
    }
    return styled(selector, known, compared.selectors)


def _looks(compared: Whom) -> dict[str, Look]:
    return {selector: Look(_style(compared, selector)["color"]) for selector in compared.selectors}


def _over_cost(compared: Whom, task: str, selector: str) -> tuple[Floats, Bands]:
    """Costs, and success alone at each."""
    runs = compared.runs(task, selector)
    grid = np.linspace(0.0, float(np.mean([run.cost for run in runs])), 40)
    return grid, bands(np.array([[run.success_at(cost) for cost in grid] for run in runs]))


def _curves_chart(compared: Whom) -> Chart:
    panels = []
    for task in compared.tasks:
        series = []
        for selector in compared.selectors:
            grid, found = _over_cost(compared, task, selector)
            points = np.stack([grid, found.mean, found.low, found.high], axis=1)
            series.append(Series(selector, tuple(tuple(row) for row in points.tolist())))
        panels.append((task, tuple(series)))
    return Chart(
        "cost of the answers",
        "success alone (share of episodes)",
        tuple(panels),
        _looks(compared),
        marks=False,
        line=compared.level,
    )


def _bars_chart(compared: Whom) -> Rows:
    panels = tuple(
        (task, tuple((selector, compared.cost_to(task, selector)) for selector in compared.selectors))
        for task in compared.tasks
    )
    return Rows(f"cost to {compared.level:g} success alone", panels, _looks(compared), digits=0)


def _curves(compared: Whom) -> Figure:
    """Success alone over cost, a panel for each task."""
    figure, axes = panel_grid(1, len(compared.tasks), 2.7, beside=0.4, sharey=True)
    for panel, task in zip(axes[0], compared.tasks, strict=True):
        for selector in compared.selectors:
            grid, found = _over_cost(compared, task, selector)
            style = _style(compared, selector) | {"linewidth": 2.2 if selector == compared.winner else 1.2}
            panel.plot(grid, found.mean, label=selector, **style)
            panel.fill_between(grid, found.low, found.high, color=style["color"], alpha=0.1, linewidth=0)
        panel.axhline(compared.level, color="#888888", linewidth=0.8, linestyle=":")
        panel.set_title(task)
        panel.set_xlabel("cost of the answers")
        panel.set_ylim(-0.03, 1.03)
    axes[0][0].set_ylabel("success alone")
    legend(figure, 4, space=0.16)
    return figure


def _bars(compared: Whom) -> Figure:
    """The cost to the level, every run and the mean."""
    names = compared.selectors[::-1]
    figure, axes = panel_grid(1, len(compared.tasks), 0.4 + 0.24 * len(names), beside=0.4, sharey=True)
    for panel, task in zip(axes[0], compared.tasks, strict=True):
        most = compared.dearest(task)
        for place, selector in enumerate(names):
            costs = np.array(compared.costs_to(task, selector))
            style = _style(compared, selector)
            there = costs[np.isfinite(costs)]
            panel.plot(there, np.full(len(there), place), "o", color=style["color"], markersize=3.5, alpha=0.6)
            found = compared.cost_to(task, selector)
            if len(there):
                panel.plot([found.low, found.high], [place, place], color=style["color"], linewidth=4, alpha=0.3)
            panel.text(1.06 * most, place, f"{len(there)} of {len(costs)}", va="center", fontsize=7)
        panel.set_xlim(0, 1.3 * most)
        panel.set_yticks(range(len(names)), names, fontsize=8)
        panel.set_title(task)
        panel.set_xlabel(f"cost to {compared.level:g} success alone")
    width, height = figure.get_size_inches()
    figure.subplots_adjust((0.3 + 0.072 * max(map(len, names))) / width, 0.46 / height, 0.99, 1 - 0.5 / height)
    return figure
