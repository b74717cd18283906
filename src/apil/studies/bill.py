"""The bill of a study: cost by teacher, cost to a level of success, and what the last 100 answers bought.

`write_bill` computes it from the run folders into `bill.json`; `bill_tables` makes a table of that file.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np

from apil.files import read_json, read_rows, write_json
from apil.learning.metrics import Row
from apil.runs.bill import HUNDRED, LEVELS, Bill, bill
from apil.studies.plan import Cell
from apil.studies.statistics import Estimate, Floats, from_json, interval, needed
from apil.studies.tables import NOTHING, Table, TableBlock, explained, shown
from apil.studies.text import spelled, texts

NAME = "bill.json"
_TEXTS: Any = texts("bill.toml")
Source = Literal["looks", "points", "training"]
"""Where success over cost comes from: looks at success alone, runs with other budgets, or success in training."""


@dataclass(frozen=True)
class _Paid:
    """A finished run."""

    cell: Cell
    bill: Bill
    rows: Sequence[Row]
    success_alone: float

    @staticmethod
    def of(cell: Cell, runs: Path, prices: Mapping[str, float]) -> _Paid:
        folder = runs / cell.folder
        alone = read_json(folder / "evaluation.json")["success_alone"]
        return _Paid(cell, bill(folder, prices), read_rows(folder / "metrics.jsonl"), alone)

    @property
    def group(self) -> tuple[str, str, str]:
        """Teachers, rule and selector."""
        return self.cell.config.teachers.name, self.cell.query, str(self.cell.config.value("select"))

    @property
    def answers(self) -> int:
        return int(self.rows[-1]["answers"])

    def column(self, name: str) -> Floats:
        """Of the metrics; `cost` is that of the answers up to each row."""
        if name == "cost":
            return np.array([self.bill.cost_of_first(row["answers"]) for row in self.rows], np.float64)
        return np.array([row[name] for row in self.rows], np.float64)


def write_bill(folder: Path, tasks: Mapping[str, Sequence[Cell]], prices: Mapping[str, float] | None = None) -> None:
    """Writes the bill of finished runs under `folder`/runs, by the label of their task."""
    entries: list[dict[str, Any]] = []
    source: Source = "training"
    for task, cells in tasks.items():
        asked = [cell for cell in cells if cell.samples is None and cell.config.query.name != "never"]
        paid = [_Paid.of(cell, folder / "runs", prices or {}) for cell in asked]
        if not paid:
            continue
        several = len({run.cell.point for run in paid}) > 1
        source = "looks" if all(run.bill.curves is not None for run in paid) else "points" if several else "training"
        paid.sort(key=lambda run: run.group)
        for (teacher, query, select), own in groupby(paid, key=lambda run: run.group):
            named = {"task": task, "teacher": teacher, "query": query, "select": select}
            entries.append({**named, **_entry(list(own), source)})
    write_json(folder / NAME, {"source": source, "levels": list(LEVELS), "entries": entries})


def _entry(runs: Sequence[_Paid], source: Source) -> dict[str, Any]:
    """One rule with one selector: costs are of its largest budget."""
    most = max(run.cell.point or 0 for run in runs)
    last = [run for run in runs if (run.cell.point or 0) == most]
    members = last[0].bill.members
    counted = all(len(run.bill.identity) or not run.answers for run in last)  # a run may keep none of its answers
    priced = counted and all(run.bill.cost for run in last)
    levels = [_reached([_cost_to(own, level, source) for own in _by_seed(runs)], level) for level in LEVELS]
    return {
        "seeds": len(last),
        "answers": {n: interval([run.bill.answers.get(n, 0) for run in last]) for n in members} if counted else {},
        "cost": {n: interval([run.bill.cost.get(n, 0.0) for run in last]) for n in members} if priced else {},
        "total": interval([run.bill.total for run in last]),
        "to": levels,
        "last_hundred": interval([_last_hundred(own, source) for own in _by_seed(runs)]),
        "outlook": _outlook(last),
    }


def _outlook(runs: Sequence[_Paid]) -> dict[str, Any] | None:
    """What more answers would bring: how many runs have which verdict, and the gain from as many again."""
    found = [run.bill.curves.outlook for run in runs if run.bill.curves is not None]
    if not found:
        return None
    return {"verdicts": Counter(own.verdict for own in found), "gain": interval([own.gain.mean for own in found])}


def _by_seed(runs: Sequence[_Paid]) -> Iterator[list[_Paid]]:
    """The runs of each seed, those with few answers first."""
    seeds = sorted({run.cell.config.seed for run in runs})
    for seed in seeds:
        yield sorted((run for run in runs if run.cell.config.seed == seed), key=lambda run: run.answers)


def _cost_to(runs: Sequence[_Paid], level: float, source: Source) -> float:
    """NaN where no run reached it."""
    if source == "looks":
        found = runs[-1].bill.cost_to(level)
        return math.nan if found is None else found
    if source == "points":
        costs, success = (np.array(own) for own in ([r.bill.total for r in runs], [r.success_alone for r in runs]))
        return needed(costs, success, level)
    return needed(runs[-1].column("cost"), runs[-1].column("success"), level)


def _last_hundred(runs: Sequence[_Paid], source: Source) -> float:
    """By how much success rose over the last hundred answers; NaN where that is not known."""
    last = runs[-1]
    if source == "looks":
        found = last.bill.last_hundred
        return math.nan if found is None else found[1].mean
    if source == "points":
        if len(runs) < 2 or runs[-2].answers == last.answers:
            return math.nan
        return (last.success_alone - runs[-2].success_alone) * HUNDRED / (last.answers - runs[-2].answers)
    answers, success = last.column("answers"), last.column("success")
    ago = answers[-1] - answers
    now, before = success[ago < HUNDRED], success[(ago >= HUNDRED) & (ago < 2 * HUNDRED)]
    return float(now.mean() - before.mean()) if len(now) and len(before) else math.nan


def _reached(costs: Sequence[float], level: float) -> dict[str, Any]:
    return {"level": level, "reached": float(np.isfinite(costs).mean()), **interval(costs)}


def bill_tables(folder: Path) -> list[Table]:
    """The table of `bill.json`; none where there is no such file, or nobody was asked."""
    if not (folder / NAME).is_file():
        return []
    found = read_json(folder / NAME)
    entries, levels = found["entries"], found["levels"]
    blocks = [
        _block(task, teacher, list(own), levels)
        for (task, teacher), own in groupby(entries, key=lambda entry: (entry["task"], entry["teacher"]))
    ]
    about = " ".join(_TEXTS["about"][found["source"]].split())
    first = "Runs that never ask are not on it."
    return [explained("table_bill", first, blocks, said=_TEXTS, about=about)] if blocks else []


def _block(task: str, teacher: str, entries: Sequence[Mapping[str, Any]], levels: Sequence[float]) -> TableBlock:
    columns = _of_members(entries)
    selected = any(entry["select"] != "environment" for entry in entries)
    looked = any(entry["outlook"] for entry in entries)
    header = (
        *("rule", *(["selector"] if selected else [])),
        *(f"{name}: {what}" for name, what in columns),
        *("cost in all", *(f"cost to {level:.0%}" for level in levels), "the last 100 answers (points)"),
        *(["as many again (points)", "outlook"] if looked else []),
    )
    rows = (_row(entry, columns, selected, looked) for entry in entries)
    return TableBlock(f"{task}, teacher {spelled(teacher)}", header, tuple(rows))


def _of_members(entries: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Columns by member: the answers of who is known to have given some, and their cost where it is another number."""
    names = dict.fromkeys(name for entry in entries for name, found in entry["answers"].items() if found["mean"])
    priced = any(entry["cost"] and entry["cost"] != entry["answers"] for entry in entries)
    return [(name, what) for name in names for what in (("answers", "cost") if priced else ("answers",))]


def _row(entry: Mapping[str, Any], columns: Sequence[tuple[str, str]], selected: bool, looked: bool) -> tuple[str, ...]:
    seeds = entry["seeds"]
    each = (shown(from_json(entry[what].get(name)), 0 if what == "answers" else 1, seeds) for name, what in columns)
    outlook = entry["outlook"] or {"gain": None, "verdicts": {}}
    verdicts = ", ".join(f"{verdict} ({runs})" for verdict, runs in outlook["verdicts"].items())
    return (
        *(entry["query"], *([entry["select"]] if selected else [])),
        *(*each, shown(from_json(entry["total"]), 1, seeds)),
        *(*(_level(own, seeds) for own in entry["to"]), _points(entry["last_hundred"], seeds)),
        *([_points(outlook["gain"], seeds), verdicts or NOTHING] if looked else []),
    )


def _points(found: Mapping[str, float | None] | None, seeds: int) -> str:
    share = from_json(found)
    return shown(Estimate(*(100 * value for value in (share.mean, share.low, share.high))), 1, seeds)


def _level(found: Mapping[str, Any], seeds: int) -> str:
    if not found["reached"]:
        return "not reached"
    return shown(from_json(found), 1, seeds) + ("" if found["reached"] == 1.0 else f" ({found['reached']:.0%})")
