"""A run that was stopped goes on as if it had not been."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from apil.errors import ApilError
from apil.runs.train import Outcome, resume_run, start_run
from apil.settings import RunSettings

_CONFIG = RunSettings.of(
    "maze", "twodifdetm", "apil", seed=3, iterations=13, batch=3, log_every=4, save_every=5, expectation="monte-carlo"
)


class _PowerError(Exception):
    """The power fails."""


def _until(iteration: int) -> Callable[[int], None]:
    def progress(done: int) -> None:
        if done >= iteration:
            raise _PowerError

    return progress


def _go_on(folder: Path, iterations: int | None = None) -> Outcome:
    return resume_run(folder, iterations=iterations, progress=lambda done: None)


def _content(folder: Path) -> dict[str, bytes]:
    """All files that two equal runs share."""
    skip = {"timings.jsonl", "environment.json", ".lock"}
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in skip}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    start_run(_CONFIG, folder, progress=lambda done: None)
    return folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stopped at iteration 8, after the checkpoint of iteration 5."""
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    with pytest.raises(_PowerError):
        start_run(_CONFIG, folder, progress=_until(8))
    return folder


@pytest.fixture
def copy(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def test_a_stopped_run_ends_with_the_same_bytes(whole: Path, copy: Path) -> None:
    assert _content(copy) != _content(whole)
    outcome = _go_on(copy)
    assert outcome.iteration == 13
    assert _content(copy) == _content(whole)


def test_a_run_stopped_before_its_first_checkpoint_starts_over(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(_PowerError):
        start_run(_CONFIG, folder, progress=_until(4))
    _go_on(folder)
    assert _content(folder) == _content(whole)


def test_half_a_line_at_the_end_of_a_file_is_written_again(whole: Path, copy: Path) -> None:
    for name in ("answers.jsonl", "metrics.jsonl"):
        path = copy / name
        path.write_bytes(path.read_bytes()[:-5])
    _go_on(copy)
    assert _content(copy) == _content(whole)


def test_a_run_with_more_iterations_is_the_run_that_was_meant_to_have_them(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    start_run(_CONFIG.changed(iterations=6), folder, progress=lambda done: None)
    _go_on(folder, iterations=13)
    assert _content(folder) == _content(whole)


def test_a_damaged_checkpoint_is_passed_over(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    newest = max(folder.glob("checkpoint-*.safetensors"))
    content = newest.read_bytes()
    newest.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    _go_on(folder)
    assert "is damaged" in capsys.readouterr().err
    assert _content(folder) == _content(whole)


def test_a_finished_run_stays_as_it_is(whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    assert _go_on(folder).iteration == 13
    assert _content(folder) == _content(whole)


def test_iterations_can_be_raised_not_cut(whole: Path) -> None:
    before = _content(whole)
    with pytest.raises(ApilError, match="they can be raised, not cut"):
        _go_on(whole, iterations=4)
    assert _content(whole) == before


def test_a_folder_that_is_no_run_cannot_go_on(tmp_path: Path) -> None:
    with pytest.raises(ApilError, match="There is no run folder"):
        _go_on(tmp_path / "nowhere")


def test_a_run_that_cannot_be_built_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for config in (
        _CONFIG.changed(weights=(0.5, 0.6)),
        _CONFIG.changed(teacher="twodif"),
        _CONFIG.changed(query="intrun", threshold=None),
    ):
        with pytest.raises(ApilError):
            start_run(config, folder, progress=lambda done: None)
        assert not folder.exists() or not any(folder.iterdir())
