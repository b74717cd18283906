"""How picky a rule should be: success alone on MAZE for several shares of steps to ask on, at the same answers.

    python benchmarks/share.py --shares 0.1 0.05 0.025 --windows 16 --out shares.jsonl

Wall seeds and seeds are those that settings are chosen on; the reported ones are others (docs/guide/learning.md).
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from statistics import mean

from apil.learning.evaluate import evaluate
from apil.learning.trainer import Trainer
from apil.runs.calibration import load_calibration
from apil.runs.resolve import resolve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.05, 0.025])
    parser.add_argument("--windows", type=int, nargs="+", default=[0, 16])
    parser.add_argument("--queries", nargs="+", default=["apil", "random"])
    parser.add_argument("--answers", type=int, default=300)
    parser.add_argument("--teacher", default="twodifdetm")
    parser.add_argument("--walls", type=int, nargs="+", default=[42, 43, 54])
    parser.add_argument("--seeds", type=int, nargs="+", default=[900, 901, 902, 903])
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--out", type=Path, required=True, help="one line a run is appended")
    asked = parser.parse_args()
    calibration = load_calibration(None)
    for wall, share, window, query in product(asked.walls, asked.shares, asked.windows, asked.queries):
        given = {"answer_budget": asked.answers, "budget": share, "window": window, "wall_seed": wall}
        runs = [resolve("maze", asked.teacher, query, {**given, "seed": s}, calibration).settings for s in asked.seeds]
        trainer = Trainer(runs)
        trainer.train()
        found = evaluate(trainer.trained_agents(), asked.episodes)
        with asked.out.open("a") as file:
            for seed, result in zip(asked.seeds, found, strict=True):
                row = {"query": query, **given, "seed": seed, "success_alone": result["success_alone"]}
                file.write(json.dumps(row) + "\n")
        print(f"walls {wall}, {query}, share {share}, window {window}: {mean(r['success_alone'] for r in found):.3f}")


if __name__ == "__main__":
    main()
