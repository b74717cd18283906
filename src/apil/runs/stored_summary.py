"""Tables and a figure of a store of answers."""

from __future__ import annotations

import io
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apil.runs.agreement import Agreement, agreements
from apil.runs.stored import StoredAnswers

_BINS = 10
"""Rows of the table by step."""
_MOMENTS = 100
"""Points of a curve over time."""
_SHOWN = 8
"""Curves in a figure, those of the teachers with the most answers."""
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#c4629a", "#c07f00", "#1e96b8", "#000000", "#858585")

Columns = dict[str, dict[str, Any]]
"""Columns by name, each with a value for every row by name."""


@dataclass(frozen=True)
class Summary:
    """What `apil answers` shows."""

    by_teacher: Columns
    by_step: Columns
    agreement: list[Agreement]
    same: bool
    """States are alike where their features are the same; else near each other."""


def summary(answers: StoredAnswers) -> Summary:
    """By teacher, by step of the episode, and how teachers agree."""
    same, found = agreements(answers)
    return Summary(_by_teacher(answers), _by_step(answers), found, same)


def _by_teacher(answers: StoredAnswers) -> Columns:
    chosen = {name: answers.identity == who for who, name in enumerate(answers.teachers)}
    if len(chosen) > 1:
        chosen["together"] = np.ones(len(answers), bool)
    return _table(answers, chosen, held_out=True)


def _by_step(answers: StoredAnswers) -> Columns:
    """In bins of equal width."""
    edges = step_edges(answers)
    spans = [(int(low), int(high) - 1) for low, high in pairwise(edges)]
    names = [f"{low}" if low == high else f"{low} to {high}" for low, high in spans]
    return _table(
        answers,
        {name: (answers.step >= low) & (answers.step <= high) for name, (low, high) in zip(names, spans, strict=True)},
    )


def step_edges(answers: StoredAnswers) -> NDArray[np.int64]:
    """Where the bins of steps begin, and the end of the last."""
    steps = int(answers.step.max(initial=0)) + 1
    width = -(-steps // _BINS)
    return np.append(np.arange(0, steps, width), steps)


def _table(answers: StoredAnswers, chosen: dict[str, NDArray[np.bool_]], *, held_out: bool = False) -> Columns:
    columns: Columns = {name: {} for name in ("answers", "share", "executed", "held out", "mean distance")}
    for name, own in chosen.items():
        distances = answers.distance[own]
        distances = distances[np.isfinite(distances)]
        columns["answers"][name] = int(own.sum())
        columns["share"][name] = float(own.mean()) if len(own) else 0.0
        columns["executed"][name] = int(answers.executed[own].sum())
        columns["held out"][name] = int(answers.held_out[own].sum())
        columns["mean distance"][name] = float(distances.mean()) if len(distances) else "-"
    if not held_out:
        del columns["held out"]
    return columns


def figure(answers: StoredAnswers, found: Summary) -> bytes:
    """A PNG: answers by teacher over time, by step of the episode, and agreement."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(10.5, 3.4), layout="constrained", dpi=150)
    time, steps, agreement = drawn.subplots(1, 3)
    counts = np.bincount(answers.identity, minlength=len(answers.teachers))
    shown = sorted(np.argsort(-counts, kind="stable")[:_SHOWN].tolist())
    _draw_time(time, answers, shown)
    _draw_steps(steps, answers, shown)
    _draw_agreement(agreement, answers, found)
    content = io.BytesIO()
    drawn.savefig(content, format="png", facecolor="white", metadata={"Software": None})
    return content.getvalue()


def _draw_time(axes: Any, answers: StoredAnswers, shown: list[int]) -> None:
    own = ~answers.earlier
    iterations = int(answers.iteration[own].max(initial=0)) + 1
    moments = np.unique(np.linspace(0, iterations, _MOMENTS).astype(np.int64))
    for place, who in enumerate(shown):
        before = int((answers.earlier & (answers.identity == who)).sum())
        when = np.sort(answers.iteration[own & (answers.identity == who)])
        curve = before + np.searchsorted(when, moments, side="left")
        axes.plot(moments, curve, color=_COLOURS[place], label=answers.teachers[who], linewidth=1.5)
    axes.set(xlabel="iteration", ylabel="answers so far", title="Answers by teacher")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7, frameon=False)


def _draw_steps(axes: Any, answers: StoredAnswers, shown: list[int]) -> None:
    edges = step_edges(answers)
    below = np.zeros(len(edges) - 1)
    for place, who in enumerate(shown):
        counts = np.histogram(answers.step[answers.identity == who], edges)[0]
        axes.bar(edges[:-1], counts, np.diff(edges), below, align="edge", color=_COLOURS[place], edgecolor="white")
        below += counts
    axes.set(xlabel="step of the episode", ylabel="answers", title="Answers by step")


def _draw_agreement(axes: Any, answers: StoredAnswers, found: Summary) -> None:
    known = [pair for pair in found.agreement if pair.states][::-1]
    for place, pair in enumerate(known):
        color = _COLOURS[0] if pair.first == pair.second else _COLOURS[1]
        high = pair.high if np.isfinite(pair.high) else pair.value
        axes.errorbar(pair.value, place, xerr=[[pair.value - pair.low], [high - pair.value]], fmt="o", color=color)
    axes.set_yticks(range(len(known)), [f"{pair.first} and {pair.second}" for pair in known], fontsize=7)
    label = "mean absolute difference" if answers.continuous else "share of equal actions"
    axes.set(xlabel=label, title="Agreement in similar states")
    if not answers.continuous:
        axes.set_xlim(-0.03, 1.03)
    if not known:
        axes.text(0.5, 0.5, "no similar states", ha="center", va="center", transform=axes.transAxes)
