"""Episodes of R2R seen from above: the graph, the annotated path, the agent's way, where it asked and who answered."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from numpy.typing import NDArray

from apil.studies.figures import RC, WIDTH, pictures
from apil.studies.statistics import Floats

_MARGIN = 1.2
"""Metres around what has to be seen."""
_STOREY = 1.2
"""Metres of height within which a viewpoint is on the floor of a path."""
_GREEN, _BLUE = "#3a9d5d", "#1f4e9c"
_MARKERS = "osD^v"
_QUESTION_COLOURS = ("#d55e00", "#c4629a", "#c07f00", "#009e73")


@dataclass(frozen=True)
class Route:
    """An episode to be drawn; viewpoints are rows of `places`, P of them, those of one house."""

    name: str
    """Split and number of the episode."""
    instruction: str
    places: Floats
    """[P, 3] metres, z up."""
    edges: NDArray[np.int64]
    """[edges, 2] the viewpoints at both ends."""
    annotated: list[int]
    """The ground truth, from the start to the goal."""
    walked: list[int]
    heading: float
    """At the start, radians clockwise from +y."""
    answered: list[int | None]
    """Who answered at each step, one more than there are moves if the agent stopped; None where it did not ask."""
    members: tuple[str, ...]
    success_distance: float
    """Metres."""
    outcome: str
    """The measures of the episode in words."""


def picture(route: Route, about: str) -> dict[str, bytes]:
    """The map as `png` and `svg`, the same bytes every time."""
    with matplotlib.rc_context({**RC, "axes.grid": False}):
        left, right, low, high = _frame(route)
        height = WIDTH * (high - low) / (right - left)
        lines = textwrap.wrap(route.instruction, 104)
        figure = Figure(figsize=(WIDTH, height + 0.95 + 0.15 * len(lines)), dpi=110)
        figure.set_layout_engine("constrained", h_pad=0.08)
        panel = figure.add_subplot()
        _draw(panel, route)
        panel.set(xlim=(left, right), ylim=(low, high), aspect="equal", xticks=[], yticks=[])
        panel.spines[:].set(visible=True, color="#cccccc")
        # A bar of 2 metres in the lower left corner.
        panel.plot([left + 0.5, left + 2.5], [low + 0.5] * 2, color="black", linewidth=2.5, solid_capstyle="butt")
        panel.text(left + 1.5, low + 0.65, "2 m", ha="center", va="bottom", fontsize=8)
        figure.suptitle(f"{route.name}, {about}\n{route.outcome}", fontsize=9.5)
        panel.set_xlabel("\n".join(lines), fontsize=8.5, style="italic", loc="left")
        entries = panel.get_legend_handles_labels()
        figure.legend(*entries, loc="outside lower center", ncols=3, fontsize=8, labelspacing=0.9)
        return pictures(figure)


def _frame(route: Route) -> tuple[float, float, float, float]:
    """Left, right, low, high in metres: both paths and the circle with a margin; 0.4 to 0.85 times as high as wide."""
    seen = route.places[route.annotated + route.walked, :2]
    goal = route.places[route.annotated[-1], :2]
    low = np.minimum(seen.min(0), goal - route.success_distance) - _MARGIN
    high = np.maximum(seen.max(0), goal + route.success_distance) + _MARGIN
    middle, size = (low + high) / 2, high - low
    wide = max(size[0], size[1] / 0.85)
    tall = max(size[1], 0.4 * wide)
    return middle[0] - wide / 2, middle[0] + wide / 2, middle[1] - tall / 2, middle[1] + tall / 2


def _draw(panel: Axes, route: Route) -> None:
    _draw_graph(panel, route)
    points = route.places[:, :2]
    truth, way = points[route.annotated], points[route.walked]
    panel.plot(*truth.T, color=_GREEN, linewidth=8, alpha=0.45, solid_capstyle="round", label="ground truth", zorder=2)
    panel.plot(*way.T, color=_BLUE, linewidth=1.6, label="the agent's way", zorder=4)
    head = {"arrowstyle": "-|>,head_length=0.6,head_width=0.3", "color": _BLUE, "linewidth": 0}
    for before, after in pairwise(way):
        panel.annotate("", before + 0.6 * (after - before), before, arrowprops=head, zorder=4)
    goal = points[route.annotated[-1]]
    panel.add_patch(Circle(tuple(goal), route.success_distance, fill=False, color=_GREEN, linestyle=(0, (3, 2))))
    panel.plot(*goal, "*", color=_GREEN, markersize=15, markeredgecolor="white", label="goal, 3 m around", zorder=9)
    # A square, and an arrow of 1.2 m along the first heading.
    ahead = way[0] + 1.2 * np.array([np.sin(route.heading), np.cos(route.heading)])
    arrow = {"arrowstyle": "->", "color": "black", "linewidth": 1.4}
    panel.annotate("", tuple(ahead), tuple(way[0]), arrowprops=arrow, zorder=6)
    panel.plot(*way[0], "s", color="black", markersize=6, label="start and heading", zorder=6)
    _draw_questions(panel, route)
    _draw_steps(panel, route)


def _draw_graph(panel: Axes, route: Route) -> None:
    """What lies on the floors of the two paths; other floors are faint."""
    heights = route.places[route.annotated + route.walked, 2]
    here = np.abs(route.places[:, 2:] - heights).min(1) <= _STOREY
    points = route.places[:, :2]
    both = here[route.edges].all(1)
    for edges, viewpoints, colour, order in (
        (route.edges[~both], points[~here], "#ededed", 0),
        (route.edges[both], points[here], "#bcbcbc", 1),
    ):
        panel.add_collection(LineCollection(list(points[edges]), colors=colour, linewidths=0.7, zorder=order))
        panel.plot(*viewpoints.T, "o", color=colour, markersize=2.6, zorder=order)


def _draw_questions(panel: Axes, route: Route) -> None:
    """A ring at each viewpoint where the agent asked, of a colour and shape that tell who answered."""
    for rank, member in enumerate(route.members):
        where = [route.walked[step] for step, who in enumerate(route.answered) if who == rank]
        ring: dict[str, Any] = {"markersize": 12, "markerfacecolor": "none", "markeredgewidth": 2, "zorder": 7}
        ring["color"] = _QUESTION_COLOURS[rank % len(_QUESTION_COLOURS)]
        marker, label = _MARKERS[rank % len(_MARKERS)], f"asked: teacher {rank + 1} ({member})"
        if where:
            panel.plot(*route.places[where, :2].T, marker, label=label, **ring)


def _draw_steps(panel: Axes, route: Route) -> None:
    """The numbers of the steps at which the agent stood at each viewpoint."""
    box = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.6}
    beside: dict[str, Any] = {"xytext": (7, 6), "textcoords": "offset points", "fontsize": 8, "zorder": 8}
    for at in dict.fromkeys(route.walked):
        steps = ",".join(str(step) for step, place in enumerate(route.walked) if place == at)
        panel.annotate(steps, tuple(route.places[at, :2]), color=_BLUE, bbox=box, **beside)
