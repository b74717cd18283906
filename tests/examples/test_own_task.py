"""The worked example of a plug-in: a task from outside with options, a model, an evaluation and a report of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from example_parts import EXAMPLES, imported

import apil
from apil.cli import main
from apil.errors import ApilError
from apil.learning.trainer import Trainer
from apil.runs.resolve import resolve
from apil.settings import RunSettings

_FILE = EXAMPLES / "own_task.py"


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    with imported("own_task") as module:
        yield module


def _apil(folder: Path, *words: str, plugins: Path | None = _FILE) -> subprocess.CompletedProcess[str]:
    """A process of its own, as from a shell."""
    environment = {**os.environ, "COLUMNS": "120", "APIL_PLUGINS": "" if plugins is None else str(plugins)}
    command = [sys.executable, "-m", "apil", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_it_is_trained_evaluated_and_studied_from_a_shell(tmp_path: Path) -> None:
    trained = _apil(tmp_path, "train", "--task", "t-maze", "--length", "4", "--iterations", "3", "--out", "run")
    assert (trained.returncode, trained.stderr) == (0, "")
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved["task"] == {"name": "t-maze", "options": {"length": 4, "sign": "start"}}
    assert saved["model"]["hidden"] == 64  # goes with the task, as its learning rate does
    assert saved["iterations"] == 3  # but what is typed goes first

    measured = _apil(tmp_path, "evaluate", "run", "--episodes", "40", "--sample")
    assert (measured.returncode, measured.stderr) == (0, "")
    assert "T-maze, alone" in measured.stdout
    result = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert set(result) == {"episodes", "success_alone", "success_up", "success_down"}
    assert result["episodes"] == 40

    small = ("--seeds", "1", "--iterations", "2", "--episodes", "4", "--teachers", "detm", "--workers", "1")
    studied = _apil(tmp_path, "study", "t-maze", *small, "--out", "study")
    assert studied.returncode == 0, studied.stderr
    table = (tmp_path / "study" / "table_memory.md").read_text()
    assert [line.split(" ")[1] for line in table.splitlines() if line.startswith("| ")][2:] == ["DAgger", "APIL"]
    assert "What is remembered of the sign" in (tmp_path / "study" / "report.html").read_text()


def test_a_package_brings_it_by_an_entry_point(tmp_path: Path) -> None:
    shutil.copy(_FILE, tmp_path / "own_task.py")
    information = tmp_path / "t_maze-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: t-maze\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[apil.plugins]\nt-maze = own_task\n")
    helped = _apil(tmp_path, "train", "--task", "t-maze", "--help", plugins=None)
    assert helped.returncode == 0, helped.stderr
    assert "--sign {start,always}" in helped.stdout
    (tmp_path / "own_task.py").write_text("1 / 0\n")
    broken = _apil(tmp_path, "list", plugins=None)
    assert (broken.returncode, broken.stderr.count("\n")) == (2, 1)
    assert "The entry point t-maze of apil.plugins names 'own_task', which cannot be imported" in broken.stderr


def test_its_options_are_shown_and_belong_to_it_alone(
    example: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["train", "--task", "t-maze", "--help"])
    shown = capsys.readouterr().out
    assert "--sign {start,always}" in shown
    assert "Cells of the corridor. (default: 6)" in " ".join(shown.split())
    with pytest.raises(SystemExit) as stopped:
        main(["train", "--task", "maze", "--sign", "always"])
    assert stopped.value.code == 2
    assert "--sign is an option of the task t-maze, not of this one: leave it out." in capsys.readouterr().err
    with pytest.raises(ApilError, match="sign is no setting of the task 'maze'"):
        apil.train("maze", "detm", "bc", options={"sign": "always"})
    with pytest.raises(ApilError, match="length is 2: give a whole number from 3 to 50"):
        apil.train("t-maze", "detm", "bc", options={"length": 2})
    assert not any(tmp_path.iterdir())


def test_its_parts_are_sound(example: ModuleType) -> None:
    apil.check_task(example.TMaze(6, "start"))
    apil.check_task(example.TMaze(3, "always"))


def test_a_run_gives_the_same_rows_alone_as_in_a_stack(example: ModuleType) -> None:
    runs = [_settings(query, seed) for query in ("apil", "dagger") for seed in (0, 1)]
    stack = Trainer(runs)
    stack.train()
    for place, run in enumerate(runs):
        alone = Trainer([run])
        alone.train()
        assert alone.rows[0] == stack.rows[place]


def _settings(query: str, seed: int) -> RunSettings:
    given = {"seed": seed, "iterations": 20, "batch": 4, "length": 4}
    return resolve("t-maze", "twodifdetm", query, given, {}).settings


def test_the_agent_remembers_the_sign(example: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    apil.train("t-maze", "detm", "dagger", iterations=150, options={"length": 4}, folder=folder, progress=False)
    found = example.TMazeEvaluation().measure(folder, {"episodes": 100}, lambda done, total: None).result
    # Without a memory it is a coin at the junction, or one side always.
    assert min(found["success_up"], found["success_down"]) > 0.8
