"""Is "flat" true, and what does `--stop when-flat` save? Over the tasks of the benchmark at equal answers.

    python benchmarks/when_to_stop.py --seeds 0 1 2 --out benchmarks/results/when_to_stop.json

For each task and seed a run may have the answers of `FULL`, and stops when flat. One that did is
compared with a run that spends the full budget, and with one that has twice the answers at which it stopped. One that
did not is the same run as with the full budget. Seeds 900 and up are for choosing, 0 to 9 for reporting. What is
finished is in `--out` and is not run again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from scipy.stats import beta

from apil.files import read_json, write_json
from apil.learning.evaluate import chunks
from apil.learning.outlook import Watch
from apil.learning.trainer import Trainer
from apil.runs.calibration import load_calibration
from apil.runs.environment import environment
from apil.runs.resolve import resolve
from apil.settings import RunSettings
from apil.studies.budget.definition import BudgetTask, read_benchmark
from apil.studies.statistics import estimate, mean_over_strata, to_json

FULL = {
    "maze": 640,
    "dist-shift": 320,
    "room": 1200,
    "lava-gap": 1280,
    "door-key": 1280,
    "mountain-car": 2000,
    "lava-crossing": 4000,
    "go-to-local": 2800,
    "lander": 2800,
    "reacher": 8000,
}
"""The full budget of each task, in the order in which they are run.

The budgets in the files of the benchmark are scarce on purpose, so that it matters where one asks: at the middle one,
asking by chance is half-way. Those who wonder when to stop have more than that."""


@dataclass
class Clock:
    """Processor time that looks take."""

    looking: float = 0.0

    def attach(self) -> None:
        look = Watch.look

        def timed(watch: Watch, *arguments: Any) -> None:
            start = time.process_time()
            look(watch, *arguments)
            self.looking += time.process_time() - start

        setattr(Watch, "look", timed)  # noqa: B010


def settings(task: BudgetTask, rule: str, seed: int, answers: int, **more: Any) -> RunSettings:
    file = task.file
    given = {**file.settings, "options": file.options, "answer_budget": answers, "answers": False, "seed": seed, **more}
    share = {} if rule in ("dagger", "bc") else {"budget": 0.1}
    return resolve(file.task, file.teacher, rule, {**given, **share}, load_calibration(None)).settings


def measured(configs: Sequence[RunSettings], episodes: int) -> list[dict[str, Any]]:
    """Trains a stack and measures each run alone, on episodes that are those of its seed."""
    start = time.process_time()
    trainer = Trainer(configs)
    trainer.train()
    trained = time.process_time() - start
    agents = trainer.trained_agents()
    batches = chunks(agents, episodes, "alone", "evaluation/")
    success = torch.cat([batch.success for batch in batches], 1).double().mean(1)
    agents.close()
    found = []
    for run in range(len(configs)):
        outlook = trainer.outlook(run)
        found.append(
            {
                "answers": trainer.answers(run),
                "success_alone": float(success[run]),
                "outlook": None if outlook is None else outlook.to_json(),
                "seconds": trained / len(configs),
            }
        )
    return found


def compared(task: BudgetTask, asked: argparse.Namespace, clock: Clock) -> list[dict[str, Any]]:
    """A row for each seed."""
    full = FULL[task.label]
    clock.looking = 0.0
    stopping = [settings(task, asked.rule, seed, full, stop="when-flat", looks=asked.looks) for seed in asked.seeds]
    rows = [
        {"task": task.label, "seed": seed, "full": full, "stop": own, "looking": clock.looking / len(asked.seeds)}
        for seed, own in zip(asked.seeds, measured(stopping, asked.episodes), strict=True)
    ]
    early = [row for row in rows if row["stop"]["answers"] < full]
    for row in rows:
        row["flat"] = row in early
        row["whole"] = row["stop"]
    budgets = {"whole": [full] * len(early), "twice": [2 * row["stop"]["answers"] for row in early]}
    for name, answers in budgets.items() if early else ():
        configs = [settings(task, asked.rule, row["seed"], n) for row, n in zip(early, answers, strict=True)]
        for row, own in zip(early, measured(configs, asked.episodes), strict=True):
            row[name] = own
    return rows


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Whether "flat" was true, and what it saved and lost: means over tasks of the mean over seeds."""
    flat = [row for row in rows if row["flat"]]
    gains = [row["twice"]["success_alone"] - row["stop"]["success_alone"] for row in flat]
    true = sum(gain < 0.02 for gain in gains)
    low, high = beta.ppf([0.025, 0.975], true + 0.5, len(flat) - true + 0.5).tolist()
    tasks = list(dict.fromkeys(row["task"] for row in rows))

    def over_tasks(figure: Any) -> dict[str, Any]:
        return to_json(mean_over_strata([[figure(row) for row in rows if row["task"] == task] for task in tasks]))

    saved = over_tasks(lambda row: 1 - row["stop"]["answers"] / row["full"])
    lost = over_tasks(lambda row: row["whole"]["success_alone"] - row["stop"]["success_alone"])
    return {
        "tasks": len(tasks),
        "runs": len(rows),
        "flat": len(flat),
        "flat_and_gained_less_than_2_points": {"share": true / len(flat) if flat else None, "low": low, "high": high},
        "gain_from_twice": to_json(estimate(gains)),
        "answers_saved": saved,
        "success_lost": lost,
        "looking_share_of_time": to_json(
            estimate([row["looking"] / row["stop"]["seconds"] for row in rows if row["looking"] is not None])
        ),
        "by_task": [_of_task(task, [row for row in rows if row["task"] == task]) for task in tasks],
    }


def _of_task(task: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over seeds."""
    alone = {
        name: to_json(estimate([row[name]["success_alone"] for row in rows if name in row]))
        for name in ("stop", "whole", "twice")
    }
    return {
        "task": task,
        "full": rows[0]["full"],
        "seeds": len(rows),
        "flat": sum(row["flat"] for row in rows),
        "answers": to_json(estimate([row["stop"]["answers"] for row in rows])),
        "success_alone": alone,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(FULL), choices=list(FULL))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rule", default="apil")
    parser.add_argument("--looks", type=int, default=50, help="episodes of a look")
    parser.add_argument("--episodes", type=int, default=1000, help="of evaluation")
    parser.add_argument("--folder", type=Path, default=Path("examples/budget"))
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    about = {name: value for name, value in vars(asked).items() if name not in ("out", "folder", "tasks")}
    found: dict[str, Any] = read_json(asked.out) if asked.out.exists() else {"about": about, "rows": []}
    if found["about"] != about:
        parser.error(f"{asked.out} is of other settings: {found['about']}")
    clock = Clock()
    clock.attach()
    for label in asked.tasks:
        if any(row["task"] == label for row in found["rows"]):
            continue
        (task,) = read_benchmark(asked.folder, [label]).tasks
        found["rows"] += compared(task, asked, clock)
        found["versions"] = {name: environment()[name] for name in ("commit", "torch", "numpy", "python")}
        write_json(asked.out, {**found, "summary": summary(found["rows"])})
        for row in found["rows"][-len(asked.seeds) :]:
            alone = {name: row[name]["success_alone"] for name in ("stop", "whole", "twice") if name in row}
            print(label, row["seed"], f"{row['stop']['answers']} of {row['full']} answers", alone, flush=True)
    write_json(asked.out, {**found, "summary": summary(found["rows"])})
    for name, figure in summary(found["rows"]).items():
        print(name, figure)


if __name__ == "__main__":
    main()
