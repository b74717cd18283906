"""Odd command lines, study files, run folders and compiled data: each must work, or be refused in one line.

    python benchmarks/fuzz.py --cases 2000 --seed 0

The cases are those of tests/fuzz, drawn from the records of settings. A case is mishandled that ends in a traceback, in
an exit code other than 0 and 2, in more than one line, not at all, or in files that cannot be opened again.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fuzz"))

from fuzz_cases import KINDS
from fuzz_judge import GOOD, MISHANDLED, REFUSED, Case, Found, make, play


def main() -> None:
    """Plays the cases and prints how they ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000, help="in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=list(KINDS), help="one kind alone")
    parser.add_argument("--all", action="store_true", help="print every case, not only those that were mishandled")
    parser.add_argument("--seconds", type=float, default=120.0, help="a case that takes longer is mishandled")
    given_ = parser.parse_args()
    kinds = [given_.kind] if given_.kind else list(KINDS)
    mishandled = 0
    with tempfile.TemporaryDirectory(prefix="apil-fuzz-") as folder:
        os.environ["XDG_CACHE_HOME"] = os.environ["MINARI_DATASETS_PATH"] = f"{folder}/cache"
        made = make(Path(folder))
        for kind in kinds:
            number = -(-given_.cases // len(kinds))
            counts = tally(kind, number, given_, lambda case: play(case, made, Path(folder) / "case", given_.seconds))
            shown = "".join(f"{counts[name]:6} {name}" for name in (GOOD, REFUSED, MISHANDLED))
            print(f"{kind:16}{shown}", flush=True)
            mishandled += counts[MISHANDLED]
    sys.exit(bool(mishandled))


def tally(kind: str, cases: int, how: argparse.Namespace, ends: Callable[[Case], Found]) -> Counter[str]:
    """How many cases of a kind ended how; prints those that were mishandled."""
    counts: Counter[str] = Counter()
    played: set[str] = set()

    def one(case: Case) -> None:
        if repr(case) in played or len(played) == cases:
            return
        played.add(repr(case))
        found = ends(case)
        counts[found.verdict] += 1
        if how.all or found.verdict == MISHANDLED:
            print(f"{kind}, {found.verdict}: {found.why}\n    {case!r:.1500}", flush=True)

    # The first ten examples of a seed are new draws, later ones are variations of them.
    few = settings(
        max_examples=10,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    for number in count(how.seed * 1_000_000):
        seed(number)(few(given(KINDS[kind])(one)))()
        if len(played) == cases:
            return counts
    raise AssertionError


if __name__ == "__main__":
    main()
