"""One large agent by several processes of torchrun beside one process, on R2R with generated houses.

crew.py speed --rounds 3 --out benchmarks/results/crew.json     decisions a second
crew.py losses --out benchmarks/results/crew.json               how far the losses of the first 20 updates differ

Runs are as `apil train --task r2r --preset PRESET` has them: by default with the sizes of the paper, which is the large
agent that several processes are for; `--preset desk` is the small one. One process and several take turns; the best of
each counts. The start of the processes, the first --warm iterations and checkpoints are left out. `speed` wants as many
idle cores as processes. What is in the file for other presets and measures stays there.
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

from apil.runs.folder import load_config

_LOSSES = ("policy_loss", "identity_loss", "query_loss")


def _trained(processes: int, preset: str, *options: str) -> tuple[list[Any], list[Any], int]:
    """The rows of metrics and of timings of a run, and its updates an iteration."""
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m"]
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train = ["apil", "train", "--task", "r2r", "--preset", preset, "--out", str(run), *options]
        start = [sys.executable, "-m", *(torchrun if processes > 1 else []), *train]
        subprocess.run(start, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        files = (run / "metrics.jsonl", run / "timings.jsonl")
        rows, timings = ([json.loads(line) for line in path.read_text().splitlines()] for path in files)
        updates = load_config(run).learner.updates
    return rows, timings, updates


def _decisions_a_second(processes: int, preset: str, warm: int, iterations: int) -> float:
    # Rows and checkpoints come when the iterations that are left out are over, so that the rest is by itself.
    options = ("--iterations", str(warm + iterations), "--log-every", str(warm), "--save-every", str(warm))
    rows, timings, _ = _trained(processes, preset, *options)
    steps = sum(row["steps"] for row in rows if row["iteration"] > warm)
    return float(steps / sum(timing["seconds"] for timing in timings if timing["from"] >= warm))


def speed(given: argparse.Namespace) -> dict[str, Any]:
    found: dict[int, list[float]] = {1: [], given.processes: []}
    for _ in range(given.rounds):
        for processes, rates in found.items():
            rates.append(_decisions_a_second(processes, given.preset, given.warm, given.iterations))
            print(f"{processes} processes: {rates[-1]:.0f} decisions/s", flush=True)
    ratio = max(found[given.processes]) / max(found[1])
    settings = {"warm": given.warm, "iterations": given.iterations, "cores": os.cpu_count()}
    return {**settings, "python": platform.python_version(), "decisions_a_second": found, "ratio": ratio}


def losses(given: argparse.Namespace) -> dict[str, Any]:
    options = ("--iterations", "20", "--log-every", "1")
    one, several = (_trained(processes, given.preset, *options) for processes in (1, given.processes))
    rows = list(zip(one[0], several[0], strict=True))
    same = all(ours["answers"] == theirs["answers"] for ours, theirs in rows)
    found: dict[str, Any] = {"updates_an_iteration": one[2], "answers_are_equal": same}
    for name, count in (("first_20_updates", 20 // one[2]), ("first_20_iterations", 20)):
        found[name] = {loss: max(abs(ours[loss] - theirs[loss]) for ours, theirs in rows[:count]) for loss in _LOSSES}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measure", choices=("speed", "losses"))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = {"speed": speed, "losses": losses}[given.measure](given)
    print(json.dumps(found, indent=2))
    if given.out is not None:
        record = json.loads(given.out.read_text()) if given.out.exists() else {}
        record[f"{given.measure}, {given.preset}, {given.processes} processes"] = found
        given.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
