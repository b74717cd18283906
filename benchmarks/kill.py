"""Kills trainings and studies with SIGKILL at random moments, resumes them, and compares with ones never stopped.

    python benchmarks/kill.py --grid 20 --maze 20 --slow 20 --minigrid 20 --houses 20 --study 20
    python benchmarks/kill.py --replay --gymnasium 20 --houses 20      # with the store of answers

Each trial trains in a process of its own, kills it at a moment drawn over the length of the run, resumes it (and kills
the resumed one too, in every third trial), and compares every file that must be the same byte for byte. Except on GRID
and MAZE, whose teachers answer whole batches, every answer that was given is counted: none may be lost or asked for
twice. `--slow N` are N trials each of teachers of 30 ms and 1 s with batches of 1 and 16; `--study N` kills the parent
of a study N times and one of its workers N times. With --replay runs keep a store of answers and learn from it, and
every other one has a budget of answers and ends by itself. Exits with 1 if any trial failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from apil.learning.build import NAMED, Parts, configure_torch
from apil.query import QUERY_POLICIES, needs_threshold
from apil.r2r.houses_folder import write_houses
from apil.runs.calibration import load_calibration, threshold_of
from apil.runs.resolve import resolve
from apil.runs.stored import answers
from apil.runs.train import resume_run, start_run
from apil.settings import RunSettings
from apil.tasks import TASKS, from_gymnasium
from apil.teachers import Team
from apil.teachers.committee import committee
from counted_teacher import Counted, given

HERE = Path(__file__).resolve().parent
SAME = ("config.json", "metrics.jsonl", "answers.jsonl")
STORE = "answers.store"
TEACHERS = ("detm", "rand", "tworand", "twodifdetm")
REPLAY = {"replay": 32, "updates": 4, "validation": 0.1, "recent": 0.25}
ITERATIONS = {"grid": 60, "maze": 24, "gymnasium": 24, "minigrid": 12, "houses": 12}
SLOW = {
    "slow, 30 ms, batch 1": (0.03, 1, 8, 1.0),
    "slow, 30 ms, batch 16": (0.03, 16, 2, 0.4),
    "slow, 1 s, batch 1": (1.0, 1, 2, 0.5),
    "slow, 1 s, batch 16": (1.0, 16, 2, 0.05),
}
"""The delay of a teacher in seconds, the batch, the iterations and the share of the steps on which it is asked."""
STUDY = """
tasks = ["grid"]
teachers = ["counted"]
seeds = 2
episodes = 20
as_printed = true
rules = ["bc", "apil", { query = "random", budget = 0.3 }]

[settings]
iterations = 12
batch = 2
log_every = 3
answers = true
"""


@dataclass(frozen=True)
class Outcome:
    """What came of one trial, or of several."""

    trials: int = 0
    same: int = 0
    """Trials that ended with the bytes of a run that was never stopped."""
    kills: int = 0
    """That hit a running process."""
    saves: int = 0
    """Of them, those during a save."""
    given: int = 0
    """Answers that were given, where they were counted."""
    caught: int = 0
    """Given by a teacher in the moment of a kill, before the run had them; these alone are asked for again."""
    lost: int = 0
    """Others that were given and not on file after a kill."""
    twice: int = 0
    """Others that were asked for twice."""

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(**{name: value + asdict(other)[name] for name, value in asdict(self).items()})

    @property
    def good(self) -> bool:
        return self.same == self.trials and not self.lost and not self.twice


@dataclass(frozen=True)
class Made:
    """What a trial trains."""

    config: RunSettings
    parts: Parts
    log: Path | None = None
    """Where the teachers note their answers."""
    delay: float = 0.0

    @property
    def quick(self) -> Made:
        """The same without the waiting and the notes."""
        teacher = self.parts.teacher
        if not isinstance(teacher, Counted):
            return self
        return Made(self.config, replace(self.parts, teacher=replace(teacher, log=None, delay=0.0)))


def made(kind: str, trial: int, replay: bool, data: Path, log: Path) -> Made:
    """Trials go round all query policies and teachers."""
    if kind in SLOW:
        delay, batch, iterations, share = SLOW[kind]
        more = {"batch": batch, "iterations": iterations, "threshold": share, "log_every": 1, "save_every": 1}
        config = RunSettings.of("grid", "twodifdetm", "random", seed=trial, **more)
        return Made(config, Parts(teacher=Counted(committee("twodifdetm"), log, delay)), log, delay)
    queries = QUERY_POLICIES.names()
    query, teacher = queries[trial % len(queries)], TEACHERS[trial % len(TEACHERS)]
    given: dict[str, Any] = {"iterations": ITERATIONS[kind], "log_every": 7, "save_every": 4}
    given |= REPLAY if replay else {}
    threshold = threshold_of(load_calibration(None), kind, query) or 0.1
    if kind in ("grid", "maze"):
        given |= {"threshold": threshold, "batch": TASKS.load(kind)().batch}
        given |= {"standardise": True, "encode": 32} if replay else {}
    else:
        given |= {"threshold": threshold} if needs_threshold(query) else {}
    if replay and trial % 2 and query != "never":
        given |= {"answer_budget": 60, "log_every": 2, "iterations": 10 * ITERATIONS[kind]}
    if kind in ("grid", "maze"):
        return Made(RunSettings.of(task=kind, teacher=teacher, query=query, **given), NAMED)
    if kind == "houses":
        given |= {"data": str(data), "width": 16, "heads": 2, "batch": 4} | ({"replay": 8} if replay else {})
        config = resolve("r2r", teacher, query, given, {}, as_printed=True).settings
        return Made(config, Parts(teacher=Counted(committee(teacher), log)), log)
    own, names = _pole() if kind == "gymnasium" else _room()
    assert own.task is not None
    found = resolve(own.task, names, query, {**given, "batch": 4}, {}, as_printed=True)
    assert own.teacher is not None
    return Made(found.settings, replace(own, teacher=Counted(own.teacher, log)), log)


def _pole() -> tuple[Parts, str]:
    """Two who balance a pole."""
    people = {"hard": lambda seen, rng: int(seen[2] + seen[3] > 0), "soft": lambda seen, rng: int(seen[2] > 0)}
    return Parts(from_gymnasium("CartPole-v1", distance="steps", horizon=20), Team(people)), "hard+soft"


def _room() -> tuple[Parts, str]:
    """Two who know their way in a MiniGrid room."""
    spec = importlib.util.spec_from_file_location("minigrid_experts", HERE.parent / "examples/minigrid_experts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    team = module.experts()
    return Parts(module.room(), team), "+".join(team.members)


def in_child(work: Callable[[], object], log: Path) -> int:
    """Runs `work` in a forked process that says what it says into `log`; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        heard = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(heard, 1)
        os.dup2(heard, 2)
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def begin(made: Made, folder: Path) -> None:
    """Starts a run, or goes on with it if it has begun."""
    if (folder / "config.json").exists():
        resume_run(folder, iterations=None, progress=lambda done: None, parts=made.parts)
    else:
        start_run(made.config, folder, progress=lambda done: None, parts=made.parts)


def finish(made: Made, folder: Path) -> float:
    """Trains to the end, unharmed; returns the seconds it took."""
    started = time.perf_counter()
    log = folder.with_suffix(".log")
    _, status = os.waitpid(in_child(lambda: begin(made, folder), log), 0)
    if status:
        raise SystemExit(f"\nA run failed: {made.config}\n{log.read_text()}")
    return time.perf_counter() - started


def kill_after(seconds: float, made: Made, folder: Path) -> bool:
    """Kills a training after some seconds; false if it was done before."""
    pid = in_child(lambda: begin(made, folder), folder.with_suffix(".log"))
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def contents(config: RunSettings, folder: Path) -> dict[str, bytes]:
    """What must be the same."""
    last = max(folder.glob("checkpoint-*.json"))
    names = (*SAME, last.name, last.with_suffix(".safetensors").name, *([STORE] if config.learner.replay else []))
    return {name: (folder / name).read_bytes() for name in names}


def on_file(runs: Path) -> int:
    """Answers in the run folders below a folder, or in one."""
    lines = [line for path in runs.rglob("answers.jsonl") for line in path.read_bytes().splitlines(keepends=True)]
    return sum(line.endswith(b"\n") and b'"action": null' not in line for line in lines)


def surplus(log: Path | None, runs: Path) -> int:
    """Answers that were given, more often than once too, and are not on file."""
    return 0 if log is None else given(log) - on_file(runs)


def one_run(kind: str, trial: int, luck: random.Random, root: Path, replay: bool, data: Path) -> Outcome:
    """One trial: a training that is killed."""
    own = made(kind, trial, replay, data, root / "given")
    seconds = finish(own.quick, root / "reference")
    expected, total = contents(own.config, root / "reference"), on_file(root / "reference")
    seconds += own.delay * total
    folder = root / "run"
    while not kill_after(luck.uniform(0.0, seconds), own, folder):
        shutil.rmtree(folder)  # it was done before its moment came: that is no kill
        (root / "given").unlink(missing_ok=True)
    kills, saves = 1, int(any(folder.glob(".*.new")))
    gone = surplus(own.log, folder)
    caught, lost = min(gone, 1), max(gone - 1, 0)
    if trial % 3 == 0 and kill_after(luck.uniform(0.0, seconds), own, folder):
        kills, saves = 2, saves + any(folder.glob(".*.new"))
        gone = surplus(own.log, folder) - gone
        caught, lost = caught + min(gone, 1), lost + max(gone - 1, 0)
    if replay and (folder / STORE).exists():
        answers(folder)  # a store that was left by a kill opens
    finish(own, folder)
    twice = surplus(own.log, folder) - caught - lost
    same = contents(own.config, folder) == expected
    return Outcome(1, int(same), kills, int(saves), given(root / "given"), caught, lost, twice)


def studied(root: Path, out: Path, log: Path, delay: float) -> subprocess.Popen[bytes]:
    """A study by the command line, with two workers."""
    (root / "study.toml").write_text(STUDY)
    environment = {
        **os.environ,
        "APIL_PLUGINS": str(HERE / "counted_teacher.py"),
        "COUNTED_LOG": str(log),
        "COUNTED_DELAY": str(delay),
    }
    words = ["study", str(root / "study.toml"), "--workers", "2", "--out", str(out)]
    with (root / "study.log").open("ab") as heard:
        return subprocess.Popen([sys.executable, "-m", "apil", *words], env=environment, stdout=heard, stderr=heard)


def whole_study(root: Path) -> Path:
    """A study that is never stopped."""
    if not (root / "reference").exists() and studied(root, root / "reference", root / "reference-given", 0.0).wait():
        raise SystemExit(f"A study failed:\n{(root / 'study.log').read_text()}")
    return root / "reference"


def workers_of(pid: int) -> list[int]:
    """The workers of a study that are running: forked by a child of it, or started by itself."""
    children: dict[int, list[int]] = {}
    started: dict[int, bytes] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.name))
            started[int(path.name)] = (path / "cmdline").read_bytes()
    own = children.get(pid, [])
    forked = [worker for child in own if b"forkserver" in started[child] for worker in children.get(child, [])]
    return forked + [child for child in own if b"spawn_main" in started[child]]


def one_study(kind: str, trial: int, luck: random.Random, root: Path, replay: bool, data: Path) -> Outcome:
    """One trial: a study whose parent, or one of whose workers, is killed; `data` is one that was never stopped."""
    reference, out, log = data, root / "study", root / "given"
    process = studied(root, out, log, 0.01)
    moment = luck.randrange(1, on_file(reference))
    while given(log) < moment:
        if process.poll() is not None:
            raise SystemExit(f"A study ended before it was killed:\n{(root / 'study.log').read_text()}")
        time.sleep(0.01)
    victims = [process.pid] if kind == "study, parent" else workers_of(process.pid)
    all_workers = workers_of(process.pid)
    os.kill(luck.choice(victims), signal.SIGKILL)
    process.wait()
    while any(Path(f"/proc/{pid}").exists() for pid in all_workers):
        time.sleep(0.01)
    # Each of the workers may have been in the middle of an answer.
    gone = surplus(log, out)
    caught, lost = min(gone, len(all_workers)), max(gone - len(all_workers), 0)
    if studied(root, out, log, 0.0).wait():
        raise SystemExit(f"A study failed:\n{(root / 'study.log').read_text()}")
    twice = surplus(log, out) - caught - lost
    same = files_of(out) == files_of(reference)
    return Outcome(1, int(same), 1, 0, given(log), caught, lost, twice)


def files_of(study: Path) -> dict[str, bytes]:
    """What must be the same of a study."""
    names = (*SAME, "evaluation.json")
    runs = sorted(path.parent for path in study.rglob("config.json"))
    return {f"{run.name}/{name}": (run / name).read_bytes() for run in runs for name in names}


Trial = Callable[[str, int, random.Random, Path, bool, Path], Outcome]


def trials(kind: str, count: int, options: argparse.Namespace, root: Path, data: Path) -> Outcome:
    """Several trials of one kind, some at a time, each in a process of its own."""
    one: Trial = one_study if kind.startswith("study") else one_run
    together = options.together if kind in SLOW else 1
    if kind.startswith("study"):
        data = whole_study(root)
    running: dict[int, Path] = {}
    total = Outcome()
    for trial in (*range(count), None):
        while running and (trial is None or len(running) >= together):
            pid, status = os.waitpid(-1, 0)
            folder = running.pop(pid)
            if status:
                raise SystemExit(f"\n{(folder / 'trial.log').read_text()}")
            total += Outcome(**json.loads((folder / "outcome.json").read_text()))
            shutil.rmtree(folder)
            print(f"\r{kind}: {total.same} of {total.trials} the same, {total.kills} kills", end="", flush=True)
            if options.out:
                write(options.out, f"{kind} with the store" if options.replay else kind, total)
        if trial is not None:
            folder = root / f"{kind.replace(' ', '').replace(',', '-')}-{trial}"
            folder.mkdir()
            luck = random.Random(f"{options.seed} {kind} {trial}")

            def work(trial: int = trial, folder: Path = folder, luck: random.Random = luck) -> None:
                found = one(kind, trial, luck, folder, options.replay, data)
                (folder / "outcome.json").write_text(json.dumps(asdict(found)))

            running[in_child(work, folder / "trial.log")] = folder
    print()
    return total


def wanted(options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """The kinds of trials, and how many."""
    for kind in ITERATIONS:
        yield kind, getattr(options, kind)
    for kind in SLOW:
        yield kind, options.slow
    for kind in ("study, parent", "study, worker"):
        yield kind, options.study


def write(path: Path, kind: str, outcome: Outcome) -> None:
    """Adds the outcome so far to a file, in the place of an earlier one of the same kind."""
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**before, kind: asdict(outcome)}, indent=2) + "\n")


def main() -> None:
    """Runs the trials; exits with 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for kind, what in (
        ("grid", "GRID"),
        ("maze", "MAZE"),
        ("gymnasium", "CartPole-v1"),
        ("minigrid", "a MiniGrid room"),
        ("houses", "R2R in generated houses"),
        ("slow", "each kind of slow teacher"),
        ("study", "a study's parent, and as many on a worker"),
    ):
        parser.add_argument(f"--{kind}", type=int, default=0, help=f"trials on {what}")
    parser.add_argument("--replay", action="store_true", help="learn from a store of answers")
    parser.add_argument("--together", type=int, default=6, help="trials of slow teachers at a time")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", type=Path, help="a JSON file that the counts are added to")
    options = parser.parse_args()
    configure_torch()  # before any fork: a child of a process with several threads can hang
    found: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as text:
        data = Path(text) / "data"
        if options.houses:
            data = write_houses(data, 3, 0, lambda stage, done, total: None)
        for kind, count in wanted(options):
            if count:
                found[kind] = own = trials(kind, count, options, Path(text), data)
                print(f"{kind}: {own.same} of {count} resumed to identical bytes; {own}")
    every = sum(found.values(), Outcome())
    print(f"in all: {every.same} of {every.trials}, {every.lost} answers lost, {every.twice} asked twice")
    sys.exit(0 if all(outcome.good for outcome in found.values()) else 1)


if __name__ == "__main__":
    main()
