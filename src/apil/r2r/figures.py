"""The figures that only a study of R2R has, or that look different there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from apil.r2r.paper import printed_results
from apil.studies.charts import Chart, success_for_answers
from apil.studies.figures import (
    QUERY_STYLES,
    Plate,
    legend,
    looks_of,
    no_chart,
    panel_each,
    styled,
    success_curve,
    success_marker,
)
from apil.studies.records import StudyRecords
from apil.studies.text import spelled, texts

_SPLIT_STYLES: Any = ({"color": "#0072b2", "fmt": "o"}, {"color": "#c07f00", "fmt": "s"})


def _against_answers(
    study: StudyRecords, x: str, y: str, draw: Callable[[Axes, str, str, dict[str, Any]], None]
) -> Figure:
    """A panel for each teacher, in which `draw` (panel, teacher, query, style) shows each query policy."""
    figure, panels = panel_each(study.teachers, 1.98, x, y)
    for panel, teacher in zip(panels, study.teachers, strict=True):
        for query in study.queries:
            draw(panel, teacher, query, styled(query, QUERY_STYLES, study.queries))
        panel.set_xlim(left=0)
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:,.0f}k" if value else "0"))
        panel.locator_params(axis="x", nbins=5)
        panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    legend(figure, 5)
    return figure


def draw_success_answers(study: StudyRecords) -> Figure | None:
    """Success alone at the end against all answers used; success in training is of other houses, and with help."""
    top = max((cell.figure("answers").high for cell in study.cells), default=0.0)

    def draw(panel: Axes, teacher: str, query: str, style: dict[str, Any]) -> None:
        success_marker(panel, study, teacher, query, style["color"])
        panel.set_xlim(0, 1.08 * top or 1.0)
        panel.margins(y=0.15)

    return _against_answers(study, "answers, whole training", "success alone", draw)


def draw_looks(study: StudyRecords) -> Figure | None:
    """Success alone on val_seen at the looks of a training, against the answers so far: runs pale, their mean bold."""
    if not any(run.looks for run in study.runs):
        return None

    def draw(panel: Axes, teacher: str, query: str, style: dict[str, Any]) -> None:
        runs = [run.looks for run in study.runs if (run.teacher, run.query) == (teacher, query) and run.looks]
        for looks in runs if len(runs) > 1 else ():
            thin = {**style, "linewidth": 0.8, "alpha": 0.35}
            panel.plot([look.answers for look in looks], [look.success for look in looks], **thin)
        together = list(zip(*runs, strict=False))
        answers = [fmean(look.answers for look in looks) for looks in together]
        success = [fmean(look.success for look in looks) for looks in together]
        if runs:
            panel.plot(answers, success, label=query, marker=".", **style)

    return _against_answers(study, "answers so far", "success alone, val_seen", draw)


def draw_training_success(study: StudyRecords) -> Figure | None:
    """Success in training, in the houses trained on and with the help asked for, against the answers so far; none
    without the records over training."""
    if not len(study.metrics.columns["answers"]):
        return None

    def draw(panel: Axes, teacher: str, query: str, style: dict[str, Any]) -> None:
        success_curve(panel, study.metrics.where(teacher=teacher, query=query), style, query)
        panel.set_ylim(-0.03, 1.05)

    return _against_answers(study, "answers so far", "success in training", draw)


def draw_splits(study: StudyRecords) -> Figure | None:
    """Success alone on each split by query policy, a panel for each teacher, with the paper's numbers."""
    figure, panels = panel_each(study.teachers, 2.0, "", "success alone", below=0.75)
    for panel, teacher in zip(panels, study.teachers, strict=True):
        for rank, split in enumerate(study.splits[:2]):
            # The splits stand side by side.
            style = {**_SPLIT_STYLES[rank], "markersize": 6, "elinewidth": 1.2, "label": split}
            for place, query in enumerate(study.queries):
                success = study.cell(teacher, query).measure(split, "success_alone")
                if success.known:
                    bar = [[success.mean - success.low], [success.high - success.mean]]
                    panel.errorbar([place + 0.3 * rank - 0.15], [success.mean], yerr=bar, **style)
        printed = [printed_results(study).get(query, {}).get(teacher) for query in study.queries]
        paper = {place: result.success / 100 for place, result in enumerate(printed) if result is not None}
        if paper:
            dash: dict[str, Any] = {"color": "black", "markersize": 16, "markeredgewidth": 1.8}
            panel.plot(list(paper), list(paper.values()), "_", label="paper, test", **dash)
        panel.set_xticks(
            range(len(study.queries)), [*map(spelled, study.queries)], rotation=30, ha="right", rotation_mode="anchor"
        )
        panel.tick_params(labelbottom=True)
        panel.set_xlim(-0.6, len(study.queries) - 0.4)
        panel.yaxis.set_major_formatter(PercentFormatter(1.0))
        panel.margins(y=0.12)
    legend(figure, 3, space=0.14)
    return figure


def _chart_success_answers(study: StudyRecords) -> Chart:
    return success_for_answers(study, looks_of(study), "linear")


_DRAWN = (draw_splits, draw_success_answers, draw_looks, draw_training_success)
_CHARTS = {draw_success_answers: _chart_success_answers}
_TEXTS = texts("figures.toml", "apil.r2r")["plates"].items()
_PLATES = [
    Plate(name, **text, draw=draw, chart=_CHARTS.get(draw, no_chart))
    for (name, text), draw in zip(_TEXTS, _DRAWN, strict=True)
]


def r2r_plates(general: Sequence[Plate]) -> list[Plate]:
    """All figures of a study, in the order of the report."""
    own = {"figure_success_answers": _PLATES}
    return [plate for each in general for plate in own.get(each.name, [each])]
