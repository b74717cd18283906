"""A run whose data were named relative to some folder is resumed, replayed and loaded from any other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import apil
from apil.cli import main
from apil.errors import ApilError
from apil.files import read_rows
from apil.r2r.world import FILE
from apil.runs.folder import load_config
from apil.runs.train import resume_run

_TINY = ("--iterations", "2", "--save-every", "1", "--log-every", "1", "--batch", "4", "--width", "16", "--heads", "2")


@pytest.fixture
def project(houses_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data, and a run on them that was started there."""
    (tmp_path / "project" / "data").mkdir(parents=True)
    shutil.copy(houses_data, tmp_path / "project" / "data" / FILE)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    main(["train", "--task", "r2r", "--data", "data", "--query", "dagger", "--as-printed", *_TINY, "--out", "runs/one"])
    return tmp_path / "project"


def _opens_everywhere(run: Path) -> None:
    main(["train", "--resume", str(run), "--iterations", "3"])
    assert read_rows(run / "metrics.jsonl")[-1]["iteration"] == 3
    main(["replay", str(run)])
    main(["evaluate", str(run), "--episodes", "3"])
    apil.load(run)
    assert load_config(run).task.options["data"] == "data"


def test_from_another_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.parent / "elsewhere")
    _opens_everywhere(project / "runs" / "one")


def test_after_the_project_was_moved(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.parent / "elsewhere")
    project.rename(project.parent / "moved")
    run = project.parent / "moved" / "runs" / "one"
    _opens_everywhere(run)
    noted = json.loads((run / "environment.json").read_text())["places"]["data"]
    assert noted == {"absolute": str(project.parent / "moved" / "data"), "from_run": "../../data"}


def test_after_the_run_was_moved_beside_the_same_data(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or beside a copy of them, on another machine."""
    other = project.parent / "elsewhere"
    shutil.move(project / "runs" / "one", other / "one")
    shutil.move(project / "data", other / "data")
    monkeypatch.chdir(other)
    _opens_everywhere(other / "one")


def test_data_that_are_nowhere_are_named_with_the_places(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.parent / "elsewhere")
    shutil.rmtree(project / "data")
    for words in (["train", "--resume"], ["replay"], ["evaluate"]):
        with pytest.raises(SystemExit) as stop:
            main([*words, str(project / "runs" / "one")])
        assert stop.value.code == 2
    with pytest.raises(ApilError, match=rf"needs 'data' \(data\), which is at none of these places: {project}/data, "):
        resume_run(project / "runs" / "one", iterations=3, progress=lambda done: None)


def test_a_resume_where_it_was_started_changes_no_byte(project: Path) -> None:
    run = project / "runs" / "one"
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    main(["train", "--resume", "runs/one"])
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
