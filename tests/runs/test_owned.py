"""In a run folder apil writes and removes its own files alone, and never through a link."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from apil.errors import ApilError
from apil.files import locked, remove_leftovers
from apil.runs.folder import load_run
from apil.runs.owned import own_files, remove_own_files
from apil.runs.train import resume_run, start_run
from apil.settings import RunSettings

CONFIG = RunSettings.of("grid", "detm", "dagger", iterations=4, log_every=2, save_every=1, hidden=8, replay=4)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("owned") / "run"
    start_run(CONFIG, folder, progress=lambda done: None)
    return folder


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def _longer(folder: Path) -> None:
    resume_run(folder, iterations=6, progress=lambda done: None)


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "answers.jsonl", "answers.store", "timings.jsonl", "config.json", "agent.json", ".lock"]
)
def test_a_link_in_a_run_folder_is_refused_and_its_target_stays(run: Path, tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    (run / name).rename(victim)
    (run / name).symlink_to(victim)
    content = victim.read_bytes()
    with pytest.raises(ApilError, match=f"{name} is a symbolic link"):
        _longer(run)
    assert victim.read_bytes() == content
    assert (run / name).is_symlink()
    (run / name).unlink()
    victim.rename(run / name)
    _longer(run)


@pytest.mark.parametrize("name", ["people.sqlite", "people.log", "links.json"])
def test_a_link_in_place_of_what_people_said_is_refused(run: Path, tmp_path: Path, name: str) -> None:
    (run / name).symlink_to(tmp_path / "made")
    with pytest.raises(ApilError, match=f"{name} is a symbolic link"):
        _longer(run)
    (run / name).unlink()
    (run / name).write_text("dear to all")
    remove_own_files(run)
    assert (run / name).read_text() == "dear to all"


def test_a_link_without_a_target_makes_no_file(run: Path, tmp_path: Path) -> None:
    (run / "timings.jsonl").unlink()
    (run / "timings.jsonl").symlink_to(tmp_path / "made")
    with pytest.raises(ApilError, match="symbolic link"):
        _longer(run)
    assert not (tmp_path / "made").exists()


def test_a_leftover_of_a_write_that_is_a_link_is_not_written_through(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "victim").write_text("dear to me")
    monkeypatch.setattr("os.getpid", lambda: 77)
    (run / ".config.json.77.new").symlink_to(tmp_path / "victim")
    _longer(run)
    assert (tmp_path / "victim").read_text() == "dear to me"


_MINE = ("notes.md", "checkpoint-best.json", "checkpoint-best.safetensors", "metrics.jsonl.bak", ".draft.new")


def test_what_a_user_keeps_in_a_run_folder_survives_a_resume(run: Path) -> None:
    """Copies of checkpoints under other names among it, which are no checkpoints of the run."""
    for name in _MINE:
        (run / name).write_text("mine")
    (run / "maps").mkdir()
    (run / "maps" / "one.svg").write_text("mine")
    load_run(run)
    _longer(run)
    assert [(run / name).read_text() for name in (*_MINE, "maps/one.svg")] == ["mine"] * (len(_MINE) + 1)


def test_apils_own_files_are_removed_all_or_none(run: Path) -> None:
    (run / "notes.md").write_text("mine")
    (run / "maps").mkdir()
    before = {path.name for path in run.iterdir()}
    (run / "look-00000002.json").mkdir()
    with pytest.raises(ApilError, match=r"look-00000002\.json is a folder, where apil keeps a file"):
        remove_own_files(run)
    assert {path.name for path in run.iterdir()} == {*before, "look-00000002.json"}
    (run / "look-00000002.json").rmdir()
    remove_own_files(run, keep=("answers.jsonl",))
    assert {path.name for path in run.iterdir()} == {"answers.jsonl", "notes.md", "maps", ".lock"}


def test_every_file_of_a_run_is_on_the_list(whole: Path) -> None:
    assert {path.name for path in whole.iterdir()} == {path.name for path in own_files(whole)}


def test_only_what_a_writer_left_behind_is_removed(tmp_path: Path) -> None:
    for name in (".config.json.12.new", ".movie.gif.7.new.gif", ".notes.new", "a.1.new", ".new"):
        (tmp_path / name).write_text("")
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {".notes.new", "a.1.new", ".new"}


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("dear to me")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "victim")
    with pytest.raises(ApilError, match="symbolic link"):
        locked(tmp_path / "run").__enter__()
    assert (tmp_path / "victim").read_text() == "dear to me"


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_checkpoint_that_cannot_be_read_is_neither_damaged_nor_removed(
    run: Path, suffix: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    newest, read = run / f"checkpoint-00000004{suffix}", Path.read_bytes

    def refused(path: Path) -> bytes:
        if path == newest:
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    for work in (lambda: load_run(run), lambda: _longer(run)):
        with pytest.raises(ApilError, match=f"Cannot read {newest}: Permission denied; check its permissions"):
            work()
    assert newest.exists()
    assert "damaged" not in capsys.readouterr().err
