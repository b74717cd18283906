"""Whatever the bytes on disk, the answer is a good load or one clear error: never a traceback, never half a load."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apil.config import RunConfig
from apil.errors import ApilError
from apil.learning.state import weights
from apil.runs.store import load_run
from apil.runs.train import resume_run, start_run

CONFIG = RunConfig(
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
    read: list[RunConfig] = []
    assert "\n" not in complaint(lambda: read.append(RunConfig.from_json({**CONFIG.to_json(), **changes})))
    for config in read:
        assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


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
    with pytest.raises(ApilError, match="restore it or train anew"):
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
    start_run(RunConfig.from_json(json.loads((folder / "config.json").read_text())), again, progress=print)
    for name in ("metrics.jsonl", "answers.jsonl"):
        assert (folder / name).read_bytes() == (again / name).read_bytes()
