"""A training that is killed or stopped goes on as if nothing had been."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from apil.runs.train import resume_run, start_run
from apil.settings import RunSettings

CONFIG = RunSettings.of("grid", "tworand", "apil", iterations=40, log_every=7, save_every=3, hidden=16, persona=4)
SAME = ("config.json", "metrics.jsonl", "answers.jsonl", "checkpoint-00000040.safetensors", "checkpoint-00000040.json")


def quiet(done: int) -> None:
    pass


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    folder = tmp_path_factory.mktemp("kill") / "run"
    started = time.perf_counter()
    start_run(CONFIG, folder, progress=quiet)
    return folder, time.perf_counter() - started


def killed_after(seconds: float, folder: Path) -> None:
    """Trains in a forked process and kills it, wherever it is."""
    pid = os.fork()
    if not pid:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            if (folder / "config.json").exists():
                resume_run(folder, iterations=None, progress=quiet)
            else:
                start_run(CONFIG, folder, progress=quiet)
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_kills_at_random_moments_change_nothing(whole: tuple[Path, float], tmp_path: Path) -> None:
    """Moments differ from run to run on purpose: the claim is for any moment, also during a save."""
    reference, seconds = whole
    for trial in range(8):
        folder = tmp_path / str(trial)
        for _ in range(2):
            killed_after(random.uniform(0.0, 1.2 * seconds), folder)
        if (folder / "config.json").exists():
            resume_run(folder, iterations=None, progress=quiet)
        else:
            start_run(CONFIG, folder, progress=quiet)
        for name in SAME:
            assert (folder / name).read_bytes() == (reference / name).read_bytes(), name
        assert len(list(folder.glob("checkpoint-*.safetensors"))) == 2


def test_a_run_killed_before_it_began_can_be_started_or_resumed(whole: tuple[Path, float], tmp_path: Path) -> None:
    """The config is written first: with it the run can be resumed, without it there is nothing in the way."""
    for name, begin in ((".config.json.1.new", start_run), ("config.json", resume_run)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / ".lock").touch()
        (folder / name).write_bytes((whole[0] / "config.json").read_bytes())
        if begin is start_run:
            start_run(CONFIG, folder, progress=quiet)
        else:
            resume_run(folder, iterations=None, progress=quiet)
        assert all((folder / same).read_bytes() == (whole[0] / same).read_bytes() for same in SAME)
        assert not list(folder.glob(".*.new"))


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "apil.cli", "train", "--iterations", "100000", "--out", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (folder / "metrics.jsonl").exists() or not (folder / "metrics.jsonl").read_bytes():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"apil train --resume {folder}" in out.replace("\n", "")
    assert "Traceback" not in err
    assert list(folder.glob("checkpoint-*.json"))


ENDLESS = """
import sys, time
import apil.runs.train
from apil.cli import main

start = apil.runs.train.start_run

def endless(config, folder, *, progress, **parts):
    return start(config, folder, progress=lambda done: time.sleep(600 if done >= 20 else 0), **parts)

apil.runs.train.start_run = endless
sys.argv = ["apil", *sys.argv[1:]]
main()
"""


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    """In the middle of an iteration that takes ten minutes: the first is heard but must wait, the second need not."""
    folder = tmp_path / "run"
    command = [sys.executable, "-c", ENDLESS, "train", "--query", "bc", "--iterations", "50", "--out", str(folder)]
    command += ["--batch", "1", "--log-every", "20"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    while not (folder / "metrics.jsonl").exists() or not (folder / "metrics.jsonl").read_bytes():
        assert process.poll() is None
        time.sleep(0.05)
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    told = b""
    while b"once more to stop at once" not in told:
        told += process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=120)
    assert process.returncode == 130
    assert b"Traceback" not in rest
    assert f"stopped at once; resume with: apil train --resume {folder}".encode() in rest
    assert not list(folder.glob("checkpoint-*")), "it did not wait for the iteration to end"
    answers = (folder / "answers.jsonl").read_bytes().splitlines()
    assert len(answers) == 20 * 8, "but what was answered is written"
    resume_run(folder, iterations=None, progress=quiet)
    assert list(folder.glob("checkpoint-00000050.json"))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes under /proc")
def test_workers_end_with_the_study_that_started_them(tmp_path: Path) -> None:
    """Another study may go on with the same folders at once: nobody else must be writing there."""
    words = [
        "study",
        "grid",
        "--iterations",
        "100000",
        "--seeds",
        "1",
        "--teachers",
        "detm",
        "twodifdetm",
        "--queries",
        "apil",
        "--workers",
        "2",
        "--out",
    ]
    command = [sys.executable, "-m", "apil.cli", *words, str(tmp_path / "study")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(list(tmp_path.glob("study/runs/*/metrics.jsonl"))) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    # Where workers are forked, the one from which they are is a child of the study.
    servers = [pid for pid in _children(process.pid) if b"forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    workers = [pid for server in servers for pid in _children(server)]
    workers += [pid for pid in _children(process.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(workers) == 2
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while any(_alive(pid) for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name of the program: its state, its parent, and so on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if _stat(int(path.name))[1] == str(parent):
                found.append(int(path.name))
    return found


def _alive(pid: int) -> bool:
    """Whether it runs; who has ended but was not waited for counts as gone."""
    with suppress(OSError):
        return _stat(pid)[0] != "Z"
    return False
