"""Run folders in two places: what was sent is what is there, and no more is sent than has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from apil.errors import ApilError
from apil.studies.mirror import Mirror, Storage, apply, read_files

_RUN = "detm-bc-0-0123456789"


def _files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / _RUN).iterdir() if path.name != ".lock"}


def _save(folder: Path, iteration: int, rows: bytes) -> None:
    """As a run saves: rows are added, a checkpoint is written, the one before the last is removed."""
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(rows)
    for ending in ("safetensors", "json"):
        (folder / f"checkpoint-{iteration:08d}.{ending}").write_bytes(f"{iteration}".encode() * 100)
        (folder / f"checkpoint-{iteration - 2:08d}.{ending}").unlink(missing_ok=True)


def test_the_other_place_becomes_the_same_by_what_has_changed_alone(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    mirror = Mirror(here, [_RUN])
    for iteration in range(1, 5):
        _save(here / _RUN, iteration, b"row\n" * 1000)
        (here / _RUN / "thesis.tex").write_text("dear to me")  # not of the run
        changes = mirror.changes()
        grown = next(change for change in changes if change.name == "metrics.jsonl")
        assert (grown.offset, grown.data) == (4000 * (iteration - 1), b"row\n" * 1000)
        apply(there, changes)
        assert _files(there) == {name: data for name, data in _files(here).items() if name != "thesis.tex"}
        assert mirror.changes() == []


def test_rows_that_are_cut_and_written_again_are_sent_again(tmp_path: Path) -> None:
    """As a run does that goes on from its last checkpoint; here it is given what the other place has."""
    here, there = tmp_path / "here", tmp_path / "there"
    (there / _RUN).mkdir(parents=True)
    _save(there / _RUN, 1, b"first\nsecond\n")
    mirror = Mirror(here, [_RUN], read_files(there, [_RUN]))
    assert _files(here) == _files(there)
    assert mirror.changes() == []
    (here / _RUN / "metrics.jsonl").write_bytes(b"first\nanother row\n")
    apply(there, mirror.changes())
    assert _files(there) == _files(here)


@pytest.mark.parametrize("where", ["{}/shared", "file://{}/shared", "memory://shared{}"])
def test_storage_holds_what_has_changed_and_lets_go_of_it(tmp_path: Path, where: str) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra ray or parquet")
    here, back = tmp_path / "here", tmp_path / "back"
    storage, mirror = Storage(where.format(tmp_path)), Mirror(here, [_RUN])
    for iteration in (1, 2, 3):
        _save(here / _RUN, iteration, b"row\n")
        storage.write(here, mirror.changes())
    apply(back, storage.read([_RUN]))
    assert _files(back) == _files(here)
    storage.drop([_RUN])
    assert storage.read([_RUN]) == []


def test_storage_that_cannot_be_is_refused_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra ray or parquet")
    (tmp_path / "file").write_text("in the way")
    for path in (str(tmp_path / "file" / "inside"), "nowhere://bucket/study"):
        with pytest.raises(ApilError, match="give a folder, or a path that pyarrow or fsspec can write to"):
            Storage(path)
