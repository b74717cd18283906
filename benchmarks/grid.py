"""Speed and memory of training on GRID, side by side with `imitation` and a plain PyTorch loop. See README.md.

.venv/bin/python benchmarks/grid.py --help
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import venv
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
OTHER = HERE / ".venv-imitation"
STACK = 24
CHECKED = 100
"""Iterations over which the plain loop must have apil's losses."""
ROUND = 63
"""Updates a round that give imitation as many updates as apil: one for each of a round's 63 episodes."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
Record = dict[str, Any]


@dataclass(frozen=True)
class Item:
    """Something to measure."""

    name: str
    label: str
    command: tuple[str, ...]
    goal: float | None = None
    """Steps per second, in multiples of imitation's."""


def items(episodes: int, seed: int, imitation: bool) -> list[Item]:
    """What is measured in a round, in this order."""
    own = (sys.executable, str(HERE / "measure.py"))
    other = (str(OTHER / "bin" / "python"), str(HERE / "imitation_dagger.py"), str(episodes), str(seed))
    ours = [
        Item("alone", "(a) apil, one run", (*own, "apil", "1", str(episodes), str(seed)), goal=8.0),
        Item("stack", f"(b) apil, {STACK} runs", (*own, "apil", str(STACK), str(episodes), str(seed)), goal=100.0),
        Item("plain", "(d) plain PyTorch", (*own, "plain", str(episodes), str(seed))),
    ]
    theirs = [
        Item("imitation", "(c) imitation, defaults", other),
        Item("imitation_few_updates", "(c') imitation, few updates", (*other, str(ROUND))),
    ]
    return ours[:2] + (theirs if imitation else []) + ours[2:]


def run(command: tuple[str, ...]) -> Record:
    """The JSON line that a script prints last."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **ONE_THREAD}, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    record: Record = json.loads(done.stdout.strip().splitlines()[-1])
    return record


def ensure_imitation(console: Console) -> None:
    """Makes the environment of `imitation`, once. torch first, alone and pinned: else pip pulls in GPU packages."""
    ready = OTHER / "ready"
    if ready.exists():
        return
    console.print(f"Making {OTHER.name}; this takes some minutes.")
    venv.create(OTHER, with_pip=True, clear=True)
    pins = str(HERE / "constraints-imitation.txt")
    for package in ("torch", "imitation"):
        pip = (str(OTHER / "bin" / "python"), "-m", "pip", "install", "-qq", "-c", pins, package)
        subprocess.run(pip, check=True)
    ready.touch()


def check_losses(episodes: int, seed: int) -> Record:
    """Fails unless the plain loop trains as apil does."""
    record = run((sys.executable, str(HERE / "measure.py"), "losses", str(max(episodes, CHECKED)), str(seed)))
    if record["equal_iterations"] < CHECKED:
        raise SystemExit(f"The plain loop does not train as apil does: {json.dumps(record)}")
    return record


def summarise(item: Item, rounds: list[dict[str, Record]]) -> Record:
    """Medians over the rounds; ratios are taken within a round, where the machine was equally busy."""
    own = [measured[item.name] for measured in rounds]
    summary: Record = {
        "label": item.label,
        **{name: own[0][name] for name in ("steps", "labels", "updates", "labels_per_update")},
        "steps_per_second": statistics.median(record["steps"] / record["seconds"] for record in own),
        "steps_per_cpu_second": statistics.median(record["steps"] / record["cpu_seconds"] for record in own),
        "peak_mb": max(record["peak_mb"] for record in own),
        "imported_mb": statistics.median(record["imported_mb"] for record in own),
    }
    for base in ("imitation", "plain"):
        if base in rounds[0]:
            for clock, kind in (("seconds", "ratio"), ("cpu_seconds", "cpu_ratio")):
                ratios = [_speed(m[item.name], clock) / _speed(m[base], clock) for m in rounds]
                summary[f"{kind}_to_{base}"] = statistics.median(ratios)
                summary[f"{kind}s_to_{base}"] = ratios
    if item.goal is not None and "ratio_to_imitation" in summary:
        summary["goal"] = item.goal
        # On a busy machine the clock favours whoever was interrupted less: a goal is met by both measures or not.
        summary["goal_met"] = min(summary["ratio_to_imitation"], summary["cpu_ratio_to_imitation"]) >= item.goal
    return summary


def _speed(record: Record, clock: str) -> float:
    return float(record["steps"]) / float(record[clock])


def measure_growth(repetitions: int) -> Record:
    """Time per decision, with its goal: from 10 to 10 000 teachers at most five times."""
    curves: Record = run((sys.executable, str(HERE / "growth.py"), str(repetitions)))
    factors = {}
    for expectation in ("exact", "monte-carlo"):
        times = {p["K"]: p["microseconds"] for p in curves["teachers"] if p["expectation"] == expectation}
        factors[expectation] = times[10_000] / times[10]
    return {
        "curves": curves,
        "factor_from_10_to_10000_teachers": factors,
        "goal": 5.0,
        "goal_met": max(factors.values()) <= 5.0,
    }


def speed_table(summaries: dict[str, Record]) -> Table:
    """Ratios by the clock, and in brackets by processor time."""
    table = Table(
        title="GRID, DAgger: environment steps per second, learning included, one thread",
        caption="Ratios are medians over the rounds, by the clock (by processor time).",
    )
    for name in ("", "steps/s", "× imitation", "× plain", "updates", "peak MB (import)", "goal"):
        table.add_column(name, justify="right" if name else "left", no_wrap=not name)
    for summary in summaries.values():
        table.add_row(
            summary["label"],
            f"{summary['steps_per_second']:,.0f}",
            *(_ratio(summary, base) for base in ("imitation", "plain")),
            f"{summary['updates']:,} of {summary['labels_per_update']} labels",
            f"{summary['peak_mb']:.0f} ({summary['imported_mb']:.0f})",
            f"≥ {summary['goal']:g} × (c): {_verdict(summary['goal_met'])}" if "goal" in summary else "",
        )
    return table


def _ratio(summary: Record, base: str) -> str:
    if f"ratio_to_{base}" not in summary:
        return "-"
    return f"{summary[f'ratio_to_{base}']:.1f} ({summary[f'cpu_ratio_to_{base}']:.1f})"


def _verdict(met: bool) -> str:
    return "[green]met[/green]" if met else "[red]not met[/red]"


def growth_table(growth: Record) -> Table:
    """One row a point."""
    factors = ", ".join(f"{name} {value:.1f}" for name, value in growth["factor_from_10_to_10000_teachers"].items())
    table = Table(
        title="Time of one decision",
        caption=f"10 to 10 000 teachers: × {factors}; goal ≤ {growth['goal']:g}: {_verdict(growth['goal_met'])}",
    )
    for name in ("curve", "expectation", "K", "N1", "N2", "µs"):
        table.add_column(name, justify="left" if name in ("curve", "expectation") else "right")
    for curve, points in growth["curves"].items():
        for p in points:
            size = [str(p[name] or "-") for name in ("K", "N1", "N2")]
            table.add_row(curve, p["expectation"], *size, f"{p['microseconds']:.0f}")
        table.add_section()
    return table


def machine() -> Record:
    """Where the figures come from."""
    return {
        "processors": os.cpu_count(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "load_average": os.getloadavg(),
    }


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000, help="episodes a run, of 8 steps each")
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="200 episodes, one round")
    parser.add_argument("--skip-imitation", action="store_true", help="make no environment for it, do not measure it")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "grid.json")
    return parser.parse_args()


def main() -> None:
    """Measures, prints and saves."""
    chosen = options()
    episodes, rounds = (200, 1) if chosen.quick else (chosen.episodes, chosen.rounds)
    console = Console(width=None if sys.stdout.isatty() else 120)
    if not chosen.skip_imitation:
        ensure_imitation(console)
    result: Record = {
        "machine": machine(),
        "episodes": episodes,
        "rounds": rounds,
        "equal_losses": check_losses(episodes, chosen.seed),
    }
    wanted = items(episodes, chosen.seed, not chosen.skip_imitation)
    measured: list[dict[str, Record]] = []
    for number in range(rounds):
        measured.append({})
        for item in wanted:
            console.print(f"round {number + 1} of {rounds}: {item.label}", highlight=False)
            measured[-1][item.name] = run(item.command)
    result["training"] = {item.name: summarise(item, measured) for item in wanted}
    result["growth"] = measure_growth(200 if chosen.quick else 2000)
    result["measured"] = measured
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(result, indent=1) + "\n")
    equal = result["equal_losses"]
    console.print(speed_table(result["training"]), growth_table(result["growth"]))
    console.print(
        f"Losses of (a) and (d) are equal in {equal['equal_iterations']} of {equal['iterations']} iterations."
    )
    console.print(f"Saved to {chosen.out}.")


if __name__ == "__main__":
    main()
