"""What agents on R2R have learned when they have had so many answers.

    python benchmarks/r2r_answers.py run --data data/r2r --out results/r2r-answers
    python benchmarks/r2r_answers.py report --out results/r2r-answers

`run` trains with the desk preset, as `apil train --task r2r` does, and looks at each agent on whole splits after the
last iteration that leaves it within a number of answers. A look changes nothing in training. A run is one file in
OUT/runs; those that are there are not made again. `report` makes summary.json and table.md of these files alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from apil.files import write_json
from apil.learning.trainer import Trainer
from apil.r2r.navigation import evaluate_split
from apil.runs.environment import environment
from apil.runs.resolve import resolve
from apil.studies.statistics import interval

SPLITS = ("val_unseen", "val_seen")
"""Where an agent is measured; settings are chosen on `--splits held_out val_seen`, with `held_out=8` among `--set`."""
PARTS = ("intrinsic", "extrinsic")
COLUMNS = (
    *("teacher", "query", "seeds", "answers", "{}", "the same, drawn", "{}"),
    *("extrinsic, training", "alone", "seconds"),
)
RECENT = 30
"""Iterations from which it is guessed how many answers the next one may bring."""
ROUND = 10
"""Iterations between two lines on the screen."""


def train(
    data: str,
    teacher: str,
    query: str,
    seed: int,
    marks: Sequence[int],
    splits: Sequence[str],
    given: Mapping[str, Any],
) -> Any:
    """The record of one run: its settings, a look at both `splits` for each of `marks`, and its rows of metrics."""
    asked = {"data": data, "seed": seed, "answer_budget": marks[-1], **given}
    settings = resolve("r2r", teacher, query, asked, {}).settings
    trainer, began, spent = Trainer([settings]), time.process_time(), 0.0
    looks: dict[int, dict[str, Any]] = {}
    got: deque[int] = deque(maxlen=RECENT)
    while (before := trainer.answers(0)) < marks[-1]:
        trainer.step()
        answers = trainer.answers(0)
        got.append(answers - before)
        due = next((mark for mark in marks if answers <= mark), None)
        if due is None:
            break  # a rule that asks at its own rate has no budget that ends exactly
        # Near a mark it may be the last iteration that stays within it: if not, the next look takes its place.
        if answers + 1.2 * max(got) > due:
            start = time.process_time()
            looks[due] = {"answers": answers, "iteration": trainer.iteration} | look(trainer, splits)
            spent += time.process_time() - start
            reached = {split: looks[due][split]["success_alone"] for split in splits}
            print(f"{teacher} {query} {seed}: within {due} answers {reached}", flush=True)
        if trainer.iteration % ROUND == 0:
            print(
                f"{teacher} {query} {seed}: {answers} answers, {time.process_time() - began - spent:.0f} s", flush=True
            )
    rows = trainer.rows[0]
    last = [row for row in rows if row["iteration"] > 0.9 * trainer.iteration]
    steps = sum(row["steps"] for row in last)
    return {
        "settings": settings.to_json(),
        "environment": environment(),
        "seconds": round(time.process_time() - began - spent, 1),
        "iterations": trainer.iteration,
        "splits": list(splits),
        "at": [{"mark": mark, **looks[mark]} for mark in marks if mark in looks],
        "last_tenth": {part: sum(row[part] * row["steps"] for row in last) / steps for part in PARTS},
        "metrics": rows,
    }


def look(trainer: Trainer, splits: Sequence[str]) -> dict[str, Any]:
    """Alone, the likeliest action, on both splits; and on the first by drawing actions, the paper's way."""
    with trainer.averaged() as agents:
        found: dict[str, Any] = {split: evaluate_split(agents, split, helped=False) for split in splits}
        drawn = evaluate_split(agents, splits[0], helped=False, greedy=False)
    return found | {"sampled": {"success_alone": drawn["success_alone"]}}


def run(typed: argparse.Namespace) -> None:
    """Trains what is missing, seed after seed."""
    (typed.out / "runs").mkdir(parents=True, exist_ok=True)
    given = {name: json.loads(value) for name, value in (one.split("=", 1) for one in typed.set)}
    for seed, teacher, query in itertools.product(typed.seeds, typed.teachers, typed.queries):
        file = typed.out / "runs" / f"{teacher}-{query}{typed.label}-{seed}.json"
        if not file.exists():
            record = train(typed.data, teacher, query, seed, typed.marks, typed.splits, given)
            write_json(file, {"label": f"{query}{typed.label}", **record})


def report(out: Path) -> None:
    """summary.json and table.md."""
    runs = [json.loads(file.read_text()) for file in sorted((out / "runs").glob("*.json"))]
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in runs:
        settings = one["settings"]
        label = one.get("label", settings["query"]["name"])
        cells.setdefault((settings["teachers"]["name"], label), []).append(one)
    found = [cell(teacher, query, own) for (teacher, query), own in sorted(cells.items())]
    write_json(out / "summary.json", {"cells": found})
    (out / "table.md").write_text(table(found, splits_of(runs)))


def splits_of(runs: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """The two splits on which all of the runs were measured."""
    ((first, second),) = {tuple(one.get("splits", SPLITS)) for one in runs}
    return first, second


def cell(teacher: str, query: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over the seeds of one teacher and query policy, with intervals."""

    def over(pick: Any) -> Any:
        return interval([float(pick(one)) for one in runs])

    first, second = splits_of(runs)
    at = []
    for mark in sorted({look["mark"] for one in runs for look in one["at"]}):
        looks = [look for one in runs for look in one["at"] if look["mark"] == mark]
        greedy = interval([look[first]["success_alone"] for look in looks])
        at.append(
            {
                "answers": mark,
                "had": [look["answers"] for look in looks],
                "success_alone": greedy,
                "success_greedy": greedy,
                "success_sampled": interval([look["sampled"]["success_alone"] for look in looks]),
                second: interval([look[second]["success_alone"] for look in looks]),
                "extrinsic": interval([look[first]["extrinsic"] for look in looks]),
            }
        )
    return {
        "task": "r2r",
        "teacher": teacher,
        "query": query,
        "seeds": sorted(one["settings"]["seed"] for one in runs),
        "at": at,
        "seconds": over(lambda one: one["seconds"]),
        **{f"training_{part}": over(lambda one, p=part: one["last_tenth"][p]) for part in PARTS},
    }


def table(cells: Sequence[Mapping[str, Any]], splits: tuple[str, str]) -> str:
    """Markdown."""

    def shown(value: Mapping[str, float], scale: float, digits: int) -> str:
        mean, low, high = (f"{scale * value[name]:.{digits}f}" for name in ("mean", "low", "high"))
        return mean if low == high else f"{mean} [{low}, {high}]"

    lines = [
        "# R2R after so many answers",
        "",
        "Success alone in percent, whole splits, the likeliest action; beside it on the first with actions drawn from",
        "the policy, the paper's way. Means over seeds with 95 % bootstrap intervals, too narrow for so few seeds.",
        "Extrinsic uncertainty in bits: over the last tenth of training, and alone on the first split. Seconds",
        "are those of one core, without the looks. Made by `benchmarks/r2r_answers.py`, from the files in `runs`.",
        "",
        f"| {' | '.join(COLUMNS).format(*splits)} |",
        f"|{' --- |' * len(COLUMNS)}",
    ]
    for own in cells:
        for at in own["at"]:
            last = at is own["at"][-1]
            row = [
                own["teacher"],
                own["query"],
                len(own["seeds"]),
                f"{at['answers']:,}",
                *(shown(at[name], 100, 1) for name in ("success_alone", "success_sampled", splits[1])),
                shown(own["training_extrinsic"], 1, 3) if last else "",
                shown(at["extrinsic"], 1, 3),
                shown(own["seconds"], 1, 0) if last else "",
            ]
            lines.append(f"| {' | '.join(map(str, row))} |")
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    training, reporting = commands.add_parser("run"), commands.add_parser("report")
    for command in (training, reporting):
        command.add_argument("--out", type=Path, default=Path("results/r2r-answers"))
    training.add_argument("--data", required=True, help="made by `apil data r2r --text-model minilm`")
    training.add_argument("--teachers", nargs="+", default=["detm", "twodifdetm"])
    training.add_argument("--queries", nargs="+", default=["apil"])
    training.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    training.add_argument("--marks", nargs="+", type=int, default=[60_000, 120_000], help="numbers of answers, rising")
    training.add_argument("--splits", nargs=2, default=SPLITS, help="to measure on, the first also by drawing actions")
    training.add_argument("--set", nargs="*", default=["budget=0.3"], help="other settings, as name=JSON")
    training.add_argument("--label", default="", help="of other settings, in the names of files and in the table")
    typed = parser.parse_args(argv)
    if typed.command == "run":
        run(typed)
    report(typed.out)


if __name__ == "__main__":
    main(sys.argv[1:])
