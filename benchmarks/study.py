"""Times the GRID study with old code and with the code of this tree, in turns, and compares the bytes of metrics.csv.

    python benchmarks/study.py 8f4b0bd               # against a commit
    python benchmarks/study.py ../old --rounds 5     # against a folder that holds src/

Seconds by the clock and of processor time (the study and its workers), the best of the rounds. Exits with 1 where the
bytes differ.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from same_bytes import HERE, code_of

_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""


def adopt_orphans() -> None:
    """Processes that outlive those that started them become children of this one, so that their time is counted."""
    with suppress(AttributeError):  # where there is no Linux
        ctypes.CDLL(None).prctl(_SUBREAPER, 1)


def timed(root: Path, out: Path) -> tuple[float, float, bytes]:
    """One study into `out`: seconds by the clock, seconds of processor time, its metrics.csv."""
    command = [sys.executable, "-m", "apil.cli", "study", "grid", "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, cwd=out.parent, check=True, capture_output=True)
    wall = time.perf_counter() - start
    with suppress(ChildProcessError):  # what the study started and left to this process
        while True:
            os.waitpid(-1, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, spent, (out / "metrics.csv").read_bytes()


def main() -> None:
    """Takes turns, and prints the best of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("old", help="a commit, or a folder with src/")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    adopt_orphans()
    found: dict[str, list[tuple[float, float, bytes]]] = {"old": [], "new": []}
    with tempfile.TemporaryDirectory() as text:
        place = Path(text).resolve()
        (place / "code").mkdir()
        roots = {"old": code_of(options.old, place / "code"), "new": HERE}
        for number in range(options.rounds):
            for name, root in roots.items():
                found[name].append(timed(root, place / f"{name}-{number}"))
                print(f"{name}: {found[name][-1][0]:.1f} s, {found[name][-1][1]:.1f} s of processor time", flush=True)
    wall = {name: min(turn[0] for turn in turns) for name, turns in found.items()}
    spent = {name: min(turn[1] for turn in turns) for name, turns in found.items()}
    ratios = wall["new"] / wall["old"], spent["new"] / spent["old"]
    print(f"new / old: {ratios[0]:.2f} by the clock, {ratios[1]:.2f} of processor time")
    same = len({turn[2] for turns in found.values() for turn in turns}) == 1
    print("metrics.csv: the same bytes" if same else "metrics.csv: DIFFERENT bytes")
    sys.exit(not same)


if __name__ == "__main__":
    main()
