"""The files of the benchmark: `summary.json`, tables, figures and a page, from its records alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apil.errors import plural
from apil.files import write_bytes, write_json, write_text
from apil.studies.bill import bill_tables
from apil.studies.budget.compare import Comparison, Verdict, findings, scales, summary
from apil.studies.budget.definition import BASELINE, NEVER
from apil.studies.budget.figures import all_figures
from apil.studies.budget.tables import MARKS, all_tables
from apil.studies.budget.where import LEVEL as MIDDLE
from apil.studies.budget.where import read_asked
from apil.studies.headline import Headline
from apil.studies.pages import page
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
    general = [figure.shown for figure in figures if not figure.task]
    leading = next(figure for figure in general if figure.name == "figure_share")
    values = {
        "title": "Where to ask: query rules at equal numbers of answers",
        "about": about,
        "headline": _headline(compared, about),
        "leading": leading,
        "figures": [figure for figure in general if figure is not leading],
        "tasks": {task: [own.shown for own in figures if own.task == task] for task in compared.runs.tasks},
        "findings": findings(compared, about["winner"]),
        "tables": tables,
        "marks": {name: mark.strip() for name, mark in MARKS.items()},
    }
    write_text(folder / "report.html", page("budget", **values))


def _headline(compared: Comparison, about: Mapping[str, Any]) -> Headline:
    """What the chosen rule reaches with the middle budget, where, and the share of the gap that each rule closes."""
    rows = []
    for rule in compared.rules:
        if rule != NEVER:
            found = [compared.share_over_tasks(rule, level) for level in compared.levels]
            cells = tuple(
                (f"{each.mean:.3f}", f"[{each.low:.3f}, {each.high:.3f}]") if each.known else (NOTHING, "")
                for each in found
            )
            rows.append((spelled(rule), cells))
    level = MIDDLE if MIDDLE in compared.levels else compared.levels[-1]
    header = ("rule", *(f"{level} budget" for level in compared.levels))
    caption = "Share of the gap between never asking and DAgger that is closed, over all tasks"
    about_rule = (say(compared, about["winner"], level) for say in (_closes, _beside_random))
    sentences = (*about_rule, _rests_on(about))
    return Headline("", tuple(filter(None, sentences)), caption, header, tuple(rows))


def _closes(compared: Comparison, rule: str, level: str) -> str:
    """The share of the gap, beside the best control."""
    ours, controls = compared.share_over_tasks(rule, level), [own for own in compared.controls if own != rule]
    others = {own: found for own in controls if (found := compared.share_over_tasks(own, level)).known}
    if rule not in compared.rules or not ours.known or not others:
        return ""
    best = max(others, key=lambda own: others[own].mean)
    return (
        f"With the {level} budget of answers {spelled(rule)} closes {100 * ours.mean:.1f} % of the gap between an "
        f"agent that never asks and DAgger with many answers; {spelled(best)}, the best control, closes "
        f"{100 * others[best].mean:.1f} %."
    )


def _beside_random(compared: Comparison, rule: str, level: str) -> str:
    """On which tasks the rule differs from random asking."""
    if rule not in compared.rules or rule == BASELINE:
        return ""
    verdicts = {task: compared.verdict(task, rule, level) for task in compared.runs.tasks}
    named: dict[Verdict, list[str]] = {
        word: [task for task, own in verdicts.items() if own == word] for word in ("better", "worse")
    }
    counts = " and ".join(
        f"{word} on {len(tasks)}" + (f" ({', '.join(tasks)})" if tasks else "") for word, tasks in named.items()
    )
    rest = len(verdicts) - sum(map(len, named.values()))
    same = f" On the other {rest} there is no clear difference." if rest else ""
    return f"Of {len(verdicts)} tasks it is {counts} than random asking with as many answers.{same}"


def _rests_on(about: Mapping[str, Any]) -> str:
    counts = sorted({len(task["seeds"]) for task in about["tasks"]})
    seeds = plural(counts[0], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    return f"Each task has {seeds}; every agent is measured alone, on the same episodes. Intervals are 95 %."
