"""One large agent by several processes: decisions a second of R2R (generated houses) by torchrun beside one process.

crew.py --rounds 3 --out benchmarks/results/crew.json

Runs are as `apil train --task r2r` has them by default, or with --preset paper. One process and several take turns;
the best of each counts. The start of the processes and the first --warm iterations are left out. Wants as many idle
cores as processes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


def _decisions_a_second(processes: int, iterations: int, warm: int, preset: str) -> tuple[float, list[float]]:
    """And the policy losses of the iterations."""
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m"]
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train = ["apil", "train", "--task", "r2r", "--preset", preset, "--out", str(run), "--log-every", "1"]
        count = ["--iterations", str(warm + iterations), "--save-every", str(warm)]
        start = [sys.executable, "-m", *(torchrun if processes > 1 else []), *train, *count]
        subprocess.run(start, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        timings = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = sum(row["steps"] for row in rows if row["iteration"] > warm)
    seconds = sum(timing["seconds"] for timing in timings if timing["from"] >= warm)
    return steps / seconds, [row["policy_loss"] for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--warm", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--preset", default="desk")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    record: dict[str, Any] = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0], **vars(given)}
    del record["out"]
    found: dict[int, list[float]] = {1: [], given.processes: []}
    losses: dict[int, list[float]] = {}
    for _ in range(given.rounds):
        for processes, rates in found.items():
            rate, losses[processes] = _decisions_a_second(processes, given.iterations, given.warm, given.preset)
            rates.append(rate)
            print(f"{processes} processes: {rate:.0f} decisions/s", flush=True)
    record |= {"python": platform.python_version(), "decisions_a_second": found}
    record["ratio"] = max(found[given.processes]) / max(found[1])
    pairs = list(zip(losses[1], losses[given.processes], strict=True))[:10]
    record["largest_difference_of_the_first_10_losses"] = max(abs(one - other) for one, other in pairs)
    text = json.dumps(record, indent=2)
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
