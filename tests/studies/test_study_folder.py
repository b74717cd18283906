"""A study writes into folders of its own, one process at a time, and touches nothing else in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import apil
from apil.errors import ApilError
from apil.files import locked
from apil.runs.train import resume_run
from apil.settings import RunSettings
from apil.studies.engines import run_cells
from apil.studies.folder import claimed
from apil.studies.plan import Cell, plan
from apil.studies.stack import standing

_BASE = RunSettings.of("grid", "detm", "never", iterations=3, log_every=1, hidden=8, answers=True)


@pytest.fixture
def cells() -> list[Cell]:
    return plan(_BASE, ("detm",), ("bc", "dagger"), 1, {})


@pytest.fixture
def runs(tmp_path: Path, cells: list[Cell]) -> Path:
    """A study of two runs, finished."""
    (tmp_path / "study" / "runs").mkdir(parents=True)
    run_cells(cells, tmp_path / "study" / "runs", 5, 1, lambda units: None)
    return tmp_path / "study" / "runs"


def _docs(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "thesis.tex").write_text("dear to me")
    (tmp_path / "docs" / "config.json").write_text("dear to me")
    return tmp_path / "docs"


def _unhurt(docs: Path) -> bool:
    return {path.name: path.read_text() for path in docs.iterdir()} == {
        "thesis.tex": "dear to me",
        "config.json": "dear to me",
    }


def test_a_run_that_is_a_link_out_of_the_study_is_refused(tmp_path: Path, cells: list[Cell]) -> None:
    docs, runs = _docs(tmp_path), tmp_path / "study" / "runs"
    runs.mkdir(parents=True)
    (runs / cells[1].folder).symlink_to(Path("../../docs"))
    with pytest.raises(ApilError, match="is a symbolic link"):
        run_cells(cells, runs, 5, 1, lambda units: None)
    assert _unhurt(docs)
    assert [path.name for path in runs.iterdir()] == [cells[1].folder], "nothing was trained before it was noticed"


@pytest.mark.parametrize("link", ["runs", "grid"])
def test_a_folder_of_a_study_that_is_a_link_is_refused(tmp_path: Path, link: str) -> None:
    docs, out = _docs(tmp_path), tmp_path / "study"
    file = tmp_path / "small.toml"
    file.write_text('tasks = ["grid"]\nteachers = ["detm"]\nrules = ["never"]\nseeds = 1\nepisodes = 5\n')
    with claimed(out, "small", "apil study"):
        pass
    place = out / "grid" if link == "grid" else out / "grid" / "runs"
    if link == "runs":
        with claimed(out / "grid", "grid", "apil study"):
            pass
    place.symlink_to(docs)
    with pytest.raises(ApilError, match=f"{link} is a symbolic link"):
        apil.study(file, out=out, progress=False, workers=1)
    assert _unhurt(docs)


def test_a_run_of_a_study_at_work_is_locked(tmp_path: Path, cells: list[Cell]) -> None:
    """Training it on from elsewhere would pull its files from under the study."""
    runs = tmp_path / "runs"
    runs.mkdir()
    refused: list[str] = []

    def progress(units: int) -> None:
        with pytest.raises(ApilError, match="Another process is using") as caught:
            resume_run(runs / cells[0].folder, iterations=9, progress=lambda done: None)
        refused.append(str(caught.value))

    run_cells(cells[:1], runs, 5, 1, progress)
    assert refused
    assert standing(cells[:1], runs, 5).finished == cells[:1]
    resume_run(runs / cells[0].folder, iterations=9, progress=lambda done: None)


def test_a_study_waits_for_nobody_in_one_of_its_runs(runs: Path, cells: list[Cell]) -> None:
    (runs / cells[0].folder / "finished.json").unlink()
    (runs / cells[0].folder / "evaluation.json").unlink()
    with locked(runs / cells[0].folder), pytest.raises(ApilError, match="Another process is using"):
        run_cells(cells[:1], runs, 5, 1, lambda units: None)


def test_a_run_that_starts_over_leaves_the_users_files(runs: Path, cells: list[Cell]) -> None:
    folder = runs / cells[0].folder
    (folder / "notes.md").write_text("mine")
    (folder / "maps").mkdir()
    (folder / "maps" / "one.svg").write_text("mine")
    (folder / "environment.json").write_text("{}")
    (folder / "finished.json").unlink()
    (folder / "metrics.jsonl").write_text("")
    assert standing(cells, runs, 5).restarted == cells[:1]
    run_cells(cells[:1], runs, 5, 1, lambda units: None)
    assert standing(cells, runs, 5).finished == cells
    assert (folder / "notes.md").read_text() == (folder / "maps" / "one.svg").read_text() == "mine"


def test_a_run_that_cannot_start_over_keeps_all_its_files(runs: Path, cells: list[Cell]) -> None:
    folder = runs / cells[0].folder
    (folder / "look-00000001.json").mkdir()
    (folder / "environment.json").write_text("{}")
    (folder / "metrics.jsonl").write_text("")
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with pytest.raises(ApilError, match="is a folder, where apil keeps a file"):
        run_cells(cells[:1], runs, 5, 1, lambda units: None)
    (folder / "failed.log").unlink()
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_a_study_in_a_folder_at_work_changes_nothing_there(tmp_path: Path) -> None:
    with claimed(tmp_path / "study", "grid", "first"):
        with pytest.raises(ApilError, match="Another process is using"):
            claimed(tmp_path / "study", "grid", "second").__enter__()
        assert "first" in (tmp_path / "study" / "study.json").read_text()


def test_a_study_can_be_looked_at_while_it_runs(tmp_path: Path) -> None:
    given: dict[str, Any] = {"teachers": ("detm",), "queries": ("bc",), "iterations": 3, "episodes": 5, "workers": 1}
    out = tmp_path / "study"
    apil.study("grid", out=out, seeds=1, progress=False, **given)
    mark = (out / "study.json").read_bytes()
    with locked(out):  # as a study that makes more seeds
        found = apil.study("grid", out=out, seeds=2, so_far=True, progress=False, command="apil look", **given)
    assert found["grid"].seeds == 1
    assert (out / "study.json").read_bytes() == mark, "the command of the study stays"
