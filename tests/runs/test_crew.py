"""One run trained by several processes of torchrun: the same as by one, up to the last digits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import apil
from apil.crew import Crew
from apil.learning.build import build
from apil.learning.collect import collect
from apil.rng import Share, Streams, Undropped
from apil.runs.resolve import resolve
from apil.runs.train import resume_run, start_run
from apil.settings import RunSettings
from apil.types import Lessons

_TOLERANCE = 1e-5
"""Of losses in nats; docs/guide/cluster.md."""


def _started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Two processes that train, in a group of their own as a terminal makes it."""
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    settings = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    return subprocess.Popen(
        [sys.executable, "-m", *torchrun, "apil", "train", *arguments],
        env={**os.environ, **settings},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _together(folder: Path, *arguments: str) -> str:
    """Trains by two processes; returns what they print."""
    started = _started(folder, *arguments)
    out, err = started.communicate(timeout=300)
    assert started.returncode == 0, err
    return out


def _rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def _assert_close(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert [row["answers"] for row in found] == [row["answers"] for row in expected]
    for name in ("policy_loss", "identity_loss", "query_loss"):
        ours, theirs = ([row[name] for row in rows] for rows in (found, expected))
        assert ours == pytest.approx(theirs, abs=_TOLERANCE), name


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no torch.distributed here")
def test_two_processes_train_the_run_of_one_and_either_resumes_the_other(houses_data: Path, tmp_path: Path) -> None:
    # Wide enough that Muon turns matrices.
    given: dict[str, Any] = {"width": 64, "heads": 2, "hidden": 16, "persona": 8, "batch": 9, "replay": 9, "updates": 2}
    given |= {"data": str(houses_data), "log_every": 1, "iterations": 4, "validation": 0.2}
    settings = resolve("r2r", "twodifdetm", "apil", given, {}).settings
    start_run(settings.changed(iterations=10), tmp_path / "one", progress=lambda done: None)
    typed = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    told = _together(tmp_path, "--task", "r2r", *typed, "--out", "two")
    assert told.count("next: apil evaluate") == 1, "one of them speaks"
    _assert_close(_rows(tmp_path / "two"), _rows(tmp_path / "one")[:4])
    resume_run(tmp_path / "two", iterations=7, progress=lambda done: None)
    _together(tmp_path, "--resume", "two", "--iterations", "10")
    _assert_close(_rows(tmp_path / "two"), _rows(tmp_path / "one"))
    held_out = [[row["validation_loss"] for row in _rows(tmp_path / name)[2:]] for name in ("two", "one")]
    assert held_out[0] == pytest.approx(held_out[1], abs=_TOLERANCE)
    ours, theirs = (apil.answers(tmp_path / name) for name in ("two", "one"))
    assert np.array_equal(ours.action, theirs.action)
    rows = [(tmp_path / name / "answers.jsonl").read_text().count("\n") for name in ("two", "one")]
    assert rows[0] == rows[1] == _rows(tmp_path / "one")[-1]["answers"]


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no torch.distributed here")
def test_a_query_policy_that_looks_at_recent_episodes_again_learns_as_in_one_process(tmp_path: Path) -> None:
    given: dict[str, Any] = {"hidden": 16, "persona": 8, "batch": 3, "window": 10, "log_every": 1, "iterations": 8}
    settings = resolve("maze", "twodifdetm", "errpred", {**given, "budget": 0.5}, {}).settings
    start_run(settings, tmp_path / "one", progress=lambda done: None)
    typed = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    typed += ["--teacher", "twodifdetm", "--query", "errpred", "--budget", "0.5"]
    _together(tmp_path, "--task", "maze", *typed, "--out", "two")
    _assert_close(_rows(tmp_path / "two"), _rows(tmp_path / "one"))


_GRID = ("--task", "grid", "--teacher", "detm", "--query", "bc", "--as-printed")


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no torch.distributed here")
@pytest.mark.skipif(sys.platform == "win32", reason="needs the signals of POSIX")
def test_an_interrupt_stops_all_processes_after_a_checkpoint_and_one_goes_on(tmp_path: Path) -> None:
    run, typed = tmp_path / "run", (*_GRID, "--batch", "4", "--save-every", "100000", "--log-every", "1")
    started = _started(tmp_path, *typed, "--iterations", "1000", "--out", "run")
    while not (run / "metrics.jsonl").exists() or not (run / "metrics.jsonl").stat().st_size:
        assert started.poll() is None, started.communicate()[1]
        time.sleep(0.02)
    os.killpg(started.pid, signal.SIGINT)  # as Ctrl-C in a terminal does: to torchrun and to those that it started
    out, err = started.communicate(timeout=300)
    assert err.count("Stopping after this iteration") == 1, "one of them speaks"
    assert "nothing is lost" in out
    done = len(_rows(run))
    assert 0 < done < 1000
    assert (run / f"checkpoint-{done:08d}.json").exists(), "none was due: the stop made it"
    resume_run(run, iterations=None, progress=lambda done: None)
    rows = _rows(run)
    assert [row["iteration"] for row in rows] == list(range(1, 1001))
    assert (run / "answers.jsonl").read_text().count("\n") == rows[-1]["answers"]


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no torch.distributed here")
def test_a_batch_that_is_too_small_to_share_is_refused_in_one_line(tmp_path: Path) -> None:
    started = _started(tmp_path, *_GRID, "--batch", "1", "--out", "run")
    err = started.communicate(timeout=300)[1]
    assert started.returncode != 0
    said = [line for line in err.splitlines() if line.startswith("apil: ")]
    assert "batches of 1: each of 2 processes needs a share; raise --batch" in "".join(said)
    assert "rank1" not in err, "the process that waited shows no traceback"
    assert not (tmp_path / "run").exists()


def _lessons(settings: RunSettings, batch: int) -> tuple[Any, Lessons]:
    agents = build([settings])
    return agents.model, collect(agents, 0, batch)


@pytest.mark.parametrize("task", ["maze", "r2r"])
def test_the_losses_of_the_parts_of_a_batch_add_up_to_its_losses(task: str, houses_data: Path) -> None:
    more: dict[str, Any] = {"data": str(houses_data), "width": 16, "branch_dropout": 0.1} if task == "r2r" else {}
    given = {"hidden": 16, "persona": 8, "encode": 8, "standardise": True} if task == "maze" else {"hidden": 16}
    settings = resolve(task, "twodifdetm", "dagger", {**given, **more}, {}).settings
    model, lessons = _lessons(settings, 7)
    draws = Streams([settings.seed])
    whole = model.losses(lessons, draws.draws("dropout", 3))
    parts = [model.losses(lessons, draws.draws("dropout", 3), slice(*ends)) for ends in ((0, 2), (2, 3), (3, 7))]
    for expected, found in zip(whole, zip(*parts, strict=True), strict=True):
        assert float(sum(found).detach()) == pytest.approx(float(expected.detach()), rel=1e-4)
    assert torch.isfinite(model.losses(lessons, Undropped(1), slice(0, 2))[0]).all()


def test_the_draws_of_a_share_are_those_of_the_whole_batch() -> None:
    streams = Streams([3, 4])
    share = Share(3, 2, 7)
    for draw in (
        lambda draws, n: draws.uniform(5, n, 2),
        lambda draws, n: draws.exponential(n),
        lambda draws, n: draws.normal(4, n),
        lambda draws, n: torch.from_numpy(draws.words(5, n).view(np.int64)).transpose(1, 2),
    ):
        ours, theirs = streams.draws("a", 1), streams.draws("a", 1)
        found, whole = draw(ours, share), draw(theirs, 7)
        axis = list(whole.shape).index(7)
        assert torch.equal(found, whole.narrow(axis, 2, 3))
        assert torch.equal(ours.uniform(3), theirs.uniform(3)), "what follows is the same"
    for first, count in ((0, 1), (1, 2), (3, 4), (0, 7)):
        ours, theirs = streams.draws("b", 1), streams.draws("b", 1)
        assert torch.equal(ours.kept(0.3, Share(count, first, 7), 5), theirs.kept(0.3, 7, 5)[:, first : first + count])
        assert torch.equal(ours.uniform(3), theirs.uniform(3))


def test_shares_make_up_the_whole() -> None:
    parts = [Crew(rank, 3).part(10) for rank in range(3)]
    assert [place for part in parts if part is not None for place in range(10)[part]] == list(range(10))
    assert Crew().part(10) is None
