"""The figures of the benchmark, drawn from its records alone."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from apil.studies.budget.compare import FIGURES, Comparison
from apil.studies.budget.compare import Figure as FigureName
from apil.studies.budget.definition import BASELINE, NEVER, TOP
from apil.studies.budget.plan import FULL
from apil.studies.budget.tables import TEXTS
from apil.studies.budget.where import Asked
from apil.studies.charts import Chart, Look, Rows, Series, point
from apil.studies.figures import QUERY_STYLES, RC, WIDTH, Style, legend, panel_grid, pictures, styled
from apil.studies.pages import Shown
from apil.studies.statistics import Estimate
from apil.studies.text import spelled

_COLOURS = {"worse": "#f4b183", "equal": "#e6e6e6", "better": "#9dc3e6"}
_DASHED = (0, (4, 1.6))


@dataclass(frozen=True)
class Drawn:
    """A figure in its formats, with what to say of it."""

    name: str
    title: str
    caption: str
    formats: dict[str, bytes]
    """By the ending of a file."""
    chart: Chart | Rows | None = None
    """The same for a browser."""
    task: str = ""
    """Of one task alone."""

    @property
    def shown(self) -> Shown:
        chart = self.chart.data if self.chart else None
        return Shown(self.name, self.title, self.caption, self.formats["svg"], chart=chart)


def all_figures(compared: Comparison, about: Mapping[str, Any], asked: list[Asked]) -> list[Drawn]:
    with matplotlib.rc_context(RC):
        level = "middle" if "middle" in compared.levels else compared.levels[-1]
        drawn = [_drawn("figure_verdicts", _verdicts(compared, level), level=level)]
        drawn.append(_drawn("figure_share", _share(compared), chart=_share_chart(compared)))
        for task in compared.runs.tasks:
            if len(compared.runs.levels(task)) == 1:
                rows = _answers_rows(compared, about, task)
                drawn.append(_drawn("figure_answers_rows", _rows(rows), task, rows, file="figure_answers"))
                continue
            full = next(own["full"] for own in about["tasks"] if own["task"] == task)
            chart = _answers_chart(compared, about, task)
            drawn.append(_drawn("figure_answers", _answers(compared, about, task), task, chart, full=full))
        drawn += [_drawn("figure_where", _where(own, about["winner"]), own.task) for own in asked]
        return drawn


def _drawn(
    name: str, figure: Figure, task: str = "", chart: Chart | Rows | None = None, file: str = "", **values: Any
) -> Drawn:
    title = TEXTS[name]["title"].format(**values) + (f" ({task})" if task else "")
    figure.suptitle(title, y=1 - 0.07 / figure.get_size_inches()[1])
    own = f"{file or name}_{task}" if task else name
    return Drawn(own, title, TEXTS[name]["caption"].format(**values), pictures(figure), chart, task)


def _verdicts(compared: Comparison, level: str) -> Figure:
    """Rules in rows, tasks in columns: success alone, coloured by what it is beside random asking."""
    rules, tasks = compared.rules, compared.runs.tasks
    places = list(_COLOURS)
    verdicts = [[places.index(compared.verdict(task, rule, level)) for task in tasks] for rule in rules]
    figure = Figure(figsize=(WIDTH, 1.5 + 0.24 * len(rules)), dpi=150)
    panel = figure.subplots()
    panel.imshow(verdicts, ListedColormap(list(_COLOURS.values())), vmin=0, vmax=2, aspect="auto")
    for row, rule in enumerate(rules):
        for column, task in enumerate(tasks):
            found = compared.figure(task, rule, level)
            text = f"{found.mean:.2f}" if found.known else "–"
            panel.text(column, row, text, ha="center", va="center", fontsize=8)
    panel.set_xticks(range(len(tasks)), tasks, rotation=30, ha="right", fontsize=8)
    panel.set_yticks(range(len(rules)), [*map(spelled, rules)], fontsize=8)
    panel.grid(visible=False)
    panel.tick_params(length=0)
    longest = max(map(len, rules))
    below = 0.25 + 0.035 * max(map(len, tasks))
    height = figure.get_size_inches()[1]
    figure.subplots_adjust((0.25 + 0.068 * longest) / WIDTH, below / height, 0.99, 1 - 0.4 / height)
    return figure


def _share(compared: Comparison) -> Figure:
    """A row for each rule, a panel for each budget."""
    chart = _share_chart(compared)
    figure = _rows(chart)
    for panel, level in zip(figure.axes, compared.levels, strict=True):
        base = compared.share_over_tasks(BASELINE, level)
        if base.known:
            panel.axvline(base.mean, color="#888888", linewidth=0.8, linestyle=_DASHED, zorder=0)
    return figure


def _rows(chart: Rows) -> Figure:
    """A row for each rule, from the top: a mark and its interval."""
    rules = [rule for rule, _ in chart.panels[0][1]]
    figure, axes = panel_grid(1, len(chart.panels), 0.35 + 0.2 * len(rules), sharex=True, sharey=True)
    for panel, (title, rows) in zip(axes[0], chart.panels, strict=True):
        for rule, found in rows:
            if found.known:
                look, ends = chart.looks[rule], [[found.mean - found.low], [found.high - found.mean]]
                face = "white" if look.open else look.colour
                mark: Style = {"fmt": "o", "color": look.colour, "markerfacecolor": face, "markersize": 4.5}
                panel.errorbar([found.mean], [rules.index(rule)], xerr=ends, **mark)
        panel.set_title(title)
        panel.set_yticks(range(len(rules)), [*map(spelled, rules)], fontsize=8)
        panel.set_xlabel(chart.x)
    axes[0][0].set_ylim(len(rules) - 0.5, -0.5)
    width = 0.2 + 0.072 * max(map(len, rules))
    height = figure.get_size_inches()[1]
    figure.subplots_adjust(width / WIDTH, 0.46 / height, 0.98, 1 - 0.5 / height)
    return figure


def _looks(compared: Comparison, reviews: Collection[str], controls: Collection[str] = ()) -> dict[str, Look]:
    """How rules are drawn in charts: `reviews` are dashed; they and the `controls` have open marks."""
    return {
        rule: Look(
            styled(rule, QUERY_STYLES, compared.rules)["color"], rule in reviews, rule in reviews or rule in controls
        )
        for rule in compared.rules
    }


def _share_chart(compared: Comparison) -> Rows:
    """The share of the gap, a panel for each budget."""
    rules = [rule for rule in compared.rules if rule != NEVER]
    panels = tuple(
        (f"{level} budget", tuple((rule, compared.share_over_tasks(rule, level)) for rule in rules))
        for level in compared.levels
    )
    return Rows("share of the gap closed", panels, _looks(compared, (), compared.controls))


def _reviews(about: Mapping[str, Any]) -> set[str]:
    return {rule["rule"] for rule in about["rules"] if rule["asking"] == "review"}


def _answers_rows(compared: Comparison, about: Mapping[str, Any], task: str) -> Rows:
    """Success alone with the only budget, sampled and greedy; the ends of the scale are the last rows."""
    ((level, budget),) = compared.runs.levels(task).items()
    top = _top(about, task)

    def rows(name: FigureName) -> tuple[tuple[str, Estimate], ...]:
        asking = [rule for rule in compared.rules if rule != NEVER]
        found = [(rule, compared.figure(task, rule, level, name)) for rule in asking]
        ends = [(NEVER, compared.figure(task, NEVER, FULL, name)), (top, compared.figure(task, TOP, FULL, name))]
        return (*found, *ends)

    looks = _looks(compared, _reviews(about), compared.controls) | {top: Look("#8a8a90")}
    panels = tuple((_AXES[name], rows(name)) for name in FIGURES)
    return Rows(f"share of episodes, with {budget:,} answers", panels, looks)


def _top(about: Mapping[str, Any], task: str) -> str:
    return f"{spelled(TOP)} with {next(own['full'] for own in about['tasks'] if own['task'] == task):,}"


def _answers_chart(compared: Comparison, about: Mapping[str, Any], task: str) -> Chart:
    """Success alone against answers, sampled and greedy."""
    levels = compared.runs.levels(task)

    def series(rule: str, name: FigureName) -> Series:
        if rule == NEVER:
            return Series(rule, (point(0.0, compared.figure(task, rule, FULL, name)),), flat=True)
        found = ((levels[at], compared.figure(task, rule, at, name)) for at in levels)
        return Series(rule, tuple(point(x, figure) for x, figure in found if figure.known))

    top = _top(about, task)
    panels = tuple(
        (
            _AXES[name],
            (
                *(own for rule in compared.rules if (own := series(rule, name)).points),
                Series(top, (point(0.0, compared.figure(task, TOP, FULL, name)),), flat=True),
            ),
        )
        for name in FIGURES
    )
    looks, ticks = _looks(compared, _reviews(about)), tuple(float(budget) for budget in levels.values())
    return Chart("answers", "success alone (share of episodes)", panels, looks | {top: Look("#8a8a90")}, "log", ticks)


_AXES = {"success_alone": "success alone", "success_greedy": "success alone, greedy"}


def _answers(compared: Comparison, about: Mapping[str, Any], task: str) -> Figure:
    """Two panels, sampled and greedy actions; a line for each rule."""
    reviews = _reviews(about)
    levels = compared.runs.levels(task)
    figure, axes = panel_grid(1, 2, 2.9, beside=0.5, sharey=True)
    rules = [rule for rule in compared.rules if rule != NEVER]
    spread = np.exp(np.linspace(-0.07, 0.07, len(rules)))
    for panel, figure_name in zip(axes[0], FIGURES, strict=True):
        panel.axhline(
            compared.figure(task, NEVER, FULL, figure_name).mean,
            label=NEVER,
            **QUERY_STYLES[NEVER] | {"linewidth": 1.2},
        )
        top = compared.figure(task, TOP, FULL, figure_name)
        panel.axhline(top.mean, color="#8a8a8a", linewidth=1.2, zorder=0)
        for rule, factor in zip(rules, spread, strict=True):
            points = [(levels[at] * factor, compared.figure(task, rule, at, figure_name)) for at in levels]
            style = styled(rule, QUERY_STYLES, compared.rules)
            _line(panel, [(x, found) for x, found in points if found.known], rule, style, review=rule in reviews)
        panel.set_xscale("log")
        budgets = list(levels.values())
        panel.set_xlim(budgets[0] * 0.8, budgets[-1] * 1.25)
        panel.set_xticks(budgets, [f"{budget:,}" for budget in budgets])
        panel.set_xticks([], minor=True)
        panel.set_ylim(-0.03, 1.03)
        panel.set_title(_AXES[figure_name])
        panel.set_xlabel("answers (log. scale)")
    axes[0][0].set_ylabel("success (share)")
    legend(figure, 4, space=0.16)
    return figure


def _line(panel: Axes, points: list[tuple[float, Estimate]], rule: str, style: Style, *, review: bool) -> None:
    if not points:
        return
    ends = [[found.mean - found.low for _, found in points], [found.high - found.mean for _, found in points]]
    look: Style = {**style, "linewidth": 1.2, "zorder": 3, "linestyle": _DASHED if review else "-"}
    face = "white" if review else style["color"]
    x, means = [x for x, _ in points], [found.mean for _, found in points]
    panel.errorbar(x, means, ends, label=rule, marker="o", markersize=3.6, markerfacecolor=face, elinewidth=0.7, **look)


def _where(asked: Asked, winner: str) -> Figure:
    """Heat maps side by side on one scale: random, APIL and the winner."""
    rules = [rule for rule in dict.fromkeys((BASELINE, "apil", winner)) if rule in asked.counts]
    rules = rules or list(asked.counts)[:3]
    tables = {rule: asked.table(rule) / max(asked.table(rule).sum(), 1.0) for rule in rules}
    most = max(float(table.max()) for table in tables.values())
    left, right, low, high = asked.bounds
    extent = (left, right, high, low) if asked.downwards else (left, right, low, high)
    shape = next(iter(tables.values())).shape
    height = min(2.6, 1.9 * (shape[0] / shape[1] if asked.downwards else 1.0))
    figure, axes = panel_grid(1, len(rules), height, beside=0.25, sharey=True)
    for panel, rule in zip(axes[0], rules, strict=True):
        origin: Literal["upper", "lower"] = "upper" if asked.downwards else "lower"
        shaded = np.where(tables[rule] > 0, tables[rule], math.nan)
        panel.imshow(shaded, "viridis_r", vmin=0.0, vmax=most, extent=extent, origin=origin, aspect="auto")
        panel.set_title(spelled(rule))
        panel.set_xlabel(asked.x)
        panel.grid(visible=False)
    axes[0][0].set_ylabel(asked.y)
    height = figure.get_size_inches()[1]
    figure.subplots_adjust(0.75 / WIDTH, 0.46 / height, 1 - 0.15 / WIDTH, 1 - 0.5 / height)
    return figure
