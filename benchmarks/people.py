"""Trainings taught by simulated people: kills, load, waiting, and what is learned.

    python benchmarks/people.py kills     # 200 SIGKILLs of server and trainer
    python benchmarks/people.py load      # 50 teachers at once
    python benchmarks/people.py waiting   # people who take 1 to 5 seconds
    python benchmarks/people.py maze      # two who differ, 300 answers
    python benchmarks/people.py pictures  # the screenshots of the guide; needs Chromium

All is of MAZE, through the interface that the page uses, with `apil teach` in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apil
from apil.people.simulated import Teacher, maze_teacher

ORDERS = (("up", "right", "down", "left"), ("left", "down", "right", "up"))
NAMES = tuple(f"t{number:02d}" for number in range(50))


def command(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """`apil teach` in a process of its own."""
    log = (folder.parent / f"{folder.name}.log").open("ab")
    with log:
        return subprocess.Popen([sys.executable, "-m", "apil", "teach", *words], stdout=log, stderr=log)


def new_run(folder: Path, teachers: Sequence[str], *words: str) -> subprocess.Popen[bytes]:
    return command(folder, "--teachers", *teachers, "--out", str(folder), *words)


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="apil-people-") as folder:
        yield Path(folder)


def read_links(folder: Path) -> dict[str, Any]:
    while not (folder / "links.json").exists():
        time.sleep(0.05)
    found: dict[str, Any] = json.loads((folder / "links.json").read_text())
    return found


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


# Kills


class Clumsy(Teacher):
    """Sends answers twice, loses its connection in the middle, and answers again with another key."""

    def respond(self, question: dict[str, Any]) -> None:
        if self.rng.random() < 0.1:
            with suppress(ConnectionError):  # sent, and gone before the server could say anything
                self.client.post("/api/answers", {"question": question["id"], "action": 99, "key": "nonsense"})
            self.client.drop()
        super().respond(question)
        if self.rng.random() < 0.2 and self.acknowledged:
            key, answered = self.acknowledged[-1]
            again = key if self.rng.random() < 0.5 else f"{key}-again"
            action = question["actions"][0]["action"]
            with suppress(ConnectionError):
                self.client.post("/api/answers", {"question": answered, "action": action, "key": again})
        if self.rng.random() < 0.1:
            self.client.drop()


def kills(count: int, seed: int) -> None:
    """Kills server or trainer at random moments, then compares what was acknowledged with what is in the store."""
    rng = random.Random(seed)
    small = [
        "--hidden",
        "16",
        "--models",
        "2",
        "--updates",
        "2",
        "--batch",
        "2",
        "--log-every",
        "5",
        "--save-every",
        "5",
    ]
    names = NAMES[:4]
    with scratch() as base:
        folder = base / "run"
        process = new_run(folder, names, "--answer-budget", "1000000", *small)
        links = read_links(folder)["teachers"]
        slow = random.Random(seed + 1)
        people = [
            Clumsy(links[name], maze_teacher(ORDERS[k % 2]), pause=lambda: slow.expovariate(10.0), seed=k).start()
            for k, name in enumerate(names)
        ]
        killed: Counter[str] = Counter()
        while sum(killed.values()) < count:
            time.sleep(rng.uniform(0.0, 1.5))
            killed[_kill_one(folder, process, rng)] += 1
            if process.poll() is not None:
                process = command(folder, "--resume", str(folder))
                _until_asked(people, process)
        _until_asked(people, process)
        process.terminate()
        process.wait()
        for one in people:
            one.stop()
        print(f"{killed['server']} kills of the server, {killed['trainer']} of the trainer")
        check(folder, people)


def _kill_one(folder: Path, process: subprocess.Popen[bytes], rng: random.Random) -> str:
    """Kills the server or the trainer; which one it was."""
    if rng.random() < 0.5:
        with suppress(OSError, ValueError, KeyError):
            os.kill(json.loads((folder / "people.json").read_text())["pid"], signal.SIGKILL)
            return "server"
    process.kill()
    process.wait()
    return "trainer"


def _until_asked(people: Sequence[Teacher], process: subprocess.Popen[bytes], seconds: float = 120.0) -> None:
    """Waits until answers are taken again by a trainer that was just started."""
    before, until = sum(len(one.acknowledged) for one in people), time.monotonic() + seconds
    while sum(len(one.acknowledged) for one in people) < before + 8:
        assert process.poll() is None, f"the trainer ended with {process.returncode}"
        assert time.monotonic() < until, "training does not go on"
        time.sleep(0.05)


def check(folder: Path, people: Sequence[Teacher]) -> None:
    """Prints what was lost, kept twice or asked twice; all must be 0."""
    with sqlite3.connect(folder / "people.sqlite") as db:
        rows = db.execute(
            "SELECT a.key, q.walk, q.step, a.teacher, a.counted, a.flag "
            "FROM answers a JOIN questions q ON q.id = a.question"
        ).fetchall()
    counted = Counter(row[1:4] for row in rows if row[4])
    found = apil.answers(folder)
    stored = Counter(zip(found.iteration.tolist(), found.step.tolist(), found.teacher.tolist(), strict=True))
    keys = Counter(row[0] for row in rows if row[4])
    acknowledged = [key for one in people for key, _ in one.acknowledged]
    said = {
        "acknowledged answers": len(acknowledged),
        "of them not on disk, or not once": sum(keys[key] != 1 for key in acknowledged),
        "answers that count": sum(counted.values()),
        "of them not in the store, or not once": sum(stored[place] != times for place, times in counted.items()),
        "in the store and never given": sum((stored - counted).values()),
        "questions shown twice to a teacher": sum(times - 1 for one in people for times in Counter(one.shown).values()),
        "kept with a flag": dict(Counter(row[5] for row in rows if row[5])),
        "requests refused": dict(Counter(status for one in people for status, _ in one.refused)),
    }
    for what, figure in said.items():
        print(f"{what}: {figure}")
    checkpoints = sorted(folder.glob("checkpoint-*.json"))
    print(f"iterations in the last checkpoint: {json.loads(checkpoints[-1].read_text())['iteration']}")


# Load


def load(teachers: int, seconds: float) -> None:
    """Fifty people against one trainer: how long a POST takes, and how many answers a second there are."""
    for think in (1.0, 0.0):
        with scratch() as base:
            folder = base / "run"
            asking = ("--query", "always", "--walks", str(2 * teachers), "--answer-budget", "1000000")
            process = new_run(folder, NAMES[:teachers], *asking)
            people = _crowd(read_links(folder)["teachers"], think)
            time.sleep(5.0)  # until all are there
            for one in people:
                one.seconds.clear()
            time.sleep(seconds)
            taken = [own for one in people for own in list(one.seconds)]
            refused = [status for one in people for status, _ in one.refused]
            for one in people:
                one.ended.set()
            process.kill()
            process.wait()
            _end_server(folder)
            print(f"{teachers} teachers who think {think:g} s: {len(taken) / seconds:.0f} answers a second,")
            print(f"  POST p50 {1e3 * quantile(taken, 0.5):.1f} ms, p99 {1e3 * quantile(taken, 0.99):.1f} ms,", end=" ")
            print(f"worst {1e3 * max(taken):.1f} ms, {len(refused)} refused")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, which the teachers are simulated on too")


def _crowd(links: dict[str, str], think: float) -> list[Teacher]:
    rng = random.Random(0)

    def pause() -> float:
        return rng.expovariate(1 / think) if think else 0.0

    # Looking for questions more often would be a load of its own: a page hears when there is one.
    return [
        Teacher(link, maze_teacher(ORDERS[k % 2]), pause=pause, poll=0.5).start()
        for k, link in enumerate(links.values())
    ]


def _end_server(folder: Path) -> None:
    with suppress(OSError, ValueError, KeyError):
        os.kill(json.loads((folder / "people.json").read_text())["pid"], signal.SIGTERM)


# Waiting


def waiting(answers: int, walks: int, scale: float) -> None:
    """Wall time to so many answers of two people who think 1 to 5 seconds, against the time that they thought."""
    rng = random.Random(0)
    thought = [0.0, 0.0]

    def pause(k: int) -> Callable[[], float]:
        def think() -> float:
            seconds = scale * min(max(rng.lognormvariate(0.8, 0.4), 1.0), 5.0)
            thought[k] += seconds
            return seconds

        return think

    with scratch() as base:
        folder = base / "run"
        process = new_run(folder, NAMES[:2], "--answer-budget", str(answers), "--walks", str(walks))
        links = list(read_links(folder)["teachers"].values())
        people = [Teacher(links[k], maze_teacher(ORDERS[k]), pause=pause(k)).start() for k in range(2)]
        while not any(one.shown for one in people):
            time.sleep(0.01)
        began = time.monotonic()
        while sum(len(one.acknowledged) for one in people) < answers:
            time.sleep(0.01)
        took = time.monotonic() - began
        process.kill()
        process.wait()
        _end_server(folder)
        for one in people:
            one.ended.set()
    own = sum(thought) / 2
    print(f"{answers} answers, {walks} walks in flight: {took:.1f} s")
    print(f"the teachers thought {own:.1f} s each: {took / own:.2f} times that")


# What is learned


def maze(seeds: int) -> None:
    """Success alone of agents that two people who differ have taught with 300 answers."""
    found = []
    for seed in range(seeds):
        with scratch() as base:
            folder = base / "run"
            process = new_run(folder, NAMES[:2], "--answer-budget", "300", "--seed", str(seed))
            links = list(read_links(folder)["teachers"].values())
            people = [Teacher(links[k], maze_teacher(ORDERS[k])).start() for k in range(2)]
            assert process.wait() == 0
            for one in people:
                one.stop()
            words = [sys.executable, "-m", "apil", "evaluate", str(folder), "--episodes", "1000"]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            success = json.loads((folder / "evaluation.json").read_text())["success_alone"]
            found.append(success)
            print(f"seed {seed}: {len(apil.answers(folder))} answers, success alone {success:.3f}", flush=True)
    print(f"mean {statistics.mean(found):.3f}, least {min(found):.3f}")


# Pictures


def pictures(out: Path) -> None:
    """The pages at 1280 and 360 pixels, after some teaching."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    out.mkdir(parents=True, exist_ok=True)
    with scratch() as base, sync_playwright() as playwright:
        folder = base / "run"
        process = new_run(folder, ("ann", "bob"), "--answer-budget", "300", "--overlap", "2", "--lease", "5")
        links = read_links(folder)
        people = [
            Teacher(link, maze_teacher(ORDERS[k]), pause=lambda: 0.02)
            for k, link in enumerate(links["teachers"].values())
        ]
        for one in people:
            one.start()
        while sum(len(one.acknowledged) for one in people) < 150:
            time.sleep(0.1)
        people[0].stop()
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, width, height in (("", 1280, 720), ("-phone", 360, 740)):
            context = browser.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce")
            for page_name, link in (("teach", links["teachers"]["ann"]), ("owner", links["owner"])):
                page = context.new_page()
                page.goto(link)
                page.wait_for_selector("#desk:not([hidden]), #teachers td")
                page.wait_for_timeout(1500)
                page.screenshot(path=out / f"{page_name}{name}.png", full_page=True)
        browser.close()
        people[1].stop()
        process.kill()
        process.wait()
        _end_server(folder)
    print(f"Wrote {out}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("kills", "load", "waiting", "maze", "pictures"))
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--teachers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--answers", type=int, default=300)
    parser.add_argument("--walks", type=int, default=10)
    parser.add_argument("--scale", type=float, default=1.0, help="of the time that people think")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "guide" / "pictures")
    typed = parser.parse_args()
    runs: dict[str, Callable[[], None]] = {
        "kills": lambda: kills(typed.kills, typed.seed),
        "load": lambda: load(typed.teachers, typed.seconds),
        "waiting": lambda: waiting(typed.answers, typed.walks, typed.scale),
        "maze": lambda: maze(typed.seeds),
        "pictures": lambda: pictures(typed.out),
    }
    runs[typed.what]()


if __name__ == "__main__":
    main()
