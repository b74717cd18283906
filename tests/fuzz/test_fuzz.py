"""Odd command lines, study files, run folders and compiled data work, or are refused in one line.

`benchmarks/fuzz.py` plays many more of the same cases.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from fuzz_cases import KINDS
from fuzz_judge import MISHANDLED, Case, Made, make, play
from hypothesis import HealthCheck, given, settings

_NUMBERS = count()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """What cases start from."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return make(tmp_path_factory.mktemp("made"))


@pytest.mark.parametrize("kind", list(KINDS))
def test_an_odd_input_works_or_is_refused_in_one_line(
    kind: str, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))

    @settings(max_examples=12, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=KINDS[kind])
    def check(case: Case) -> None:
        found = play(case, made, tmp_path / f"case-{next(_NUMBERS)}")
        assert found.verdict != MISHANDLED, f"{found.why}: {case!r:.500}"

    check()
