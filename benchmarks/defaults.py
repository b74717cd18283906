"""Defaults that learn: DAgger at its defaults beside plain supervised learning from the same answers. See README.md.

.venv/bin/python benchmarks/defaults.py --help
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import apil
from apil.errors import ApilError
from apil.learning.build import configure_torch
from apil.runs.api import Trained
from apil.studies.statistics import student_half_width
from apil.tasks.gymnasium import Episode, GymnasiumTask
from apil.tasks.gymnasium.episode import VALID
from experts import SETS, Bench, Decide, expert_success, success
from supervised import learn

ANSWERS, EPISODES = 4000, 200
Row = dict[str, Any]
FIGURES = {
    "expert": "expert",
    "success_alone": "alone",
    "success_greedy": "greedy",
    "yardstick": "yardstick",
    "ratio": "alone / yardstick",
    "ratio_greedy": "greedy / yardstick",
}
"""Figures of a row that are averaged over seeds, and how the table calls them."""


class Heard:
    """The answers that teachers gave, with what they were asked about."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        """`space` holds the observations."""
        self._space = space
        self._rows: list[NDArray[np.float32]] = []
        self._actions: list[int] = []

    def __len__(self) -> int:
        return len(self._actions)

    def add(self, observation: Any, action: int) -> None:
        """Keeps a copy."""
        self._rows.append(plain(self._space, observation))
        self._actions.append(action)

    def arrays(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Observations [n, ...] and actions [n]."""
        return np.stack(self._rows), np.array(self._actions)


def plain(space: gymnasium.Space[Any], observation: Any) -> NDArray[np.float32]:
    """An image as [channels, height, width], anything else as gymnasium flattens it."""
    if space.shape is not None and len(space.shape) == 3:
        return np.asarray(observation, np.float32).transpose(2, 0, 1)
    return np.array(gymnasium.spaces.flatten(space, observation), np.float32)


def train(
    task: GymnasiumTask, bench: Bench, heard: Heard, seed: int, budget: tuple[int, int | None], options: dict[str, Any]
) -> Trained:
    """DAgger until the teachers have given the answers of the budget, or for its iterations where they are given."""
    answers, iterations = budget
    spent: dict[str, Any] = {"answer_budget": answers} if iterations is None else {"iterations": iterations}
    teachers = bench.team(heard.add)
    trained = apil.train(task, teachers, "dagger", progress=False, **{**options, **spent, "seed": seed})
    assert len(heard) == trained.rows[-1]["answers"], "an answer was not used"
    return trained


def by_agent(trained: Trained, sample: bool) -> Decide:
    """The trained agent, sampling its actions as in training or taking the likeliest."""
    session = trained.agent.episode(sample=sample)

    def decide(envs: Sequence[Episode]) -> Any:
        # Where an environment says which actions are valid, an agent has learned to choose among these.
        valid = np.stack([env.record[VALID:] != 0 for env in envs])
        return session.act(np.stack([env.observation for env in envs]), valid=valid).action

    return decide


def measure(
    bench: Bench, seed: int, episodes: int, budget: tuple[int, int | None], options: dict[str, Any], own: dict[str, Any]
) -> Row:
    """One run, and the yardstick on its answers. `own` are options of the task."""
    task = bench.task(**own)
    heard = Heard(task.observation_space)
    began = time.perf_counter()
    trained = train(task, bench, heard, seed, budget, options)
    seconds = time.perf_counter() - began
    observations, answers = heard.arrays()
    began = time.perf_counter()
    policy = learn(observations, answers, task.actions, seed)
    seconds_yardstick = time.perf_counter() - began
    experts = expert_success(bench, episodes, seed)

    def by_yardstick(envs: Sequence[Episode]) -> Any:
        return policy(np.stack([plain(task.observation_space, env.observation) for env in envs]))

    alone, greedy, yardstick = (
        success(task, decide, episodes, seed)
        for decide in (by_agent(trained, True), by_agent(trained, False), by_yardstick)
    )
    task.close()
    return {
        "task": bench.name,
        "seed": seed,
        "iterations": trained.rows[-1]["iteration"],
        "answers": len(answers),
        "expert": min(experts.values()),
        "success_alone": alone,
        "success_greedy": greedy,
        "yardstick": yardstick,
        "ratio": alone / yardstick if yardstick else None,
        "ratio_greedy": greedy / yardstick if yardstick else None,
        "seconds": round(seconds, 1),
        "seconds_yardstick": round(seconds_yardstick, 1),
    }


def means(rows: Sequence[Row]) -> dict[str, Row]:
    """For each task: mean and half the width of the 95 % interval over seeds; None where there are too few."""
    found: dict[str, Row] = {}
    for name in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == name]
        found[name] = {"seeds": len(own), "answers": sum(row["answers"] for row in own) / len(own)}
        for figure in FIGURES:
            values = [row[figure] for row in own if row[figure] is not None]
            half = student_half_width(values) if len(values) > 1 else None
            found[name][figure] = {"mean": sum(values) / len(values) if values else None, "half_width": half}
    return found


def show(console: Console, title: str, rows: Sequence[Row]) -> None:
    """The means as a table, and the mean over tasks of each."""
    table = Table(title=title)
    for column in ("task", "seeds", "answers", *FIGURES.values()):
        table.add_column(column, justify="left" if column == "task" else "right")
    found = means(rows)
    for name, row in found.items():
        table.add_row(name, str(row["seeds"]), f"{row['answers']:.0f}", *(_shown(row[figure]) for figure in FIGURES))
    table.add_section()
    columns = ([row[figure]["mean"] for row in found.values()] for figure in FIGURES)
    known = ([value for value in column if value is not None] for column in columns)
    overall = ({"mean": sum(column) / len(column) if column else None, "half_width": None} for column in known)
    table.add_row("mean over tasks", "", "", *map(_shown, overall))
    console.print(table)


def _shown(figure: Row) -> str:
    if figure["mean"] is None:
        return "-"
    half = "" if figure["half_width"] is None else f" ±{figure['half_width']:.2f}"
    return f"{figure['mean']:.2f}{half}"


def option(text: str) -> tuple[str, Any]:
    """A setting from 'name=value'; the value as JSON, or as a word."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is no setting: give name=value, for example learning_rate=3e-3")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def kept(path: Path | None, settings: Row) -> list[Row]:
    """The rows that a stopped benchmark has finished; refused if they were measured with other settings."""
    if path is None or not path.exists():
        return []
    before = json.loads(path.read_text())
    if before["settings"] != settings:
        raise SystemExit(f"{path} was measured with {before['settings']}: give another file, or the same settings.")
    rows: list[Row] = before["rows"]
    return rows


def write(path: Path | None, settings: Row, rows: list[Row]) -> None:
    """All rows and their means; the old file stays whole until the new one is."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(path.name + ".new")
        new.write_text(json.dumps({"settings": settings, "rows": rows, "means": means(rows)}, indent=1) + "\n")
        os.replace(new, path)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=tuple(SETS), default="development", help="for choosing, or for reporting")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="some of the set; all if not given")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--answers", type=int, default=ANSWERS, help="train until there are this many (%(default)s)")
    parser.add_argument("--iterations", type=int, help="train for this many instead")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="of each evaluation (%(default)s)")
    parser.add_argument(
        "--set-option",
        type=option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of apil.train; may be repeated",
    )
    parser.add_argument(
        "--task-option",
        type=option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an argument of apil.from_gymnasium, for example encoder=learned; may be repeated",
    )
    parser.add_argument("--out", type=Path, help="JSON, written after each run; finished runs are kept")
    return parser.parse_args()


def chosen(console: Console, known: Sequence[Bench], names: Sequence[str] | None) -> list[Bench]:
    """The environments by name, without those that lack an installed module."""
    unknown = sorted(set(names or ()) - {bench.name for bench in known})
    if unknown:
        raise SystemExit(f"Unknown task {', '.join(unknown)}: give some of {', '.join(b.name for b in known)}.")
    wanted = [bench for bench in known if names is None or bench.name in names]
    for bench in wanted:
        if not bench.available:
            console.print(f"{bench.name} is left out: it needs the module {bench.needs}, which is not installed.")
    return [bench for bench in wanted if bench.available]


def main() -> None:
    """Measures what the file does not have yet, then prints the means."""
    console, typed = Console(), parsed()
    configure_torch()
    options, own = dict(typed.set_option), dict(typed.task_option)
    benches = chosen(console, SETS[typed.set], typed.tasks)
    settings = {"set": typed.set, "answers": typed.answers, "iterations": typed.iterations, "episodes": typed.episodes}
    settings |= {"options": options, "task_options": own}
    rows = kept(typed.out, settings)
    done = {(row["task"], row["seed"]) for row in rows}
    for bench in benches:
        for seed in range(typed.seeds):
            if (bench.name, seed) in done:
                continue
            try:
                row = measure(bench, seed, typed.episodes, (typed.answers, typed.iterations), options, own)
            except ApilError as error:
                raise SystemExit(f"{bench.name}, seed {seed}: {error}") from error
            rows.append(row)
            write(typed.out, settings, rows)
            figures = (f"{FIGURES.get(k, k)} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
            console.print(", ".join(figures), soft_wrap=True, highlight=False)
    names = {bench.name for bench in benches}
    changed = ", ".join(f"{name}={value}" for name, value in (options | own).items()) or "defaults"
    show(console, f"DAgger, {changed}", [row for row in rows if row["task"] in names])


if __name__ == "__main__":
    main()
