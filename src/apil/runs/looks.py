"""What the looks at a run showed: its learning curves over answers, from the rows of metrics alone."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

from apil.errors import ApilError
from apil.files import read_rows
from apil.learning.curve import LearningCurve
from apil.learning.outlook import Look, Outlook, curve_of

_BLUE, _ORANGE, _GREY = "#0072b2", "#d55e00", "#777777"


@dataclass(frozen=True)
class LearningCurves:
    """The three curves of a run over answers."""

    looks: tuple[Look, ...]
    losses: tuple[tuple[int, float], ...]
    """Answers, and the loss on those that are held out."""
    outlook: Outlook
    """What the last look showed."""

    @property
    def success(self) -> LearningCurve:
        """The posterior of success alone."""
        return curve_of(self.looks)


def curves_of(rows: Iterable[Mapping[str, Any]]) -> LearningCurves | None:
    """From rows of metrics; None where no look was taken."""
    looks: list[Look] = []
    losses: list[tuple[int, float]] = []
    last: Mapping[str, Any] | None = None
    try:
        for row in rows:
            looks += [Look(**look) for look in row.get("looks", ())]
            last = row.get("outlook", last)
            if row.get("validation_loss") is not None:
                losses.append((int(row["answers"]), float(row["validation_loss"])))
        return (
            None if last is None or not looks else LearningCurves(tuple(looks), tuple(losses), Outlook.from_json(last))
        )
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ApilError(f"The looks in the rows of metrics cannot be read ({error}): restore metrics.jsonl.") from None


def learning_curves(folder: Path) -> LearningCurves | None:
    """Those of a run folder; None where no look was taken."""
    path = folder / "metrics.jsonl"
    return curves_of(read_rows(path)) if path.exists() else None


def figure(curves: LearningCurves) -> bytes:
    """A PNG: success alone and where it tends to, the loss on held-out answers, and progress by Alg 2."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(10.5, 3.4), layout="constrained", dpi=150)
    success, loss, progress = drawn.subplots(1, 3)
    _draw_success(success, curves)
    _draw(loss, list(dict(curves.losses).items()), "loss on held-out answers", _ORANGE)
    made = [(look.answers, look.progress) for look in curves.looks if look.progress is not None]
    _draw(progress, made, "steps with progress (Alg 2)", _GREY)
    progress.set_ylim(-0.03, 1.03)
    for axes in (success, loss, progress):
        _log_answers(axes, max(1, curves.looks[0].answers), 2.0 * max(1, curves.looks[-1].answers))
    content = io.BytesIO()
    drawn.savefig(content, format="png", facecolor="white", metadata={"Software": None})
    return content.getvalue()


def _draw_success(axes: Any, curves: LearningCurves) -> None:
    looks, found, curve = curves.looks, curves.outlook, curves.success
    n = np.maximum([look.answers for look in looks], 1)
    alone, episodes = np.array([[look.success, look.episodes] for look in looks]).T
    high, low = (beta.ppf(share, alone * episodes + 0.5, (1 - alone) * episodes + 0.5) for share in (0.9, 0.1))
    error = [np.maximum(alone - low, 0), np.maximum(high - alone, 0)]
    axes.errorbar(n, alone, yerr=error, fmt="o", color=_BLUE, markersize=4, label="looks")
    ahead = np.geomspace(n[0], 2.0 * n[-1], 40)
    ranges = [curve.level(float(at)) for at in ahead]
    axes.fill_between(ahead, [r.low for r in ranges], [r.high for r in ranges], color=_BLUE, alpha=0.2, linewidth=0)
    axes.plot(ahead, [r.mean for r in ranges], color=_BLUE, linewidth=1, label="curve, 80 %")
    if found.teachers.success is not None:
        axes.axhline(found.teachers.success, color=_GREY, linestyle=":", label="teachers")
    axes.axvline(n[-1], color=_GREY, linewidth=0.8)
    axes.set(title="Success alone", ylim=(-0.03, 1.05))
    axes.legend(fontsize=7, frameon=False)


def _log_answers(axes: Any, low: float, high: float) -> None:
    """The same axis of answers for all curves."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set(xscale="log", xlabel="answers", xlim=(low / 1.1, 1.1 * high))
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _draw(axes: Any, points: Sequence[tuple[int, float]], title: str, color: str) -> None:
    axes.set(title=title[0].upper() + title[1:])
    known = [(max(n, 1), value) for n, value in points]
    if known:
        axes.plot(*zip(*known, strict=True), "o-", color=color, markersize=3, linewidth=1)
    else:
        axes.text(0.5, 0.5, "not known", ha="center", va="center", transform=axes.transAxes)
