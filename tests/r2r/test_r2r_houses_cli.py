"""`apil data houses` as its users see it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from apil.cli import main


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _type(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["apil", "data", *arguments])
    main()


def test_houses_are_written_raw_and_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _type(monkeypatch, "houses", "--houses", "2")
    told = capsys.readouterr().out.splitlines()
    assert told[-2].startswith("2 houses with ")
    assert told[-1] == "Wrote data/houses/r2r.safetensors"
    compiled = (tmp_path / "data/houses/r2r.safetensors").read_bytes()
    # The compiler takes the raw files of the folder as it takes the public ones.
    _type(monkeypatch, "r2r", "--from", "data/houses", "--out", "data/again")
    assert (tmp_path / "data/again/r2r.safetensors").read_bytes() == compiled


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--houses", "0"), "apil: houses is 0: give "),
        (("--out", "mine"), "apil: mine holds other content (thesis.tex): give --out a new or empty folder, "),
        (("--out", "mine/thesis.tex"), "apil: mine/thesis.tex is a file: give --out a new folder.\n"),
    ],
)
def test_bad_arguments_end_with_one_line_and_code_2(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("years of work")
    with pytest.raises(SystemExit) as stop:
        _type(monkeypatch, "houses", *arguments)
    assert stop.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(message)
    assert told.count("\n") == 1
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "thesis.tex"]
