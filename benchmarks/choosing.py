"""Variants of SLIP on the tasks for choosing, seed by seed beside asking at random with as many answers.

    python benchmarks/choosing.py --tasks dev-gap dev-shift --rules random slip --seeds 10 --out runs/choosing.jsonl
    python benchmarks/choosing.py --rules slip --set REACH=0.3 POWER=2.0 --label wide --out runs/choosing.jsonl
    python benchmarks/choosing.py --table --out runs/choosing.jsonl

Each line of the file has the success alone of every seed (from 900) of one rule on one task at the middle budget. What
is there already is not run again. `--set` replaces constants of `apil.query.slip`, `--pace` the share of the steps to
ask on. The table has the mean, and the probability of improvement over `random`.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import apil.query.slip
from apil.learning.evaluate import evaluate
from apil.learning.trainer import Trainer
from apil.runs.calibration import load_calibration
from apil.studies.budget.definition import read_benchmark
from apil.studies.files import Rule, StudyFile, TaskEntry, own_plan

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "budget"
FIRST_SEED = 900


def rule_of(name: str, pace: float | None) -> Rule:
    """A rule by its label in the benchmark, at a pace of its own if one is given."""
    shared = {rule.label: rule for rule in read_benchmark(FOLDER, [], []).shared.rules}
    rule = shared.get(name, Rule(query=name, label=name))
    return rule if pace is None else replace(rule, budget=pace)


def outcome(label: str, rule: Rule, seeds: int) -> list[float]:
    """Success alone at the middle budget of a task, of each seed."""
    benchmark = read_benchmark(FOLDER, [label], [], choosing=True)
    task, beside = benchmark.tasks[0], [rule.query for rule in benchmark.shared.rules]
    file = task.file
    study = StudyFile(
        tasks=(TaskEntry(name=file.task, label=label, options=file.options),),
        teachers=(file.teacher,),
        settings={"answers": False, **file.settings},
        seeds=seeds,
        first_seed=FIRST_SEED,
        rules=(rule,),
        answers=(file.budgets.of("middle"),),
    )
    cells = own_plan(study, study.tasks[0], load_calibration(None), task.path, beside)
    trainer = Trainer([cell.config for cell in cells])
    trainer.train()
    return [own["success_alone"] for own in evaluate(trainer.trained_agents(), 200)]


def table(rows: list[dict[str, Any]]) -> str:
    """Success alone and the probability of improvement over `random`, a line for each rule."""
    tasks = sorted({row["task"] for row in rows})
    found = {(row["task"], row["rule"]): np.array(row["success_alone"]) for row in rows}
    lines = ["| rule | " + " | ".join(tasks) + " |", "| --- |" + " --- |" * len(tasks)]
    for rule in dict.fromkeys(row["rule"] for row in rows):
        cells = []
        for task in tasks:
            own, other = found.get((task, rule)), found.get((task, "random"))
            if own is None:
                cells.append("")
                continue
            better = "" if other is None else f" ({np.mean(np.sign(own[:, None] - other) / 2 + 0.5):.2f})"
            cells.append(f"{own.mean():.2f}{better}")
        lines.append(f"| {rule} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["dev-maze", "dev-gap", "dev-crossing", "dev-shift", "dev-key"])
    parser.add_argument("--rules", nargs="+", default=["slip"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--pace", type=float)
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE")
    parser.add_argument("--label", default="")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    before = options.out.read_text().splitlines() if options.out.exists() else []
    rows = [json.loads(line) for line in before]
    if options.table:
        print(table(rows))
        return
    for setting in options.set:
        name, _, value = setting.partition("=")
        old = getattr(apil.query.slip, name)
        parts = tuple(float(part) for part in value.split(","))
        setattr(apil.query.slip, name, parts if isinstance(old, tuple) else type(old)(parts[0]))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for label in options.tasks:
        for name in options.rules:
            called = options.label or name
            if any((row["task"], row["rule"]) == (label, called) for row in rows):
                continue
            started = time.process_time()
            row: dict[str, Any] = {"task": label, "rule": called, "set": options.set, "pace": options.pace}
            row["success_alone"] = [round(own, 4) for own in outcome(label, rule_of(name, options.pace), options.seeds)]
            row["seconds"] = round(time.process_time() - started)
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
