"""What a study of your own has beyond the paper's: success for interactions, what the teachers cost, all tasks at once.

An interaction is one question that was answered. Success over training is with the help that was asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apil.errors import plural
from apil.files import read_json, read_rows, write_json, write_text
from apil.learning.build import committee_of
from apil.runs.bill import member_names
from apil.studies import statistics
from apil.studies.bill import write_bill
from apil.studies.figures import PLATES
from apil.studies.files import StudyFile
from apil.studies.headline import Headline
from apil.studies.pages import Shown, page
from apil.studies.plan import Cell
from apil.studies.records import StudyRecords, read_study
from apil.studies.report import build_report
from apil.studies.statistics import Floats, from_json, interval, to_json
from apil.studies.summary import Result, write_records
from apil.studies.tables import NOTHING, Table, TableBlock, explained, shown
from apil.studies.text import spelled

_COMPARED = ("success_alone", "area")


class Spent:
    """What one run used of its teachers, and its results."""

    def __init__(self, result: Result, runs: Path, costs: Mapping[str, float]) -> None:
        self.teacher, self.query, self.seed = result.config.teachers.name, result.cell.query, result.config.seed
        self.interactions: Floats = np.array([row["answers"] for row in result.rows], dtype=np.float64)
        self.success: Floats = np.array([row["success"] for row in result.rows], dtype=np.float64)
        self.success_alone: float = result.evaluation["success_alone"]
        self.answers: dict[str, int] = {}
        """By member; empty where answers are not kept."""
        self.cost: dict[str, float] = {}
        """By member."""
        if result.config.answers:
            given = Counter(row["identity"] for row in read_rows(runs / result.cell.folder / "answers.jsonl"))
            members = committee_of(result.config).members
            for k, (name, member) in enumerate(zip(member_names(members), members, strict=True)):
                self.answers[name] = given[k]
                self.cost[name] = given[k] * costs.get(name, costs.get(member, 1.0))


def write_task(study: StudyFile, cells: Sequence[Cell], folder: Path, workers: int) -> None:
    """Writes the records, tables, figures and report of one task."""
    results = write_records(cells, folder, gates_of(study, cells))
    found = _interactions(study, [Spent(result, folder / "runs", study.costs) for result in results])
    write_json(folder / "interactions.json", found)
    write_bill(folder, {cells[0].config.task.name: cells}, study.costs)
    build_report(folder, workers)


def gates_of(study: StudyFile, cells: Sequence[Cell]) -> dict[str, dict[str, Any]]:
    """The threshold or the share of steps of each rule that has one, and where it comes from."""
    gates = {}
    for rule in study.rules:
        query = next(cell.config.query for cell in cells if cell.query == rule.label)
        value = query.budget if query.threshold is None else query.threshold
        if value is not None:
            gates[rule.label] = {"threshold": value, "how": rule.how(query)}
    return gates


def _interactions(study: StudyFile, spent: Sequence[Spent]) -> dict[str, Any]:
    """For each teacher and rule the figures over seeds, beside the baseline's."""
    entries = []
    for teacher in study.teachers:
        own = [run for run in spent if run.teacher == teacher]
        limit = study.area_to or max(run.interactions[-1] for run in own)
        against = [run for run in own if run.query == study.baseline]
        for rule in study.rules:
            ours = [run for run in own if run.query == rule.label]
            entries.append({"teacher": teacher, "query": rule.label, **_figures(study, ours, against, float(limit))})
    return {"baseline": study.baseline, "reach": list(study.reach), "entries": entries}


def _figures(study: StudyFile, ours: Sequence[Spent], against: Sequence[Spent], limit: float) -> dict[str, Any]:
    areas = [statistics.area_under(run.interactions, run.success, limit) for run in ours]
    alone = [run.success_alone for run in ours]
    members = list(ours[0].answers)
    costs = [sum(run.cost.values()) if members else None for run in ours]
    return {
        "area_to": limit,
        "area": to_json(statistics.stratified_estimate([areas])),
        "success_alone": to_json(statistics.stratified_estimate([alone])),
        "improvement": to_json(statistics.improvement([alone], [[run.success_alone for run in against]])),
        "needed": [_reached(ours, level) for level in study.reach],
        "answers": {name: interval([run.answers[name] for run in ours]) for name in members},
        "cost": {name: interval([run.cost[name] for run in ours]) for name in members},
        "total_cost": interval([cost for cost in costs if cost is not None]) if members else None,
        "runs": [
            {
                "seed": run.seed,
                "area": area if np.isfinite(area) else None,
                "success_alone": own,
                "answers": int(run.interactions[-1]),
                "cost": cost,
            }
            for run, area, own, cost in zip(ours, areas, alone, costs, strict=True)
        ],
    }


def _reached(runs: Sequence[Spent], level: float) -> dict[str, Any]:
    """Interactions to a level of success, over the runs that reached it, and the share of those."""
    found = [statistics.needed(run.interactions, run.success, level) for run in runs]
    return {"level": level, "reached": float(np.isfinite(found).mean()), **interval(found)}


def write_comparison(tasks: Sequence[str], out: Path, name: str) -> None:
    """Writes `comparison.json`, its table, and a page that leads to the report of each task.

    It reads `interactions.json` and `summary.json` in the folder of each task.
    """
    of_tasks = {task: (read_json(out / task / "interactions.json"), read_study(out / task)) for task in tasks}
    study = _Joined.of(of_tasks)
    found = _comparison(study, of_tasks)
    table = _comparison_table(study, found, tasks)
    write_json(out / "comparison.json", found)
    write_text(out / f"{table.name}.md", table.markdown())
    pictures = [figure for task in tasks if (figure := _of_task(out / task, task))]
    values = {
        "title": f"Rules compared: {name}",
        "tasks": tasks,
        "table": table,
        "headline": _headline(study, found),
        "leading": pictures[0] if pictures else None,
        "figures": pictures[1:],
        "findings": [],
    }
    write_text(out / "report.html", page("comparison", **values))


OfTasks = Mapping[str, tuple[Mapping[str, Any], StudyRecords]]
"""What `interactions.json` holds, and the records, by the label of a task."""


@dataclass(frozen=True)
class _Joined:
    """What the tasks of a study share."""

    baseline: str
    teachers: tuple[str, ...]
    rules: tuple[str, ...]
    seeds: int

    @staticmethod
    def of(of_tasks: OfTasks) -> _Joined:
        found, records = next(iter(of_tasks.values()))
        teachers, rules = (
            tuple(dict.fromkeys(entry[key] for entry in found["entries"])) for key in ("teacher", "query")
        )
        return _Joined(found["baseline"], teachers, rules, records.seeds)


def _of_task(folder: Path, task: str) -> Shown | None:
    """The first figure of the report of a task."""
    plate, drawn = PLATES[0], folder / f"{PLATES[0].name}.svg"
    if not drawn.is_file():
        return None
    chart = plate.chart(read_study(folder))
    title = f"{plate.title} ({task})"
    return Shown(f"{plate.name}_{task}", title, plate.caption, drawn.read_bytes(), chart=chart.data if chart else None)


def _headline(study: _Joined, found: Mapping[str, Any]) -> Headline:
    rows, better = [], []
    for rule in found["rules"]:
        alone, answers = from_json(rule["iqm"]["success_alone"]), from_json(rule["answers"])
        chance = from_json(rule["improvement"]["success_alone"])
        own = rule["query"] == study.baseline
        cells = (
            (f"{alone.mean:.3f}", f"[{alone.low:.3f}, {alone.high:.3f}]"),
            (f"{answers.mean:,.0f}" if answers.known else NOTHING, ""),
            (NOTHING if own else f"{chance.mean:.2f}", ""),
        )
        rows.append((spelled(rule["query"]), cells))
        if not own and chance.low > 0.5:
            better.append(spelled(rule["query"]))
    best = max(found["rules"], key=lambda rule: from_json(rule["iqm"]["success_alone"]).mean)
    base, strata = spelled(study.baseline), len(found["strata"])
    where = f", over {strata} combinations of a task and a teacher" if strata > 1 else ""
    reached = 100 * from_json(best["iqm"]["success_alone"]).mean
    named = ", ".join(better) or "no rule"
    sentences = (
        f"{spelled(best['query'])} has the highest success alone, {reached:.1f} % of the episodes{where}.",
        f"Better than {base} (the 95 % interval of the probability lies above one half): {named}.",
        f"{plural(study.seeds, 'seed')} each. Success alone is an interquartile mean; answers are means over all runs.",
    )
    header = ("rule", "success alone", "answers", f"better than {base}")
    return Headline("", sentences, "All rules over all tasks and teachers", header, tuple(rows))


def _comparison(study: _Joined, of_tasks: OfTasks) -> dict[str, Any]:
    """Each rule over all tasks and teachers."""

    def values(query: str, figure: str) -> list[list[float]]:
        entries = (entry for found, _ in of_tasks.values() for entry in found["entries"] if entry["query"] == query)
        return [[run.get(figure, np.nan) for run in entry["runs"]] for entry in entries]

    strata = [[task, teacher] for task in of_tasks for teacher in study.teachers]
    rules = []
    for query in study.rules:
        pairs = {figure: (values(query, figure), values(study.baseline, figure)) for figure in _COMPARED}
        middle = {figure: to_json(statistics.stratified_estimate(ours)) for figure, (ours, _) in pairs.items()}
        better = {figure: to_json(statistics.improvement(*pair)) for figure, pair in pairs.items()}
        answers = interval([each for own in values(query, "answers") for each in own])
        if answers["mean"] is None and len(strata) == 1:  # earlier versions did not note them for each run
            answers = to_json(of_tasks[strata[0][0]][1].cell(strata[0][1], query).figure("answers"))
        rules.append({"query": query, "iqm": middle, "improvement": better, "answers": answers})
    return {"baseline": study.baseline, "strata": strata, "rules": rules}


def _comparison_table(study: _Joined, found: Mapping[str, Any], tasks: Sequence[str]) -> Table:
    baseline = spelled(study.baseline)
    header = (
        "rule",
        "success alone",
        "answers",
        "area under success",
        f"better than {baseline}: success alone",
        "area",
    )
    rows = []
    for rule in found["rules"]:
        alone, area = (shown(from_json(rule["iqm"][figure])) for figure in _COMPARED)
        figures = [alone, shown(from_json(rule["answers"]), 0), area]
        better = [shown(from_json(rule["improvement"][figure]), 2) for figure in _COMPARED]
        rows.append((rule["query"], *figures, *(better if rule["query"] != study.baseline else [NOTHING] * 2)))
    first = f"Tasks: {', '.join(tasks)}. Teachers: {', '.join(study.teachers)}. {plural(study.seeds, 'seed')} of each."
    return explained("table_comparison", first, [TableBlock("Rules", header, tuple(rows))], baseline=baseline)
