"""A write, a sync or a rename that fails ends a run in one line, and a resume ends as if it had not failed.

`benchmarks/faults.py` tries every call; here the first and the last of each kind fail.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from faults import RUNS, begin, calls_of, files, trial


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run whose answers another one begins with."""
    folder = tmp_path_factory.mktemp("faults") / "store"
    begin("store", folder, folder)
    return folder


@pytest.mark.parametrize("name", list(RUNS))
def test_an_error_at_any_call_is_one_line_and_a_resume_ends_with_the_same_bytes(
    name: str, source: Path, tmp_path: Path
) -> None:
    calls = calls_of(name, tmp_path / "whole", source)
    assert {"open", "write", "fsync", "replace", "ftruncate", "unlink"} <= set(calls)
    whole = files(tmp_path / "whole", name)
    assert "metrics.jsonl" in whole or RUNS[name].walks
    places = {kind: (calls.index(kind), len(calls) - 1 - calls[::-1].index(kind)) for kind in dict.fromkeys(calls)}
    points = [(at, lasting) for pair in places.values() for at, lasting in zip(pair, (True, False), strict=True)]
    wrong = [trial(name, at, tmp_path / f"{at}-{lasting}", source, whole, lasting=lasting) for at, lasting in points]
    assert not any(wrong), [told for told in wrong if told]


def test_half_a_row_never_stands_before_the_next(source: Path, tmp_path: Path) -> None:
    """Episodes in flight write their answers one by one: where one of them fails, the others are still told."""
    calls = calls_of("walks", tmp_path / "whole", source)
    whole = files(tmp_path / "whole", "walks")
    writes = [at for at, call in enumerate(calls) if call == "write"]
    for at in writes[8:20]:
        assert not trial("walks", at, tmp_path / str(at), source, whole, lasting=False)
