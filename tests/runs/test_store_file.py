"""`answers.store`: exact on resume, whatever is killed and whenever; damage is one line, and nothing is lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from example_parts import imported

import apil
from apil.cli import main
from apil.errors import ApilError
from apil.learning.build import NAMED, Parts
from apil.learning.rows import RowFormat
from apil.runs import store_file
from apil.runs.resolve import resolve
from apil.runs.store_file import Header, StoreFile, read_store
from apil.runs.train import Outcome, resume_run, start_run
from apil.runs.writer import is_whole
from apil.settings import RunSettings
from apil.teachers.team import Member, Team

SAME = ("config.json", "metrics.jsonl", "answers.jsonl", "answers.store")
SMALL: dict[str, Any] = {"hidden": 8, "persona": 4, "models": 3, "encode": 8, "standardise": True, "batch": 4}
LEARNS: dict[str, Any] = {"replay": 16, "updates": 3, "validation": 0.1, "recent": 0.25}
SPEED: dict[str, Any] = {"iterations": 13, "log_every": 4, "save_every": 3}
MAZE = RunSettings.of("maze", "twodifdetm", "dagger", **SMALL, **LEARNS, **SPEED)
HEADER = Header("t", RowFormat([(8, "bits")], 4, False), ("a", "b"), False)


class _PowerError(Exception):
    """The power fails."""


def quiet(done: int) -> None:
    pass


def _resumed(folder: Path, iterations: int | None = None) -> Outcome:
    return resume_run(folder, iterations=iterations, progress=quiet)


def _content(folder: Path) -> dict[str, bytes]:
    """What two equal runs share."""
    skip = {"timings.jsonl", "environment.json", ".lock"}
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in skip}


@contextmanager
def _power_fails(after: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process ends in the middle of the iteration after so many: answers are stored, nothing is learned yet."""
    from apil.learning.update import Learner

    original = Learner.replay

    def replay(self: Learner, episodes: Any, store: Any, iteration: int, *rest: Any) -> Any:
        if iteration == after:
            raise _PowerError
        return original(self, episodes, store, iteration, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "replay", replay)
        with pytest.raises(_PowerError):
            yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "run"
    start_run(MAZE, folder, progress=quiet)
    return folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


@pytest.mark.parametrize("iteration", range(13))
def test_a_stop_at_any_iteration_changes_nothing(
    iteration: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with _power_fails(iteration, monkeypatch):
        start_run(MAZE, folder, progress=quiet)
    _resumed(folder)
    assert _content(folder) == _content(whole)


def _stopped_and_whole(
    config: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: Parts = NAMED
) -> None:
    start_run(config, tmp_path / "whole", progress=quiet, parts=parts)
    for iteration in (1, 4, 9):
        folder = tmp_path / f"stopped-{iteration}"
        with _power_fails(iteration, monkeypatch):
            start_run(config, folder, progress=quiet, parts=parts)
        resume_run(folder, iterations=None, progress=quiet, parts=parts)
        assert _content(folder) == _content(tmp_path / "whole")


@pytest.mark.parametrize("query", ["apil", "errpred", "thriftydagger"])
def test_rules_that_learn_resume_exactly_on_grid(query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"budget": 0.3} if query == "apil" else {"threshold": 0.3}
    config = RunSettings.of("grid", "tworand", query, **SMALL, **LEARNS, **SPEED, **given)
    _stopped_and_whole(config, tmp_path, monkeypatch)


def test_reviews_and_budgets_resume_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = MAZE.changed(asking="review", answer_budget=70, query="random", threshold=0.5)
    _stopped_and_whole(config, tmp_path, monkeypatch)


def test_a_gymnasium_task_resumes_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = apil.from_gymnasium("CartPole-v1", distance="steps", horizon=20)
    team = Team({"hard": lambda seen, rng: int(seen[2] + seen[3] > 0), "soft": lambda seen, rng: int(seen[2] > 0)})
    settings = resolve(task, "hard+soft", "dagger", {**SMALL, **LEARNS, **SPEED}, {}).settings
    _stopped_and_whole(settings, tmp_path, monkeypatch, Parts(task, team))


def test_continuous_actions_resume_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = apil.from_gymnasium("Pendulum-v1", distance="steps", horizon=12)
    team = Team({"hard": lambda seen, rng: [-2.0 * seen[1]], "soft": lambda seen, rng: [-seen[1]]})
    settings = resolve(task, "hard+soft", "dagger", {**SMALL, **LEARNS, **SPEED}, {}).settings
    _stopped_and_whole(settings, tmp_path, monkeypatch, Parts(task, team))
    assert apil.answers(tmp_path / "whole").action.shape[1:] == (1,)


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    with imported("own_task") as module:
        yield module


def _remembering(**more: Any) -> RunSettings:
    given = {**LEARNS, **SPEED, "batch": 6, "length": 4, **more}
    return resolve("t-maze", "twodifdetm", "random", {**given, "threshold": 0.4}, {}).settings


def test_a_model_that_remembers_resumes_exactly(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stopped_and_whole(_remembering(), tmp_path, monkeypatch)
    header, rows = read_store(tmp_path / "whole")
    assert header.whole
    assert len(rows) > len(apil.answers(tmp_path / "whole"))


def test_r2r_on_houses_resumes_exactly(tmp_path: Path, houses_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"data": str(houses_data), "width": 16, "heads": 2, "iterations": 10, "log_every": 4, "save_every": 3}
    given |= {**LEARNS, "replay": 8, "batch": 4}
    found = resolve("r2r", "twodifdetm", "random", {**given, "threshold": 0.4}, {}).settings
    _stopped_and_whole(found, tmp_path, monkeypatch)
    silent = resolve("r2r", "twodifdetm", "never", {**given, "iterations": 2}, {}).settings
    assert not start_run(silent, tmp_path / "silent", progress=quiet).stopped


def _killed_after(seconds: float, config: RunSettings, folder: Path) -> None:
    pid = os.fork()
    if not pid:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            if (folder / "config.json").exists():
                _resumed(folder)
            else:
                start_run(config, folder, progress=quiet)
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_a_killed_run_leaves_a_store_that_opens_and_resumes(tmp_path: Path) -> None:
    config = MAZE.changed(iterations=100_000)
    folder = tmp_path / "run"
    _killed_after(2.0, config, folder)
    while not list(folder.glob("checkpoint-*.json")):
        _killed_after(2.0, config, folder)
    header, start = Header.read(folder / "answers.store")
    size = header.layout.dtype.itemsize
    found = apil.answers(folder)
    room = ((folder / "answers.store").stat().st_size - start) // size
    assert 0 < len(found) < room  # what was not taken is no answer
    newest = max(folder.glob("checkpoint-*.json"))
    vouched = (json.loads(newest.read_text())["files"]["answers.store"]["bytes"] - start) // size
    assert len(found) >= vouched
    iteration = int(newest.stem.partition("-")[2])
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "iterations": iteration + 7}))
    _resumed(folder)
    again = tmp_path / "again"
    start_run(config.changed(iterations=iteration + 7), again, progress=quiet)
    assert {name: (folder / name).read_bytes() for name in SAME[1:]} == {
        name: (again / name).read_bytes() for name in SAME[1:]
    }


# Runs that end by themselves.


def test_a_run_that_has_ended_says_so_and_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    config = MAZE.changed(answer_budget=40, iterations=1_000_000)
    outcome = start_run(config, folder, progress=quiet)
    assert not outcome.stopped
    assert outcome.last is not None
    assert outcome.last["answers"] == 40
    before = _content(folder)
    assert is_whole(folder, config)
    for more in ((), ("--iterations", "2000000")):
        main(["train", "--resume", str(folder), *more])
        said = capsys.readouterr().out
        assert "had ended before, after 40 answers: no more are asked for" in said
        assert f"--answers-from {folder}" in said
        assert _content(folder) == before


def test_more_iterations_finish_a_budget_that_was_not_spent(tmp_path: Path) -> None:
    config = MAZE.changed(answer_budget=400, log_every=3)
    start_run(config, tmp_path / "run", progress=quiet)
    outcome = _resumed(tmp_path / "run", iterations=100_000)
    assert outcome.last is not None
    assert outcome.last["answers"] == 400
    start_run(config.changed(iterations=100_000), tmp_path / "at once", progress=quiet)
    assert _content(tmp_path / "run") == _content(tmp_path / "at once")


def test_a_last_row_before_its_time_is_made_again(copy: Path, whole: Path) -> None:
    """13 iterations, rows every four: the last is not one that a checkpoint builds on."""
    rows = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [4, 8, 12, 13]
    assert ["validation_loss" in row for row in rows] == [True, True, True, False]
    _resumed(copy)
    assert _content(copy) == _content(whole)
    assert is_whole(copy, MAZE)
    (copy / "metrics.jsonl").write_bytes((whole / "metrics.jsonl").read_bytes()[:-9])
    _resumed(copy)
    assert _content(copy) == _content(whole)


def test_a_last_row_before_its_time_has_the_cost(tmp_path: Path) -> None:
    committee = Team([Member("first", "first"), Member("last", "last", cost=3.0)])
    found = apil.train("maze", committee, "dagger", folder=tmp_path / "run", progress=False, **SMALL, **LEARNS, **SPEED)
    assert "cost" in found.rows[-1]
    again = apil.train("maze", committee, "dagger", folder=tmp_path / "run", progress=False, **SMALL, **LEARNS, **SPEED)
    assert again.rows == found.rows


def test_a_stop_by_an_error_keeps_what_was_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    with _power_fails(8, monkeypatch):
        start_run(MAZE, folder, progress=quiet)
    answered = len((folder / "answers.jsonl").read_text().splitlines())
    found = apil.answers(folder)
    assert len(found) == answered
    assert int(found.iteration.max()) == 8


# Damage.


def _flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(bytes(content))


def _refused(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a resume says; nothing in the folder may change."""
    before = _content(folder)
    with pytest.raises(SystemExit) as stopped:
        main(list(words) or ["train", "--resume", str(folder), "--iterations", "20"])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("apil: ")
    assert _content(folder) == before
    return said


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _flip_a_row(path: Path) -> None:
    _flip(path, 4096 + 300)


def _flip_the_header(path: Path) -> None:
    _flip(path, 5)


def _other_task(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"task": "maze"', b'"task": "mazy"', 1))


def _newer(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"schema": 1', b'"schema": 9', 1))


def _half_a_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_cut, "lacks rows that the run builds on"),
        (_flip_a_row, "was changed: its first"),
        (_flip_the_header, "is no store of answers"),
        (_half_a_header, "is no store of answers, or is cut short"),
        (_other_task, "has the task mazy, and the run maze"),
        (_newer, "written by a newer apil, schema 9"),
        (Path.unlink, "is gone, and the run builds on it"),
    ],
)
def test_a_damaged_store_is_one_line(
    damage: Callable[[Path], None], told: str, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(copy / "answers.store")
    assert told in _refused(copy, capsys)


def test_damage_after_the_checkpoint_costs_nothing(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those rows are made again from answers.jsonl; nobody is asked twice."""
    folder = tmp_path / "run"
    with _power_fails(8, monkeypatch):
        start_run(MAZE, folder, progress=quiet)
    path = folder / "answers.store"
    _flip(path, path.stat().st_size - 7)
    answered = len((folder / "answers.jsonl").read_text().splitlines())
    assert len(apil.answers(folder)) == answered - 1  # the torn row ends the table
    _resumed(folder)
    assert _content(folder) == _content(whole)


def test_a_torn_tail_is_cut_off(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    with _power_fails(8, monkeypatch):
        start_run(MAZE, folder, progress=quiet)
    path = folder / "answers.store"
    path.write_bytes(path.read_bytes()[:-11])
    _resumed(folder)
    assert _content(folder) == _content(whole)


def test_a_damaged_checkpoint_goes_back_in_the_store_too(
    copy: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = max(copy.glob("checkpoint-*.safetensors"))
    _flip(newest, -1)
    _resumed(copy)
    assert "is damaged" in capsys.readouterr().err
    assert _content(copy) == _content(whole)


@pytest.mark.parametrize("damage", [_flip_a_row, _cut])
def test_whoever_looks_at_a_run_is_told(
    damage: Callable[[Path], None], copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(copy / "answers.store")
    assert "answers.store" in _refused(copy, capsys, "evaluate", str(copy), "--episodes", "4")


def test_a_full_disk_is_one_line_and_the_run_goes_on(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    calls: list[int] = []
    original = os.posix_fallocate

    def full(file: int, offset: int, size: int) -> None:
        calls.append(size)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(file, offset, size)

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(ApilError, match=r"Cannot write .*answers.store: No space left on device. Free space"):
            start_run(replace(MAZE, iterations=100), folder, progress=quiet)
    _resumed(folder)
    again = tmp_path / "again"
    start_run(replace(MAZE, iterations=100), again, progress=quiet)
    assert _content(folder) == _content(again)


def test_a_file_system_that_allocates_nothing_ahead_will_do(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(file: int, offset: int, size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "posix_fallocate", unknown)
    start_run(MAZE, tmp_path / "run", progress=quiet)
    assert _content(tmp_path / "run") == _content(whole)


# The file itself.


def test_rows_are_given_back_and_room_is_returned(tmp_path: Path) -> None:
    path = tmp_path / "answers.store"
    store = StoreFile(path, HEADER, None)
    store.open()
    rows = np.zeros(1000, HEADER.layout.dtype)
    rows["flags"], rows["step"] = 1, np.arange(1000)
    HEADER.layout.seal(rows)
    store.grow(1000)
    store.array[:1000] = rows
    prefix = store.sync(900)
    store.close()
    assert path.stat().st_size == 4096 + 1000 * HEADER.layout.dtype.itemsize
    header, found = read_store(tmp_path)
    assert header.to_bytes() == HEADER.to_bytes()
    assert np.array_equal(found, rows)
    again = StoreFile(path, HEADER, prefix)
    assert again.rows == 900


def test_a_large_store_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_file, "_MAPPED", 100)
    test_rows_are_given_back_and_room_is_returned(tmp_path)
    assert isinstance(read_store(tmp_path)[1], np.memmap)


def test_growth_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file does not take twice its size from the disk."""
    size = HEADER.layout.dtype.itemsize
    monkeypatch.setattr(store_file, "_ROOM", 100 * size)
    store = StoreFile(tmp_path / "answers.store", HEADER, None)
    store.open()
    store.grow(257)
    assert len(store.array) == 356
    store.close()


def test_a_teacher_that_is_not_named_is_refused(tmp_path: Path) -> None:
    store = StoreFile(tmp_path / "answers.store", HEADER, None)
    store.open()
    rows = np.zeros(3, HEADER.layout.dtype)
    rows["flags"], rows["identity"] = 1, [0, 1, 2]
    HEADER.layout.seal(rows)
    store.array[:3] = rows
    store.close()
    with pytest.raises(ApilError, match=r"Row 2 of .* is by no teacher"):
        read_store(tmp_path)
