"""The figures of a study, drawn from its records alone; nothing here keeps global plotting state."""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogFormatter
from matplotlib.transforms import blended_transform_factory

from apil.studies.charts import Chart, Look, at_points, query_rates, success_for_answers
from apil.studies.records import CellResult, Curves, StudyRecords, TeacherModel, in_order
from apil.studies.statistics import Estimate, Floats, bands, mean_curve, principal_plane
from apil.studies.text import spelled, texts

WIDTH = 6.6
"""Inches. Narrow on purpose: letters stay readable when a telephone shows the whole width."""

_TEXTS = texts("figures.toml")
RC: Any = _TEXTS["rc"]
"""Settings of matplotlib."""
Style = dict[str, Any]


_DASHES: dict[str, Any] = {
    "solid": "-",
    "dashed": (0, (4, 1.6)),
    "dotted": (0, (1, 1.2)),
    "dot-dashed": (0, (4, 1.3, 1, 1.3)),
}


def _style(color: str, dashes: str = "solid", width: float = 1.5) -> Style:
    """A line; thin ones lie over thick ones, so that both are seen where they coincide."""
    return {"color": color, "linestyle": _DASHES[dashes], "linewidth": width, "zorder": 5 - width}


QUERY_STYLES = {name: _style(*look) for name, look in _TEXTS["queries"].items()}
_QUERY_MARKERS = dict(zip(QUERY_STYLES, "xsv+^DhoP*<", strict=True))
_TEACHER_STYLES = {name: _style(*look) for name, look in _TEXTS["teachers"].items()}
_OTHER_COLOURS = ("#117733", "#aa4499", "#661100", "#8a5a44")


def styled(name: str, styles: dict[str, Style], names: Sequence[str]) -> Style:
    """The fixed style of a known name; a thin line in a colour of its own for any other."""
    if name in styles:
        return styles[name]
    others = [other for other in names if other not in styles]
    turn, place = divmod(others.index(name), len(_OTHER_COLOURS))
    return _style(_OTHER_COLOURS[place], [*_DASHES][turn % len(_DASHES)], width=1.2)


def no_chart(study: StudyRecords) -> None:
    """Of a figure that is a picture alone."""


@dataclass(frozen=True)
class Plate:
    """One figure: what it shows, how to read it, and how to draw it."""

    name: str
    """File name without its ending."""
    title: str
    caption: str
    draw: Callable[[StudyRecords], Figure | None]
    """None when the study lacks the records."""
    note: str = ""
    """More on how to read it; the caption is one sentence."""
    chart: Callable[[StudyRecords], Chart | None] = no_chart
    """The same for a browser, where pointing at it helps."""


def render(plate: Plate, study: StudyRecords) -> dict[str, bytes]:
    """The figure as `png` and `svg`, the same bytes every time; empty when the study lacks the records.

    A chart of records that may be missing later comes as `json` too.
    """
    with matplotlib.rc_context(RC):
        figure = plate.draw(study)
        if figure is None:
            return {}
        figure.suptitle(f"{plate.title} ({study.label})", y=1 - 0.07 / figure.get_size_inches()[1])
        formats = pictures(figure)
    chart = plate.chart(study) if plate.name in OVER_TRAINING else None
    return formats | ({"json": json.dumps(chart.data).encode()} if chart else {})


def pictures(figure: Figure) -> dict[str, bytes]:
    """The figure as `png` and `svg`."""
    png, svg = io.BytesIO(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # labels may be in any script; such letters are boxes
        figure.savefig(png, format="png", facecolor="white", metadata={"Software": None})
        figure.set_layout_engine("none")  # the layout just found serves both formats
        figure.savefig(svg, format="svg", facecolor="white", metadata={"Date": None})
    return {"png": png.getvalue(), "svg": svg.getvalue()}


_LEFT, _RIGHT, _TOP, _BOTTOM = 0.3, 0.2, 0.5, 0.46
"""Inches around the panels, for titles and labels; at the left without the numbers at ticks."""


def panel_grid(
    rows: int, columns: int, height: float, *, beside: float = 0.22, below: float = 0.36, **share: Any
) -> tuple[Figure, list[list[Axes]]]:
    """Panels of a height, `beside` and `below` each other, in inches; no layout engine, which would draw it twice."""
    figure = Figure(figsize=(WIDTH, _TOP + rows * height + (rows - 1) * below + _BOTTOM), dpi=150)
    width = (WIDTH - 2 * _LEFT - _RIGHT - (columns - 1) * beside) / columns
    gaps = {"wspace": beside / width, "hspace": below / height}
    axes = figure.subplots(rows, columns, squeeze=False, gridspec_kw=gaps, **share)
    for panel in figure.axes:
        at_edge = blended_transform_factory(figure.transFigure, panel.transAxes)
        panel.yaxis.set_label_coords(0.2 / WIDTH, 0.5, at_edge)
        panel.xaxis.set_label_coords(0.5, -0.27 / height)
    return figure, axes.tolist()


def panel_each(names: Sequence[str], height: float, x: str, y: str, below: float = 0.36) -> tuple[Figure, list[Axes]]:
    """A panel for each teacher, two in a row, all on the same scales and with the same two labels."""
    columns = min(2, len(names))
    rows = -(-len(names) // columns)
    figure, axes = panel_grid(rows, columns, height, below=below, sharex=True, sharey=True)
    panels = figure.axes
    for panel in panels[len(names) :]:
        panel.set_visible(False)
    for panel, name in zip(panels, names, strict=False):
        panel.set_title(f"teacher {spelled(name)}")
    for panel in panels[len(names) - columns : len(names)]:
        panel.tick_params(labelbottom=True)
        panel.set_xlabel(x)
    for row in axes:
        row[0].set_ylabel(y)
    return figure, panels[: len(names)]


def _line(panel: Axes, x: Floats, values: Floats, label: str, style: Style, shade: float = 0.16) -> None:
    """A mean line with its band, of values [seeds, points]; nothing when there are none."""
    if not np.isfinite(values).any():
        return
    found = bands(values)
    marker = "o" if len(x) == 1 else None
    panel.plot(x, found.mean, label=label, marker=marker, markersize=3, **style)
    there = np.flatnonzero(np.isfinite(found.mean))
    low, high = np.stack([x, found.low], axis=1), np.stack([x, found.high], axis=1)
    parts = np.split(there, np.flatnonzero(np.diff(there) > 1) + 1)
    outlines = [np.concatenate([low[part], high[part[::-1]]]) for part in parts]
    panel.update_datalim(np.concatenate(outlines))  # `fill_between` would find all limits again for each band
    band = PolyCollection(outlines, facecolors=style["color"], alpha=shade, linewidths=0)
    panel.add_collection(band, autolim=False)


def legend(figure: Figure, columns: int, space: float = 0.06) -> None:
    """One legend below all panels, an entry for each label; the figure grows by its height and the space above it."""
    found: dict[str, Any] = {}
    for panel in figure.axes:
        handles, labels = panel.get_legend_handles_labels()
        found |= {label: handle for label, handle in zip(labels, handles, strict=True) if label not in found}
    names = in_order(found)
    # Of a marker with error bars the marker alone: the bars would make a cross of it.
    handles = [found[name][0] if isinstance(found[name], ErrorbarContainer) else found[name] for name in names]
    longest = max(map(len, names), default=0)
    columns = max(1, min(columns, int(WIDTH / (0.55 + 0.075 * longest))))
    lines = 0.19 * -(-len(names) // columns) + space
    left, height = _LEFT + _numbers_width(figure), figure.get_size_inches()[1] + lines
    figure.set_size_inches(WIDTH, height)
    figure.subplots_adjust(left / WIDTH, (_BOTTOM + lines) / height, 1 - _RIGHT / WIDTH, 1 - _TOP / height)
    figure.legend(
        handles, [*map(spelled, names)], loc="lower center", ncols=columns, handlelength=2.8, borderaxespad=0.2
    )


def _numbers_width(figure: Figure) -> float:
    """Inches that the numbers at the left need, guessed by their letters."""
    axes = [panel.yaxis for panel in figure.axes if panel.get_ylabel()]
    shown = [text for axis in axes for text in axis.get_major_formatter().format_ticks([*axis.get_majorticklocs()])]
    return 0.05 + 0.085 * max(map(len, shown), default=0)


_QUANTITIES = ("model", "extrinsic", "intrinsic", "behavioral", "total")


def draw_uncertainty(study: StudyRecords) -> Figure | None:
    """Five kinds of uncertainty (rows) for a few trainers (columns), a line for each teacher."""
    trained = study.metrics.names("query")
    trainers = [name for name in ("dagger", "apil", "intrun") if name in trained] or trained[:3]
    if not trainers:
        return None
    figure, axes = panel_grid(len(_QUANTITIES), len(trainers), 1.36, beside=0.29, below=0.15, sharex=True, sharey="row")
    teachers = study.metrics.names("teacher")
    for row, quantity in enumerate(_QUANTITIES):
        axes[row][0].set_ylabel(f"{quantity} ({study.unit})")
        for panel, trainer in zip(axes[row], trainers, strict=True):
            for teacher in teachers:
                style = styled(teacher, _TEACHER_STYLES, teachers)
                curves = study.metrics.where(teacher=teacher, query=trainer)
                _line(panel, *curves.over_training(quantity), teacher, style)
        _mark_expectations(axes[row], study, teachers, quantity)
    for panel, trainer in zip(axes[0], trainers, strict=True):
        panel.set_title(f"trained by {spelled(trainer)}")
    for panel in axes[-1]:
        panel.set_xlabel("training iteration")
    legend(figure, 4)
    return figure


_FAR = 3.0
"""A perfect copy that stands this many times as high as all curves is named in words: they would be flat beside it."""


def _mark_expectations(panels: Sequence[Axes], study: StudyRecords, teachers: Sequence[str], quantity: str) -> None:
    """A triangle at the right edge where a perfect copy of each teacher would stand; equal ones are side by side."""
    known = {name: study.expectations.get(name, {}).get(quantity) for name in teachers}
    values = {name: float(value) for name, value in known.items() if isinstance(value, float | int)}
    top = max(panel.get_ylim()[1] for panel in panels)
    far = {name: value for name, value in values.items() if value > _FAR * top}
    near = [name for name in values if name not in far]
    for panel in panels:
        for rank, name in enumerate(near):
            beside = sum(abs(values[name] - values[other]) < 0.05 * top for other in near[:rank])
            look = {"marker": "<", "ms": 5, "color": styled(name, _TEACHER_STYLES, teachers)["color"]}
            place = panel.get_yaxis_transform()
            panel.plot([1.0 + 0.035 * beside], [values[name]], transform=place, clip_on=False, **look)
        if far:
            text = ", ".join(f"{spelled(name)} {value:.2f}" for name, value in far.items())
            panel.annotate(f"perfect copy: {text}", (0.03, 0.9), xycoords="axes fraction", fontsize=7, color="#444444")


def draw_query_rate(study: StudyRecords) -> Figure | None:
    """Query rate over training, a panel for each teacher, a line for each query policy."""
    teachers, queries = study.metrics.names("teacher"), study.metrics.names("query")
    if not teachers:
        return None
    figure, panels = panel_each(teachers, 2.1, "training iteration", "query rate (share of steps)")
    for panel, teacher in zip(panels, teachers, strict=True):
        for query in queries:
            style = styled(query, QUERY_STYLES, queries)
            curves = study.metrics.where(teacher=teacher, query=query)
            _line(panel, *curves.over_training("query_rate"), query, style)
        panel.set_ylim(-0.03, 1.05)
    legend(figure, 5)
    return figure


_SAMPLE_COLOURS = ("#b98300", "#d0661a", "#c8412f", "#a32c63", "#6a1b6e", "#2d0b45")


def draw_model_samples(study: StudyRecords) -> Figure | None:
    """Model uncertainty over training, a line for each number of identity samples, on two scales."""
    counts = sorted(study.samples.names("samples"), key=lambda name: int(name) if name.isdigit() else 10**9)
    if not counts:
        return None
    figure, axes = panel_grid(1, 2, 2.7, beside=0.55, sharex=True)
    for panel in axes[0]:
        for rank, count in enumerate(counts):
            colour = _SAMPLE_COLOURS[min(rank, len(_SAMPLE_COLOURS) - 1)]
            style = _style(colour, width=1.8) if count.isdigit() else _style("#0072b2", "dashed", 2.4)
            label = {"1": "1 sample", "exact": "exact sum"}.get(count, f"{count} samples")
            _line(panel, *study.samples.where(samples=count).over_training("model"), label, style)
        panel.set_xlabel("training iteration")
    axes[0][0].set_title("linear scale")
    _set_log_scale(axes[0][1], study.samples.columns["model"])
    axes[0][0].set_ylabel("model uncertainty (bits)")
    legend(figure, 3)
    return figure


def _set_log_scale(panel: Axes, values: Floats) -> None:
    """A logarithmic vertical axis of at most five decades; left linear when no value is above zero."""
    positive = values[values > 0]
    if positive.size:
        panel.set_title("logarithmic scale")
        panel.set_yscale("log", nonpositive="clip")
        panel.yaxis.set_major_formatter(FuncFormatter(_power_of_ten))
        panel.yaxis.set_minor_formatter(LogFormatter())
        panel.set_ylim(bottom=max(panel.get_ylim()[0], positive.max() * 1e-5))


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _power_of_ten(value: float, _: object) -> str:
    return "10" + str(round(math.log10(value))).translate(_RAISED) if value > 0 else "0"


def draw_success_answers(study: StudyRecords) -> Figure | None:
    """Success alone at the end of training against the answers used."""
    if not study.teachers or study.points:
        return None
    figure, panels = panel_each(study.teachers, 2.15, "answers (log. above 10)", "success alone (share of episodes)")
    for panel, teacher in zip(panels, study.teachers, strict=True):
        for query in study.queries:
            success_marker(panel, study, teacher, query, styled(query, QUERY_STYLES, study.queries)["color"])
        panel.set_xscale("symlog", linthresh=10, linscale=0.4)
        panel.xaxis.set_major_formatter(FuncFormatter(_power_of_ten))
        panel.set_xlim(left=-3)
        panel.set_ylim(-0.04, 1.06)
    legend(figure, 5)
    return figure


def draw_answers(study: StudyRecords) -> Figure | None:
    """Success alone with sampled actions against the number of answers."""
    return _at_points(study, "success_alone", "success alone (share of episodes)")


def draw_answers_greedy(study: StudyRecords) -> Figure | None:
    """Success alone with greedy actions against the number of answers."""
    return _at_points(study, "success_greedy", "success alone, greedy (share)")


_SPREAD = 0.16
"""Over how much of the gap between two numbers of answers the rules are spread, so that their intervals are seen."""


def _at_points(study: StudyRecords, name: str, title: str) -> Figure | None:
    """A panel for each teacher, a line for each rule, with intervals; rules that review are dashed and open."""
    points = study.points
    if not any(getattr(at, name).known for cell in study.cells for at in cell.at):
        return None
    figure, panels = panel_each(study.teachers, 2.9, "answers (log. scale)", title)
    gap = math.log(points[-1] / points[0]) / (len(points) - 1) if len(points) > 1 else 1.0
    offsets = np.linspace(-1, 1, len(study.queries)) * min(_SPREAD * gap, 0.1)
    for panel, teacher in zip(panels, study.teachers, strict=True):
        for query, offset in zip(study.queries, offsets, strict=True):
            cell = study.cell(teacher, query)
            style = _rule_style(study, cell)
            known = [(at.answers * math.exp(offset), getattr(at, name)) for at in cell.at if getattr(at, name).known]
            if known and cell.at[0].answers == 0:
                panel.axhline(known[0][1].mean, label=query, **style | {"linewidth": 1.2})
            elif known:
                _points_line(panel, known, query, style, cell)
        panel.set_xscale("log")
        panel.set_xlim(points[0] * 0.8, points[-1] * 1.25)
        panel.set_xticks(points, [f"{point:,}" for point in points], fontsize=9 if len(points) < 7 else 7.5)
        panel.set_xticks([], minor=True)
        panel.set_ylim(-0.03, 1.03)
    legend(figure, 4, space=0.16)
    return figure


def _points_line(
    panel: Axes, known: Sequence[tuple[float, Estimate]], query: str, style: Style, cell: CellResult
) -> None:
    x, means = [at for at, _ in known], [found.mean for _, found in known]
    ends = [[found.mean - found.low for _, found in known], [found.high - found.mean for _, found in known]]
    look: Style = {"marker": _QUERY_MARKERS.get(cell.rule, "o"), "markersize": 4.0, "markeredgewidth": 1.0}
    face = "white" if cell.asking == "review" else style["color"]
    line = {**style, "linewidth": 1.2, "zorder": 3}
    panel.errorbar(x, means, ends, label=query, markerfacecolor=face, elinewidth=0.7, **look, **line)


def _rule_style(study: StudyRecords, cell: CellResult) -> Style:
    """The colour of the rule; solid if it asks live and dashed if it reviews. A second rule of a kind has its own."""
    same = [
        name
        for name in study.queries
        if (other := study.cell(cell.teacher, name)).rule == cell.rule and other.asking == cell.asking
    ]
    known = cell.rule in QUERY_STYLES and same[0] == cell.query
    found = QUERY_STYLES[cell.rule] if known else styled(cell.query, QUERY_STYLES, study.queries)
    dashes = _DASHES["dotted" if cell.rule == "never" else "dashed" if cell.asking == "review" else "solid"]
    return {**found, "linestyle": dashes}


def success_curve(panel: Axes, curves: Curves, style: Style, label: str = "_nolegend_") -> None:
    """Success in training against the answers so far."""
    answers, success = (curves.over_training(figure)[1] for figure in ("answers", "success"))
    if answers.size:
        _line(panel, mean_curve(answers), success, label, style | {"linewidth": 1.0}, shade=0.10)


def success_marker(panel: Axes, study: StudyRecords, teacher: str, query: str, colour: str) -> None:
    """Success alone at the end against all answers, with both intervals."""
    cell = study.cell(teacher, query)
    answers, success = cell.figure("answers"), cell.figure("success_alone")
    if not (answers.known and success.known):
        return
    across, along = ([[of.mean - of.low], [of.high - of.mean]] for of in (answers, success))
    look: Style = {"markersize": 7, "markerfacecolor": "none", "markeredgewidth": 1.5, "elinewidth": 1.0, "zorder": 4}
    marker = _QUERY_MARKERS.get(query, "o")
    panel.errorbar([answers.mean], [success.mean], along, across, fmt=marker, color=colour, label=query, **look)


def draw_personas(study: StudyRecords) -> Figure | None:
    """Learned persona vectors in the plane: committees in rows, trainers in columns."""
    committees = [model for model in study.models if len(model.members) > 1]
    trained = in_order(model.query for model in committees)
    trainers = [name for name in ("dagger", "apil") if name in trained] or trained[:2]
    models = [model for model in committees if model.query in trainers]
    teachers = in_order(model.teacher for model in models)
    if not teachers:
        return None
    figure, axes = panel_grid(len(teachers), len(trainers), 2.2, below=0.7, sharex="row", sharey="row")
    for row, teacher in zip(axes, teachers, strict=True):
        runs = [model for model in models if model.teacher == teacher]
        points, shares = principal_plane([model.personas for model in runs])
        for panel, trainer in zip(row, trainers, strict=True):
            mine = [(run, place) for run, place in zip(runs, points, strict=True) if run.query == trainer]
            _scatter_personas(panel, mine)
            known = [run.persona_js for run, _ in mine if np.isfinite(run.persona_js)]
            apart = f": act {np.mean(known):.2f} bits apart" if known else ""
            panel.set_title(f"{spelled(teacher)} by {spelled(trainer)}{apart}")
            panel.set_xlabel(f"first axis ({shares[0]:.0%} of the variance)")
        row[0].set_ylabel(f"second axis ({shares[1]:.0%})")
    legend(figure, 4)
    return figure


_MEMBER_COLOURS = ("#0072b2", "#c07f00", "#009e73", "#c4629a", "#d55e00", "#1e96b8")


def _scatter_personas(panel: Axes, runs: Sequence[tuple[TeacherModel, Floats]]) -> None:
    panel.add_collection(LineCollection([places for _, places in runs], colors="#8c8c8c", linewidths=0.8, zorder=1))
    for rank in range(max((len(model.members) for model, _ in runs), default=0)):
        places = np.array([own[rank] for _, own in runs if rank < len(own)]).T
        look: Style = {"marker": "os^D"[rank % 4], "color": _MEMBER_COLOURS[rank % len(_MEMBER_COLOURS)]}
        panel.plot(*places, linestyle="none", markersize=5.5, label=f"member {rank + 1}", zorder=2, **look)


def draw_query_objective(study: StudyRecords) -> Figure | None:
    """The two terms of the query objective of APIL over training, a panel for each teacher."""
    teachers = study.objective.names("teacher")
    if not teachers:
        return None
    figure, panels = panel_each(teachers, 1.95, "training iteration", "probability")
    for panel, teacher in zip(panels, teachers, strict=True):
        curves = study.objective.where(teacher=teacher)
        asks, none = _style("#0072b2", width=2.0), _style("#d55e00", "dashed", 2.0)
        _line(panel, *curves.over_training("query_on_progress"), "asks although it makes progress", asks)
        _line(panel, *curves.over_training("no_progress"), "makes no progress", none)
        panel.set_ylim(-0.03, 1.05)
    legend(figure, 2)
    return figure


def looks_of(study: StudyRecords) -> dict[str, Look]:
    """How each rule is drawn in charts: as in the pictures."""
    found = {}
    for query in study.queries:
        cell = study.cell(study.teachers[0], query)
        style = _rule_style(study, cell) if cell.at else styled(query, QUERY_STYLES, study.queries)
        found[query] = Look(style["color"], style["linestyle"] != "-", cell.asking == "review")
    return found


def _chart_answers(study: StudyRecords) -> Chart | None:
    return at_points(study, looks_of(study), "success_alone")


def _chart_answers_greedy(study: StudyRecords) -> Chart | None:
    return at_points(study, looks_of(study), "success_greedy")


def _chart_success_answers(study: StudyRecords) -> Chart | None:
    return success_for_answers(study, looks_of(study), "symlog")


def _chart_query_rate(study: StudyRecords) -> Chart | None:
    return query_rates(study, looks_of(study))


def _plate(draw: Callable[[StudyRecords], Figure | None], **more: Any) -> Plate:
    name = draw.__name__.replace("draw", "figure")
    return Plate(name, **_TEXTS[name], draw=draw, **more)


PLATES = (
    _plate(draw_success_answers, chart=_chart_success_answers),
    _plate(draw_uncertainty),
    _plate(draw_query_rate, chart=_chart_query_rate),
    _plate(draw_model_samples),
    _plate(draw_personas),
    _plate(draw_query_objective),
)
"""All figures, in the order of the report."""
ANSWER_PLATES = (
    _plate(draw_answers, chart=_chart_answers),
    _plate(draw_answers_greedy, chart=_chart_answers_greedy),
)
"""Figures of a study that compares rules at equal numbers of answers, before all others."""
OVER_TRAINING = frozenset(f"figure_{name}" for name in ("uncertainty", "query_rate", "query_objective"))
"""Figures that such a study does not have: its runs ask until their answers are spent, and end apart."""
LEADING = (ANSWER_PLATES[0].name, PLATES[0].name)
"""A report begins with the first of these figures that it has."""
RATES = "figure_query_rate"
"""Leads where every agent succeeds and rules differ by their questions alone."""
