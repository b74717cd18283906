"""Compares the processor time of training with old code and with the code of this tree, without a store of answers.

    python benchmarks/speed.py dcd5b11               # against a commit
    python benchmarks/speed.py ../old --rounds 9     # against a folder that holds src/

Each round trains every case once with the old and once with the new code, in processes of their own, in turns; what is
compared is the best of the rounds. Imports and files are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from same_bytes import HERE, code_of

CASES = {
    "GRID, DAgger, alone": ("grid", "dagger", None, 1, 600),
    "GRID, DAgger, a stack of 24": ("grid", "dagger", None, 24, 300),
    "MAZE, APIL, alone": ("maze", "apil", 0.1, 1, 120),
    "MAZE, DAgger, alone": ("maze", "dagger", None, 1, 120),
}
"""Task, rule, budget, runs and iterations."""

DRIVER = """
import json, sys, time
from apil.learning.trainer import Trainer
from apil.settings import RunSettings
from apil.tasks import TASKS

task, query, budget, runs, iterations = json.loads(sys.argv[1])
given = {"batch": TASKS.load(task)().batch} | ({} if budget is None else {"budget": budget})

def trainer(runs, iterations):
    own = {"iterations": iterations, **given}
    return Trainer([RunSettings.of(task, "twodifdetm", query, seed=seed, **own) for seed in range(runs)])

trainer(runs, 20).train()
made = trainer(runs, iterations)
start = time.process_time()
made.train()
print(time.process_time() - start)
"""


def seconds(root: Path, case: tuple[str, str, float | None, int, int]) -> float:
    """Processor time of one training."""
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", DRIVER, json.dumps(case)]
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Takes turns, and prints a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("old", help="a commit, or a folder with src/")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        roots = {"old": code_of(options.old, Path(text).resolve()), "new": HERE}
        for name, case in CASES.items():
            if options.only not in name:
                continue
            best = {side: float("inf") for side in roots}
            for _ in range(options.rounds):
                for side, root in roots.items():
                    best[side] = min(best[side], seconds(root, case))
            ratio = best["new"] / best["old"]
            print(f"{name}: old {best['old']:.2f} s, new {best['new']:.2f} s, new / old {ratio:.3f}", flush=True)


if __name__ == "__main__":
    main()
