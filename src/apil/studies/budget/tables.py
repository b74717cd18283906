"""The tables of the benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apil.studies.budget.compare import Comparison
from apil.studies.budget.definition import BASELINE, NEVER
from apil.studies.statistics import Estimate
from apil.studies.tables import FEWER, NOTHING, Table, TableBlock, explained, shown
from apil.studies.text import texts

TEXTS: Any = texts("budget.toml")
MARKS = {"better": " ▲", "worse": " ▼", "equal": ""}
_CHANCE = 0.05


def all_tables(compared: Comparison, about: Mapping[str, Any]) -> list[Table]:
    return [
        _success(compared, about),
        _improvement(compared, about),
        _share(compared, about),
        _tasks(compared, about),
    ]


def _made(compared: Comparison, about: Mapping[str, Any]) -> str:
    seeds = {tuple(task["seeds"]) for task in about["tasks"]}
    named = " or ".join(sorted(f"{own[0]} to {own[-1]}" if len(own) > 1 else str(own[0]) for own in seeds))
    return f"Tasks: {', '.join(compared.runs.tasks)}. Seeds {named}. Made by `{about['command']}`."


def _success(compared: Comparison, about: Mapping[str, Any]) -> Table:
    header = ("rule", *compared.runs.tasks)
    blocks = []
    for level in compared.levels:
        rows = [
            (rule, *(_entry(compared, task, rule, level) for task in compared.runs.tasks)) for rule in compared.rules
        ]
        blocks.append(TableBlock(f"{level} budget", header, tuple(rows)))
    tests = len(compared.levels) * len(compared.runs.tasks) * (len(compared.rules) - 1)
    chance = round(_CHANCE * tests)
    return explained("table_success", _made(compared, about), blocks, said=TEXTS, tests=tests, chance=chance)


def _entry(compared: Comparison, task: str, rule: str, level: str) -> str:
    runs = compared.runs.of(task, rule, level)
    mark = "" if rule == BASELINE else MARKS[compared.verdict(task, rule, level)]
    fewer = any(run.answers < run.budget for run in runs)
    return shown(compared.figure(task, rule, level)) + mark + (f" {FEWER}" if fewer else "")


def _improvement(compared: Comparison, about: Mapping[str, Any]) -> Table:
    header = ("rule", *compared.runs.tasks, "all tasks")
    blocks = []
    for level in compared.levels:
        for control in compared.controls:
            rows = []
            for rule in compared.rules:
                if rule not in (control, NEVER):
                    each = (compared.probability(task, rule, level, control) for task in compared.runs.tasks)
                    over = compared.probability_over_tasks(rule, level, control)
                    rows.append((rule, *(_number(chance) for chance in each), shown(over, 2)))
            blocks.append(TableBlock(f"over {control}, {level} budget", header, tuple(rows)))
    return explained("table_improvement", _made(compared, about), blocks, said=TEXTS)


def _number(value: float) -> str:
    return f"{value:.2f}" if value == value else NOTHING


def _share(compared: Comparison, about: Mapping[str, Any]) -> Table:
    rules = [rule for rule in compared.rules if rule != NEVER]
    over = TableBlock(
        "all tasks, interquartile mean",
        ("rule", *(f"{level} budget" for level in compared.levels)),
        tuple((rule, *(shown(compared.share_over_tasks(rule, level)) for level in compared.levels)) for rule in rules),
    )
    each = [
        TableBlock(
            f"each task, {level} budget",
            ("rule", *compared.runs.tasks),
            tuple(
                (rule, *(shown(compared.share(task, rule, level)) for task in compared.runs.tasks)) for rule in rules
            ),
        )
        for level in compared.levels
    ]
    return explained("table_share", _made(compared, about), [over, *each], said=TEXTS)


def _tasks(compared: Comparison, about: Mapping[str, Any]) -> Table:
    header = ("task", "teachers", "distance", "budgets", "never", "DAgger", "DAgger's answers", "random")
    rows = []
    for task in about["tasks"]:
        label = task["task"]
        if label not in compared.runs.tasks:
            continue
        scale, budgets = compared.scale(label), compared.runs.levels(label)
        share: Estimate = compared.share(label, BASELINE, "middle")
        rows.append(
            (
                label,
                task["teacher"],
                task["distance"],
                ", ".join(f"{budget:,}" for budget in budgets.values()),
                _number(scale.never),
                _number(scale.top),
                f"{task['full']:,}",
                shown(share, 2),
            )
        )
    return explained("table_tasks", _made(compared, about), [TableBlock("Tasks", header, tuple(rows))], said=TEXTS)
