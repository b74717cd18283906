"""Environments in processes of their own: what becomes of the processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from toy_environments import Corridor

from apil.errors import ApilError
from apil.files import locked
from apil.rng import Streams
from apil.tasks import from_gymnasium

SCRIPT = """
import os, sys, time
import apil
from apil.tasks import from_gymnasium
from apil.teachers import Member, Team
from toy_environments import Corridor

class Told(Corridor):
    def reset(self, **given):
        print("worker", os.getpid(), flush=True)
        return super().reset(**given)
    def step(self, action):
        while {hangs} and self.steps == 1:
            pass
        return super().step(action)
    def close(self):
        print("closed", flush=True)

task = from_gymnasium(Told, distance="success", horizon=4, vectorise="async")
apil.train(task, Team([Member("walker", lambda observation, rng: 2)]), "dagger", iterations=2, batch=2,
           progress=False, folder=sys.argv[1])
"""


def _start(folder: Path, hangs: bool) -> subprocess.Popen[str]:
    own = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(hangs=hangs), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": own},
    )


def test_a_healthy_training_closes_its_environments_and_says_nothing(tmp_path: Path) -> None:
    out, err = (process := _start(tmp_path / "run", hangs=False)).communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    # One told its spaces, one told them to the vector environment, and two were trained in.
    assert out.count("closed") == 4


def test_workers_end_with_a_parent_that_is_killed_also_those_that_hang(tmp_path: Path) -> None:
    process = _start(tmp_path / "run", hangs=True)
    assert process.stdout is not None
    workers: set[int] = set()
    while len(workers) < 2:
        word, *number = process.stdout.readline().split()
        if word == "worker" and int(number[0]) != process.pid:
            workers.add(int(number[0]))
    process.kill()
    process.wait()
    process.communicate()  # its pipes are open as long as a worker is there
    while any(map(_runs, workers)):
        time.sleep(0.01)
    with locked(tmp_path / "run"):
        pass


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_worker_that_is_killed_is_one_line_and_the_task_can_be_used_again() -> None:
    killed = from_gymnasium(Corridor, distance="success", horizon=4, vectorise="async")
    state = killed.reset(Streams([0]).draws("task", 0), 2)
    worker = multiprocessing.active_children()[0]
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(ApilError, match=r"A process of an environment was killed \(SIGKILL\): .* resume the run"):
        killed.step(state, torch.ones(1, 2, dtype=torch.long))
    killed.close()
    assert killed.reset(Streams([0]).draws("task", 0), 2).distance.tolist() == [[1, 1]]
    killed.close()
