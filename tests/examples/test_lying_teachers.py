"""The worked example "teachers that lie about the distance", in small."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

_EXAMPLE = Path(__file__).parents[2] / "examples" / "lying_teachers.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(_EXAMPLE))


@pytest.fixture(scope="module")
def written(example: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lying")
    sizes = ["--seeds", "2", "--iterations", "20", "--episodes", "20"]
    example["main"]([*sizes, "--out", str(out), "--noises", "0", "1", "--missing", "1"])
    return out


def test_the_sweep_writes_a_table_and_a_figure(written: Path) -> None:
    lines = (written / "table.md").read_text().splitlines()
    assert [line.split(" | ")[:3] for line in lines[2:]] == [
        ["| DAgger", "0%", "0%"],
        ["| APIL", "0%", "0%"],
        ["| APIL", "100%", "0%"],
        ["| APIL", "0%", "100%"],
    ]
    assert (written / "figure.png").stat().st_size > 10_000
    assert "<svg" in (written / "figure.svg").read_text()


def test_lies_reach_the_query_rule_and_nothing_else(written: Path) -> None:
    records = json.loads((written / "records.json").read_text())
    assert len(records) == 8
    for seed in (0, 1):
        dagger, honest, noisy, silent = ([r for r in records if r["seed"] == seed][k] for k in range(4))
        assert dagger["asked"] == 1.0
        assert noisy != honest
        assert silent["asked"] > honest["asked"], "without any distance there is never progress: it asks on and on"
