"""Every training has an end that is on file: finished, stopped, failed and why, or killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import apil
from apil.cli import main
from apil.errors import ApilError
from apil.runs.ending import Ending, ending
from apil.runs.train import resume_run, start_run
from apil.settings import RunSettings
from apil.tasks import from_gymnasium
from apil.teachers import TEACHERS, Team

CONFIG = RunSettings.of("grid", "detm", "bc", iterations=6, log_every=2, save_every=2, hidden=8, persona=2, batch=2)


def quiet(done: int) -> None:
    pass


def test_a_run_that_is_finished_says_so_until_it_is_trained_on(tmp_path: Path) -> None:
    start_run(CONFIG, tmp_path / "run", progress=quiet)
    assert ending(tmp_path / "run") == Ending("finished", 6)
    seen = []
    resume_run(tmp_path / "run", iterations=8, progress=lambda done: seen.append(ending(tmp_path / "run").state))
    assert set(seen) == {"in training"}
    assert ending(tmp_path / "run") == Ending("finished", 8)
    (tmp_path / "run" / "end.json").unlink()
    assert ending(tmp_path / "run") == Ending("finished", 8), "runs of older versions have no such file"


def test_a_run_that_is_stopped_says_so(tmp_path: Path) -> None:
    outcome = start_run(
        CONFIG.changed(iterations=1000),
        tmp_path / "run",
        progress=lambda done: os.kill(os.getpid(), signal.SIGINT) if done == 2 else None,
    )
    assert outcome.stopped
    assert ending(tmp_path / "run").state == "stopped"


def test_a_run_that_is_killed_differs_from_one_in_training(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    pid = os.fork()
    if not pid:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            start_run(CONFIG, folder, progress=lambda done: time.sleep(600 if done == 4 else 0))
        finally:
            os._exit(1)
    while not list(folder.glob("checkpoint-00000004.json")):
        time.sleep(0.01)
    assert ending(folder) == Ending("in training", 4)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert ending(folder) == Ending("killed", 4)


class Quits(gymnasium.Env[Any, Any]):
    """Ends the program in its 40th step."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        Quits.steps += 1
        if Quits.steps == 40:
            sys.exit(0)
        return np.zeros(1, np.float32), 0.0, False, False, {}


def test_an_environment_that_ends_the_program_fails_the_run_with_a_line(tmp_path: Path) -> None:
    Quits.steps = 0
    task = from_gymnasium(Quits, distance="steps", horizon=5)
    with pytest.raises(ApilError) as caught:
        apil.train(task, Team({"ann": lambda seen, rng: 0}), "bc", folder=tmp_path / "run", progress=False, batch=2)
    assert "\n" not in str(caught.value)
    end = ending(tmp_path / "run")
    assert end.state == "failed"
    assert end.reason == str(caught.value)
    task.close()


def test_a_teacher_that_ends_the_program_fails_the_run_with_a_line(tmp_path: Path) -> None:
    team = Team({"ann": lambda seen, rng: sys.exit(0)})
    with pytest.raises(ApilError, match=r"Teacher 'ann'.*raised SystemExit: 0"):
        apil.train("grid", team, "bc", folder=tmp_path / "run", progress=False, iterations=2)
    end = ending(tmp_path / "run")
    assert end.state == "failed"
    assert "SystemExit" in end.reason


@pytest.fixture
def _quitter() -> Iterator[None]:
    apil.register_teacher("quitter", lambda: sys.exit(0), "for these tests")
    yield
    TEACHERS.forget("quitter")


@pytest.mark.usefixtures("_quitter")
def test_only_apil_ends_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["train", "--teacher", "quitter", "--out", str(tmp_path / "run")])
    assert stopped.value.code == 2
    assert "called sys.exit(0)" in capsys.readouterr().err


def test_commands_say_how_a_run_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    start_run(CONFIG, folder, progress=quiet)
    noted = {"state": "failed", "iteration": 6, "reason": "the service is down"}
    (folder / "end.json").write_text(json.dumps(noted))
    main(["evaluate", str(folder), "--episodes", "2"])
    assert "failed after 6 saved iterations: the service is down" in capsys.readouterr().out
    main(["train", "--resume", str(folder), "--iterations", "8"])
    assert "failed after 6 saved iterations: the service is down" in capsys.readouterr().out
    assert ending(folder) == Ending("finished", 8)


def test_a_note_that_cannot_be_meant_is_passed_over(tmp_path: Path) -> None:
    start_run(CONFIG, tmp_path / "run", progress=quiet)
    for odd in ("[]", "{", '{"state": "gone", "iteration": 1, "reason": ""}'):
        (tmp_path / "run" / "end.json").write_text(odd)
        assert ending(tmp_path / "run") == Ending("finished", 6)


def test_an_interruption_before_a_run_began_does_not_advise_to_resume_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As by Ctrl-C while torch is imported."""

    def interrupted(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("apil.cli.train.run", interrupted)
    with pytest.raises(SystemExit) as stopped:
        main(["train", "--out", str(tmp_path / "run")])
    assert stopped.value.code == 130
    told = capsys.readouterr().err
    assert "--resume" not in told
    assert "nothing was written yet" in told
