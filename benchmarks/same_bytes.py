"""Trains with old code and with the code of this tree, and compares metrics.jsonl and answers.jsonl byte by byte, but
for the checksum in each row of answers.

    python benchmarks/same_bytes.py HEAD~1                   # against a commit
    python benchmarks/same_bytes.py ../old --only maze       # against a folder that holds src/ and examples/
    python benchmarks/same_bytes.py v0.1 --keep old-files    # trains the old side once; later runs reuse its files

GRID (all query rules, two teachers, 200 iterations), MAZE (the same, 100), the MiniGrid example (APIL, 50) and R2R in
generated houses (DAgger and APIL, 20), through the command line, two processes at a time. Bytes are the same on one
kind of processor only: files that are kept belong to the machine that made them. Exits with 1 on any difference.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
COMPARED = ("metrics.jsonl", "answers.jsonl")
TOGETHER = 6
"""Cases that one process trains, one after the other."""

FREE = (
    "bc", "dagger", "intrun", "extrun", "behvun", "modlun", "errpred", "apil", "never", "random", "always", "every",
    "safedagger", "lazydagger", "ensembledagger", "thriftydagger",
)  # fmt: skip
"""Rules without a threshold, or with one that comes with apil."""
BUDGETED = ("least-confidence", "margin", "entropy", "variance", "rnd")
"""Rules that need a threshold or a budget."""
TEACHERS = ("detm", "twodifdetm")
ROOM = ("--batch", "8", "--learning-rate", "5e-3", "--average", "0.98")
"""The settings of examples/minigrid.toml."""

DRIVER = """
import contextlib, json, os, runpy, sys, traceback
import apil

root, cases = json.loads(sys.argv[1])
assert apil.__file__.startswith(root), f"{apil.__file__} is not in {root}"
for folder, argv in cases:
    sys.argv = ["apil", *argv, "--out", folder]
    with open(folder + ".log", "w") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        try:
            runpy.run_module("apil.cli", run_name="__main__")
        except SystemExit:
            pass
        except BaseException:
            traceback.print_exc()
"""


@dataclass(frozen=True)
class Case:
    """One run, by its options on the command line."""

    task: str
    name: str
    argv: tuple[str, ...]
    quick: bool = False
    """Part of `--quick`."""


def cases() -> Iterator[Case]:
    """All that is compared."""
    for task, iterations in (("grid", 200), ("maze", 100)):
        for teacher in TEACHERS:
            for query in (*FREE, *BUDGETED):
                more = ("--budget", "0.2") if query in BUDGETED else ()
                quick = teacher == "twodifdetm" and query in ("errpred", "apil", "rnd")
                yield case(task, teacher, query, iterations, more, quick)
    yield case("room", "row-and-column", "apil", 50, ROOM, quick=True)
    for query in ("dagger", "apil"):
        yield case("r2r", "twodifdetm", query, 20, (), quick=query == "apil")


def case(task: str, teacher: str, query: str, iterations: int, more: tuple[str, ...], quick: bool) -> Case:
    """A case that writes a row of metrics every ten iterations."""
    argv = ("train", "--task", task, "--teacher", teacher, "--query", query, "--iterations", str(iterations))
    return Case(task, f"{task}-{teacher}-{query}", (*argv, "--log-every", "10", *more), quick)


@dataclass(frozen=True)
class Side:
    """One version of the code, and where its runs go."""

    root: Path
    """Holds src/ and examples/."""
    runs: Path
    kept: str | None = None
    """A digest of the code if finished runs may be reused."""

    @property
    def printed(self) -> tuple[str, ...]:
        """What makes code that has other defaults learn as the paper prints it."""
        path = self.root / "src/apil/cli/train.py"
        return ("--as-printed",) if path.exists() and "as_printed" in path.read_text() else ()

    def train(self, some: Sequence[Case]) -> None:
        """Trains in one process the cases that are not there yet, each into a folder of its own."""
        open_ones = [one for one in some if not self.has(one)]
        for one in open_ones:
            shutil.rmtree(self.runs / one.name, ignore_errors=True)
        if not open_ones:
            return
        what = [str(self.root), [(str(self.runs / one.name), (*one.argv, *self.printed)) for one in open_ones]]
        plugins = {"APIL_PLUGINS": str(self.root / "examples/minigrid_experts.py")} if some[0].task == "room" else {}
        environment = {
            **os.environ,
            **plugins,
            "PYTHONPATH": str(self.root / "src"),
            "XDG_CACHE_HOME": str(self.runs / "cache"),
            "OMP_NUM_THREADS": "1",
        }
        subprocess.run([sys.executable, "-c", DRIVER, json.dumps(what)], env=environment, cwd=self.runs, check=True)
        for one in open_ones:
            self.tidy(one)

    def has(self, one: Case) -> bool:
        """Whether the same code has trained this case before."""
        note = self.runs / one.name / "made_by.json"
        return note.exists() and json.loads(note.read_text()) == [self.kept, *one.argv]

    def tidy(self, one: Case) -> None:
        """Deletes what is not compared, and notes who made the rest."""
        folder = self.runs / one.name
        if not (folder / COMPARED[0]).exists():
            return
        for path in folder.iterdir():
            if path.name not in COMPARED:
                path.unlink()
        if self.kept:
            (folder / "made_by.json").write_text(json.dumps([self.kept, *one.argv]))

    def files(self, one: Case) -> list[bytes | None]:
        """What is compared; None for a file that was not written. Older code wrote no checksums of answers."""
        paths = [self.runs / one.name / name for name in COMPARED]
        return [re.sub(rb', "crc32": \d+', b"", path.read_bytes()) if path.exists() else None for path in paths]

    def last_words(self, one: Case) -> str:
        """The last line of what a case printed."""
        return (self.runs / f"{one.name}.log").read_text().strip().rpartition("\n")[2]


def verdict(old: Side, new: Side, one: Case) -> str:
    """'identical', or what is wrong."""
    for side, who in ((old, "the old code"), (new, "this tree")):
        if side.files(one)[0] is None:
            return f"FAILED with {who}: {side.last_words(one)}"
    for name, ours, theirs in zip(COMPARED, new.files(one), old.files(one), strict=True):
        if ours != theirs:
            return f"DIFFERENT: {name} {where(theirs, ours)}"
    return "identical"


def where(old: bytes | None, new: bytes | None) -> str:
    """The first line that differs."""
    if old is None or new is None:
        return "was written by one side only"
    lines = [text.splitlines() for text in (old, new)]
    same = next((at for at, (a, b) in enumerate(zip(*lines, strict=False)) if a != b), min(map(len, lines)))
    return f"from line {same + 1} on ({len(lines[0])} and {len(lines[1])} lines)"


def code_of(old: str, into: Path) -> Path:
    """The folder of the old code: as given, or a commit unpacked."""
    if (Path(old) / "src").is_dir():
        return Path(old).resolve()
    command = ["git", "-C", str(HERE), "archive", old, "src", "examples"]
    packed = subprocess.run(command, capture_output=True, check=False)
    if packed.returncode:
        raise SystemExit(f"'{old}' is neither a folder with src/ nor a commit: {packed.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(into, filter="data")
    return into


def digest(root: Path) -> str:
    """Of all sources."""
    found = hashlib.sha256()
    for path in sorted(path for path in (root / "src").rglob("*") if path.suffix in (".py", ".json")):
        found.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return found.hexdigest()


def chunks(some: Sequence[Case]) -> Iterator[Sequence[Case]]:
    """What one process trains: cases of one task; R2R runs are long and go alone."""
    for task in dict.fromkeys(one.task for one in some):
        own = [one for one in some if one.task == task]
        step = 1 if task == "r2r" else TOGETHER
        yield from (own[at : at + step] for at in range(0, len(own), step))


def main() -> None:
    """Trains, compares and counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("old", help="a commit, or a folder with src/ and examples/")
    parser.add_argument("--only", choices=("grid", "maze", "minigrid", "r2r"), help="one of the four parts")
    parser.add_argument("--quick", action="store_true", help="eight runs only")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the old side's files there, and reuse them")
    options = parser.parse_args()
    task = {"minigrid": "room"}.get(options.only, options.only)
    chosen = [one for one in cases() if task in (None, one.task) and (one.quick or not options.quick)]
    with tempfile.TemporaryDirectory() as text:
        place = Path(text).resolve()
        for folder in ("code", "old", "new"):
            (place / folder).mkdir()
        root = code_of(options.old, place / "code")
        old = Side(root, place / "old")
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            old = Side(root, options.keep.resolve(), digest(root))
        new = Side(HERE, place / "new")

        def compare(some: Sequence[Case]) -> list[str]:
            old.train(some)
            new.train(some)
            return [verdict(old, new, one) for one in some]

        same = 0
        parts = list(chunks(chosen))
        with ThreadPoolExecutor(2) as pool:
            for part, verdicts in zip(parts, pool.map(compare, parts), strict=True):
                for one, said in zip(part, verdicts, strict=True):
                    print(f"{one.name:32} {said}", flush=True)
                    same += said == "identical"
    print(f"{same} of {len(chosen)} identical")
    sys.exit(same != len(chosen))


if __name__ == "__main__":
    main()
