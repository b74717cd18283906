"""What `--gap estimate` changes where the teachers themselves reach the goal only sometimes.

    python benchmarks/gap.py     # writes benchmarks/results/gap.json and docs/pictures/gap.png

MAZE with episodes of so few steps that even those who follow the teachers all the way end short of the goal in many of
them. APIL asks where there is no progress towards the goal. With d*_T = 0 an end short of the goal is never a good one,
so it goes on asking though the teachers cannot do better; with the estimate an end as good as theirs is good.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from apil.learning.evaluate import evaluate
from apil.learning.trainer import Trainer
from apil.runs.calibration import load_calibration
from apil.runs.resolve import resolve
from apil.studies.statistics import interval

HERE = Path(__file__).parent
OUT, PICTURE = HERE / "results" / "gap.json", HERE.parent / "docs" / "pictures" / "gap.png"
HORIZON = 4
GAPS: tuple[float | str, ...] = (0.0, "estimate")


def trained(gap: float | str, seeds: range, iterations: int) -> dict[str, Any]:
    """Runs of APIL: how much they ask over time, and what they reach alone; and what the teachers reach."""
    settings = {
        "iterations": iterations,
        "gap": gap,
        "options": {"horizon": HORIZON},
        "answers": False,
        "log_every": 20,
    }
    runs = [
        resolve("maze", "first+last", "apil", {**settings, "seed": s}, load_calibration(None)).settings for s in seeds
    ]
    trainer = Trainer(runs)
    trainer.train()
    curve = [sum(own[row]["query_rate"] for own in trainer.rows) / len(runs) for row in range(len(trainer.rows[0]))]
    alone = evaluate(trainer.trained_agents(), 300, helped=False)
    answers = [trainer.answers(run) for run in range(len(runs))]
    memory = trainer.agents.queries[0].part.memory
    found = {
        "iterations": [row["iteration"] for row in trainer.rows[0]],
        "asked": curve,
        "answers": interval(answers),
        "asked_at_the_end": interval([own[-1]["query_rate"] for own in trainer.rows]),
        "success_alone": interval([own["success_alone"] for own in alone]),
    }
    if "followed" in memory:
        found["gap"] = interval((memory["distance"] / memory["followed"].clamp_min(1)).tolist())
    return found


def picture(found: dict[str, Any]) -> Figure:
    """The share of steps on which APIL asks, over training."""
    figure = Figure(figsize=(5.6, 2.6), layout="constrained")
    panel = figure.add_subplot()
    for name, own in found["gaps"].items():
        panel.plot(own["iterations"], own["asked"], label=f"--gap {name}")
    panel.set_xlabel("iterations")
    panel.set_ylabel("share of steps asked")
    panel.set_ylim(0, 1)
    panel.legend(frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=300)
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    seeds = range(wanted.first, wanted.first + wanted.seeds)
    gaps = {str(gap): trained(gap, seeds, wanted.iterations) for gap in GAPS}
    found = {"about": {"horizon": HORIZON, "seeds": list(seeds), "iterations": wanted.iterations}, "gaps": gaps}
    OUT.write_text(json.dumps(found, indent=2) + "\n")
    picture(found).savefig(PICTURE, dpi=120)
    print({name: {key: own[key] for key in own if key not in ("iterations", "asked")} for name, own in gaps.items()})


if __name__ == "__main__":
    main()
