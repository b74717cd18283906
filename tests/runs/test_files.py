"""Files: whole or not at all, and every failure one clear line."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apil.errors import ApilError
from apil.files import empty_folder, locked, make_folder, read_json, read_rows, write_json, write_text
from apil.runs.calibration import load_calibration, threshold_of

_numbers = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | _numbers | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(value=_values)
def test_json_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "value.json"
    write_json(path, value)
    assert read_json(path) == value


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"iteration": 20, "loss": 0.1 + 0.2, "none": None},
        {"iteration": 40, "word": "zwölf\u2028x"},
    ]
    write_text(tmp_path / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert read_rows(tmp_path / "rows.jsonl") == rows


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    for text in ("first", "second"):
        write_text(path, text)
    assert path.read_text() == "second"
    assert list(tmp_path.iterdir()) == [path]


def test_a_value_that_json_cannot_hold_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    write_json(path, {"good": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"bad": math.nan})
    assert read_json(path) == {"good": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "missing" / "x.json", tmp_path / "file" / "x.json", tmp_path):
        with pytest.raises(ApilError, match=f"Cannot write {path}"):
            write_text(path, "text")
    with pytest.raises(ApilError, match="Cannot create"):
        make_folder(tmp_path / "file" / "folder")


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"", b"[" * 100_000])
def test_a_damaged_file_is_named_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "damaged.json"
    path.write_bytes(content)
    with pytest.raises(ApilError, match=f"Cannot read {path}") as caught:
        read_json(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ApilError, match="does not exist"):
        read_json(tmp_path / "nowhere.json")
    with pytest.raises(ApilError, match="Cannot read"):
        read_rows(tmp_path / "nowhere.jsonl")


def test_a_folder_with_something_in_it_is_not_taken(tmp_path: Path) -> None:
    empty_folder(tmp_path / "a" / "b", "the run")
    empty_folder(tmp_path / "a" / "b", "the run")
    (tmp_path / "a" / "b" / "thesis.tex").write_text("dear to me")
    for taken in (tmp_path / "a" / "b", tmp_path / "a" / "b" / "thesis.tex"):
        with pytest.raises(ApilError, match="is not an empty folder: choose another --out for the run"):
            empty_folder(taken, "the run")


_HOLD = """
import sys, time, pathlib
from apil.files import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_folder_is_one_process_at_a_time_and_free_when_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        try:
            with pytest.raises(ApilError, match=r"^Another process is using .*: wait for it, or stop it"):
                locked(tmp_path).__enter__()
        finally:
            other.kill()
    for _ in range(2):
        with locked(tmp_path):
            pass
    empty_folder(tmp_path, "the run")


def test_a_folder_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ApilError, match=r"^Cannot write into .*file: .*Check its permissions\.$"):
        locked(tmp_path / "file").__enter__()


# Calibration files.


def test_a_calibration_overrides_the_shipped_thresholds_entry_by_entry(tmp_path: Path) -> None:
    shipped = load_calibration(None)
    path = tmp_path / "calibration.json"
    write_json(path, {"grid": {"intrun": {"threshold": 0.625, "how": "by hand"}}, "pond": {}})
    own = load_calibration(path)
    assert threshold_of(own, "grid", "intrun") == 0.625
    assert threshold_of(own, "grid", "bc") is None
    assert threshold_of(own, "pond", "intrun") is None
    for query in ("behvun", "errpred", "random"):
        assert threshold_of(own, "grid", query) == threshold_of(shipped, "grid", query)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "3",
        '{"grid": []}',
        '{"grid": {"intrun": 0.1}}',
        '{"grid": {"intrun": {"threshold": "0.1", "how": ""}}}',
        '{"grid": {"intrun": {"threshold": -1, "how": ""}}}',
        '{"grid": {"intrun": {"threshold": 1e999, "how": ""}}}',
        '{"grid": {"intrun": {"how": ""}}}',
        '{"grid": {"intrun": {"threshold": 0.1}}}',
    ],
)
def test_what_is_no_calibration_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(content)
    with pytest.raises(ApilError, match="is not a calibration"):
        load_calibration(path)
