"""Whatever the bytes on disk, the answer is a good load or one clear error: never a traceback, never half a load."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apil.errors import ApilError
from apil.learning.state import weights
from apil.runs.folder import load_run
from apil.runs.train import resume_run, start_run
from apil.runs.writer import Record
from apil.settings import RunSettings

CONFIG = RunSettings.of(
    "grid", "twodifdetm", "apil", iterations=12, log_every=4, save_every=5, hidden=8, persona=4, models=3
)
FLOATS = st.floats(allow_subnormal=False)
FILES = ("config.json", "environment.json", "metrics.jsonl", "answers.jsonl")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage") / "run"
    start_run(CONFIG, folder, progress=lambda done: None)
    return folder


def complaint(work: Callable[[], object]) -> str:
    """What is wrong, in apil's own words; empty if nothing is. Any other error is a fault of apil."""
    try:
        work()
    except ApilError as error:
        return str(error)
    return ""


def resumed(folder: Path) -> None:
    resume_run(folder, iterations=None, progress=lambda done: None)


def newest(folder: Path, suffix: str) -> Path:
    return folder / f"checkpoint-{CONFIG.iterations:08d}{suffix}"


@st.composite
def damage(draw: st.DrawFn) -> tuple[str, bytes | None, int, bytes]:
    """A file, and what happens to it: replaced by any bytes, or some bytes overwritten, or cut."""
    name = draw(st.sampled_from([*FILES, "checkpoint.json", "checkpoint.safetensors"]))
    replaced = draw(st.one_of(st.none(), st.binary(max_size=40), st.sampled_from([b"{}", b"[]", b"null", b"1\n"])))
    return name, replaced, draw(st.integers(0, 10_000)), draw(st.binary(max_size=4))


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage())
def test_any_damage_is_a_good_load_or_one_line(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, hurt: tuple[str, bytes | None, int, bytes]
) -> None:
    name, replaced, place, patch = hurt
    folder = tmp_path_factory.mktemp("fuzz") / "run"
    shutil.copytree(whole, folder)
    path = newest(folder, Path(name).suffix) if name.startswith("checkpoint") else folder / name
    content = path.read_bytes()
    place = place % len(content)
    path.write_bytes(replaced if replaced is not None else content[:place] + patch + content[place + 2 * len(patch) :])
    assert "\n" not in complaint(lambda: load_run(folder))
    told = complaint(lambda: resumed(folder))
    assert "\n" not in told
    # A config tells what is wanted: another number in it is another wish. All else is exact or told.
    if not told and name != "config.json":
        assert newest(folder, ".safetensors").read_bytes() == newest(whole, ".safetensors").read_bytes()
        for rows in ("metrics.jsonl", "answers.jsonl"):
            assert (folder / rows).read_bytes() == (whole / rows).read_bytes()
    shutil.rmtree(folder.parent)


@settings(deadline=None, max_examples=200)
@given(
    st.dictionaries(
        st.sampled_from(sorted(CONFIG.to_json())),
        st.one_of(st.none(), st.booleans(), st.integers(), FLOATS, st.text(max_size=5), st.lists(FLOATS)),
    )
)
def test_any_config_is_read_or_refused(changes: dict[str, object]) -> None:
    read: list[RunSettings] = []
    assert "\n" not in complaint(lambda: read.append(RunSettings.from_json({**CONFIG.to_json(), **changes})))
    for config in read:
        assert RunSettings.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_a_changed_checkpoint_is_never_used(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One flipped bit anywhere in the newest checkpoint: the one before it is loaded, and that is told."""
    _, before = load_run(whole)
    for suffix, place in ((".safetensors", -1), (".safetensors", 9), (".json", 30)):
        folder = tmp_path / f"run{suffix}{place}"
        shutil.copytree(whole, folder)
        content = bytearray(newest(folder, suffix).read_bytes())
        content[place] ^= 1
        newest(folder, suffix).write_bytes(bytes(content))
        _, agents = load_run(folder)
        assert "is damaged" in capsys.readouterr().err
        assert not torch.equal(weights(agents, 0)["policy.w1"], weights(before, 0)["policy.w1"])


@pytest.mark.parametrize(("name", "lost"), [("metrics.jsonl", 1), ("answers.jsonl", 3), ("answers.jsonl", 10_000)])
def test_lost_rows_are_noticed(whole: Path, tmp_path: Path, name: str, lost: int) -> None:
    """The first rows are gone: a resume that builds on them must not go on in silence."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    path = folder / name
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[lost:]))
    with pytest.raises(ApilError, match="restore it or start the run over"):
        resume_run(folder, iterations=CONFIG.iterations + 4, progress=lambda done: None)


def test_a_newer_schema_asks_for_an_upgrade(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    note = json.loads(newest(folder, ".json").read_text())
    newest(folder, ".json").write_text(json.dumps({**note, "schema": 99}))
    with pytest.raises(ApilError, match="newer apil"):
        load_run(folder)


def test_a_moved_run_opens(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere" / "renamed"
    shutil.copytree(whole, folder)
    _, there = load_run(folder)
    _, here = load_run(whole)
    assert all(torch.equal(value, weights(there, 0)[name]) for name, value in weights(here, 0).items())


def test_nothing_on_disk_can_run_code(whole: Path) -> None:
    """Only JSON and safetensors: no pickle, whose streams begin with the byte 0x80."""
    kinds = {path.suffix for path in whole.iterdir() if not path.name.startswith(".")}
    assert kinds == {".json", ".jsonl", ".safetensors"}
    assert all(path.read_bytes()[:1] != b"\x80" for path in whole.iterdir() if path.suffix != ".safetensors")


def test_a_full_disk_is_told_and_the_run_can_go_on(whole: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk; a resume then ends as if nothing had been."""
    folder = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "apil.cli",
        "train",
        "--query",
        "dagger",
        "--iterations",
        "40",
        "--out",
        str(folder),
    ]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    failed = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, env=environment, check=False)
    assert failed.returncode == 2
    assert "Cannot write" in failed.stderr
    assert "Traceback" not in failed.stderr
    resumed(folder)
    again = tmp_path / "again"
    start_run(RunSettings.from_json(json.loads((folder / "config.json").read_text())), again, progress=print)
    for name in ("metrics.jsonl", "answers.jsonl"):
        assert (folder / name).read_bytes() == (again / name).read_bytes()


@pytest.mark.parametrize("name", ["metrics.jsonl", "answers.jsonl"])
def test_a_changed_digit_is_noticed(whole: Path, tmp_path: Path, name: str) -> None:
    """By a resume and by whoever looks at the run; a row that still parses is no excuse."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    text = (folder / name).read_text()
    place = re.search(r"\d[,}]", text)
    assert place
    changed = text[: place.start()] + str((int(text[place.start()]) + 1) % 10) + text[place.start() + 1 :]
    (folder / name).write_text(changed)
    for work in (lambda: resumed(folder), lambda: load_run(folder)):
        told = complaint(work)
        assert str(folder / name) in told
        assert "restore it or start the run over" in told
    assert (folder / name).read_text() == changed


def test_an_early_last_row_is_made_again(tmp_path: Path) -> None:
    """Rows every four iterations, and one after the tenth: a checkpoint does not build on that one, but knows it."""
    folder = tmp_path / "run"
    start_run(replace(CONFIG, iterations=10), folder, progress=lambda done: None)
    path = folder / "metrics.jsonl"
    content = path.read_bytes()
    assert [json.loads(line)["iteration"] for line in content.splitlines()] == [4, 8, 10]
    for damaged in (
        content[:-30],
        content[: content.rindex(b"{")],
        content.replace(b'"iteration": 10', b'"iteration": 11'),
    ):
        path.write_bytes(damaged)
        resumed(folder)
        assert path.read_bytes() == content


def test_a_damaged_checkpoint_is_not_one_of_the_two_kept(whole: Path, tmp_path: Path) -> None:
    """The newest of three iterations is damaged; the run goes on and stops before it would write that one again."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    newest(folder, ".safetensors").write_bytes(b"")
    names = sorted(path.name for path in folder.glob("checkpoint-*.json"))
    assert names == ["checkpoint-00000010.json", "checkpoint-00000012.json"]
    resume_run(folder, iterations=20, progress=lambda done: None)
    assert sorted(path.name for path in folder.glob("checkpoint-*")) == [
        f"checkpoint-{iteration:08d}{suffix}" for iteration in (15, 20) for suffix in (".json", ".safetensors")
    ]
    again = tmp_path / "again"
    shutil.copytree(whole, again)
    newest(again, ".safetensors").write_bytes(b"")
    record = Record(again, replace(CONFIG, iterations=20))
    record.close()
    assert [path.name for path in again.glob("checkpoint-*.json")] == ["checkpoint-00000010.json"]


STRANGER = """
import os, sys
# What a stranger may not read is loaded before becoming one.
from apil.cli import main
import apil.cli.train
import apil.learning.evaluate, apil.learning.fidelity, apil.runs.train, apil.studies.run
import rich.console, rich.progress, rich.table
from apil.runs.calibration import load_calibration
from apil.runs.resolve import resolve
resolve("grid", "detm", "apil", {}, load_calibration(None))
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
main(sys.argv[1:])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("command", ["train", "resume", "evaluate", "study"])
def test_a_folder_without_write_permission_is_one_line(whole: Path, command: str) -> None:
    """As another user, for root may write everywhere. What is there stays as it was."""
    # Fonts are found in a folder of their own.
    with (
        tempfile.TemporaryDirectory() as fonts,
        tempfile.TemporaryDirectory() as name,
    ):  # not under pytest's own folder, which is closed to others
        top = Path(name)
        folder = top / "run"
        shutil.copytree(whole, folder)
        top.chmod(0o755)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        arguments = {
            "train": ["train", "--iterations", "2", "--out", str(top / "new")],
            "resume": ["train", "--resume", str(folder), "--iterations", "20"],
            "evaluate": ["evaluate", str(folder), "--episodes", "5"],
            "study": ["study", "grid", "--iterations", "2", "--out", str(top / "study")],
        }[command]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "MPLCONFIGDIR": fonts, "HOME": name}
        done = subprocess.run(
            [sys.executable, "-c", STRANGER, *arguments],
            capture_output=True, text=True, env=environment, cwd=name, check=False,
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        assert name in done.stderr
        assert "Permission denied" in done.stderr
        assert "Traceback" not in done.stderr
        assert [line.startswith("apil: ") for line in done.stderr.splitlines()] == [True]
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        assert [path.name for path in top.iterdir()] == ["run"]
