"""`apil replay` and `apil doctor`."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from apil.errors import ApilError
from apil.learning.build import build
from apil.learning.collect import Agents
from apil.runs.doctor import examine
from apil.runs.export import export_episodes
from apil.runs.movies import frames, save_movie
from apil.settings import RunSettings
from apil.settings.record import Option


@pytest.mark.parametrize(("task", "cells"), [("grid", 25), ("maze", 49)])
def test_a_replay_shows_every_step_and_who_acted(task: str, cells: int) -> None:
    for query, acts in (("bc", "teacher"), ("never", "agent:")):
        agents = build([RunSettings.of(task, "twodifdetm", query)])
        shown = frames(agents, 2, first=3)
        assert {frame.episode for frame in shown} == {3, 4}
        assert all(acts in frame.caption for frame in shown)
        assert all(frame.answered == (query == "bc") for frame in shown)
        assert all(len("".join(frame.picture.cells)) == cells for frame in shown)
        assert all("".join(frame.picture.cells).count("A") == 1 for frame in shown)
    moves = {("right", 0, 1), ("down", 1, 0), ("up", -1, 0), ("left", 0, -1)}
    one = frames(build([RunSettings.of(task, "first", "bc")]), 1)
    for before, after in pairwise(one):
        (r0, c0), (r1, c1) = (_agent(frame.picture.cells) for frame in (before, after))
        told = before.caption.split(": ")[1].split(",")[0]
        assert (told, r1 - r0, c1 - c0) in moves


def _agents() -> Agents:
    return build([RunSettings.of("maze", "twodifdetm", "bc")])


def _agent(rows: tuple[str, ...]) -> tuple[int, int]:
    return next((r, row.index("A")) for r, row in enumerate(rows) if "A" in row)


def test_a_movie_has_a_frame_for_each_step(tmp_path: Path) -> None:
    shown = frames(build([RunSettings.of("grid", "twodifdetm", "bc")]), 1)
    save_movie(shown, tmp_path / "episode.gif")
    with Image.open(tmp_path / "episode.gif") as movie:
        assert getattr(movie, "n_frames", 1) == len(shown) == 8


def test_a_movie_of_r2r_shows_the_exits(tmp_path: Path, made_up_data: Path) -> None:
    options: dict[str, Option] = {"data": str(made_up_data), "width": 16, "heads": 2}
    shown = frames(build([RunSettings.of("r2r", "detm", "bc", hidden=8, persona=4, models=2, options=options)]), 1)
    assert any("o" in "".join(frame.picture.cells) for frame in shown)
    save_movie(shown, tmp_path / "walk.gif")
    with Image.open(tmp_path / "walk.gif") as movie:
        assert getattr(movie, "n_frames", 1) == len(shown)


@pytest.mark.parametrize("name", ["episode.png", "missing/episode.gif"])
def test_a_movie_that_cannot_be_written_is_told(tmp_path: Path, name: str) -> None:
    shown = frames(build([RunSettings.of("grid", "detm", "bc")]), 1)
    with pytest.raises(ApilError, match=r"give one of these endings|does not exist"):
        save_movie(shown, tmp_path / name)


def test_the_doctor_finds_a_healthy_installation_and_a_folder_that_is_not(tmp_path: Path) -> None:
    findings = {finding.what: finding for finding in examine(tmp_path)}
    assert all(finding.good for finding in findings.values() if finding.needed)
    assert findings["a tiny training"].good
    bad = {finding.what: finding for finding in examine(tmp_path / "missing")}
    assert not bad[f"writing into {tmp_path / 'missing'}"].good


@contextmanager
def _full_disk(room: int) -> Iterator[None]:
    """No file can grow beyond `room` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_film_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    shown = frames(_agents(), 2)
    (tmp_path / "old.gif").write_bytes(b"an earlier film")
    for name in ("old.gif", "new.gif"):
        with _full_disk(2_000), pytest.raises(ApilError, match=f"Cannot write {tmp_path / name}: ") as caught:
            save_movie(shown, tmp_path / name)
        assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["old.gif"]
    assert (tmp_path / "old.gif").read_bytes() == b"an earlier film"


def test_a_dataset_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full at the first episodes, and one that fills later."""
    pytest.importorskip("minari", reason="needs the extra `minari`")
    (tmp_path / "empty").mkdir()
    for name, batches in (("new", 0), ("empty", 1)):
        left = iter([10**12] * batches)
        with monkeypatch.context() as patched:
            patched.setattr(shutil, "disk_usage", lambda place, left=left: SimpleNamespace(free=next(left, 10**6)))
            with pytest.raises(ApilError, match="No space left on device") as caught:
                export_episodes(_agents(), tmp_path / name, 60)
        assert str(caught.value).startswith(f"Cannot write {tmp_path / name}: ")
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    assert not list((tmp_path / "empty").iterdir())
    export_episodes(_agents(), tmp_path / "empty", 2)
