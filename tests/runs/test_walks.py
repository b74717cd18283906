"""A run with walks in flight: teachers that take their time, exact budgets, and kills at any moment."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import apil
from apil.errors import ApilError
from apil.runs.store_file import read_store

SCRIPT = '''
import os, sys, threading, time
from dataclasses import dataclass
import numpy as np, torch
import apil
from apil.types import Answer

folder, given, budget = sys.argv[1], sys.argv[2], int(sys.argv[3])
log = os.open(given, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

@dataclass(frozen=True)
class Slow:
    """Answers after a delay that depends on the question, and notes that it has."""
    members: tuple = ("slow",)
    def begin(self, draws, episodes, horizon):
        return Session(draws.iteration)

@dataclass(frozen=True)
class Session:
    walk: int
    def answer(self, observation, reference, asked, t):
        time.sleep(np.random.default_rng([self.walk, t]).uniform(0.0, 0.02))
        os.write(log, f"{self.walk} {t}\\n".encode())
        return Answer(reference.actions[..., 0], reference.distance, torch.zeros_like(reference.count))

settings = dict(walks=6, answer_budget=budget, threshold=0.3, updates=2, save_every=3, batch=2, hidden=8, models=2)
apil.train("maze", Slow(), "random", folder=folder, progress=False, **settings)
'''


def _rows(folder: Path) -> list[tuple[int, int]]:
    _, rows = read_store(folder)
    return list(zip(rows["iteration"].tolist(), rows["step"].tolist(), strict=True))


def _train(tmp_path: Path, budget: int) -> list[str]:
    return [sys.executable, "-c", SCRIPT, str(tmp_path / "run"), str(tmp_path / "given"), str(budget)]


def _given(tmp_path: Path) -> list[tuple[int, int]]:
    pairs = [line.split() for line in (tmp_path / "given").read_text().splitlines()]
    return [(int(walk), int(t)) for walk, t in pairs]


def test_every_answer_of_a_slow_teacher_is_stored_once(tmp_path: Path) -> None:
    subprocess.run(_train(tmp_path, 50), check=True, capture_output=True)
    rows = _rows(tmp_path / "run")
    assert len(rows) == 50, "the budget is spent exactly"
    assert max(Counter(rows).values()) == 1
    assert sorted(rows) == sorted(_given(tmp_path))
    log = [json.loads(line) for line in (tmp_path / "run" / "answers.jsonl").read_text().splitlines()]
    assert sorted((row["iteration"], row["step"]) for row in log) == sorted(rows)
    assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])["answers"] == 50


def test_a_kill_at_any_moment_loses_no_answer_and_asks_none_twice(tmp_path: Path) -> None:
    """A call that returns in the very moment of a kill is the one answer that may not be on file."""
    kills, moments = 0, random.Random(0)
    while True:
        process = subprocess.Popen(_train(tmp_path, 300), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        before = len(_rows(tmp_path / "run")) if (tmp_path / "run" / "answers.store").exists() else 0
        while process.poll() is None and kills < 4:
            if (tmp_path / "run" / "answers.store").exists() and len(_rows(tmp_path / "run")) > before + 5:
                time.sleep(moments.uniform(0.0, 0.1))
                process.kill()
                kills += 1
                break
            time.sleep(0.01)
        _, errors = process.communicate()
        if process.returncode == 0:
            break
        assert process.returncode == -9, errors
    assert kills
    rows, given = _rows(tmp_path / "run"), _given(tmp_path)
    assert len(rows) == 300
    assert max(Counter(rows).values()) == 1
    assert max(Counter(given).values()) == 1, "no question was asked twice"
    assert len(set(given) - set(rows)) <= kills
    assert set(rows) <= set(given)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"replay": 0}, "replay 0"), ({"asking": "review"}, "asking review"), ({"walks": -1}, "walks is -1")],
)
def test_what_does_not_go_with_walks_in_flight_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ApilError, match=message):
        apil.train("grid", "detm", "bc", progress=False, iterations=1, **{"walks": 4, **settings})
