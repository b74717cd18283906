"""The bill of a study whose runs are looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apil.files import read_json
from apil.studies.bill import bill_tables
from apil.studies.run import study

_STUDY = """
tasks = ["grid"]
teachers = ["twodifdetm"]
rules = ["dagger", "bc"]
seeds = 2
episodes = 20
[settings]
looks = 8
hidden = 8
models = 2
iterations = 12
log_every = 4
batch = 2
"""


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bill")
    (folder / "study.toml").write_text(_STUDY)
    study(folder / "study.toml", out=folder / "out", workers=1, progress=False)
    return next((folder / "out").rglob("bill.json")).parent


def test_looks_tell_the_cost_of_success_alone_and_what_more_would_bring(out: Path) -> None:
    found = read_json(out / "bill.json")
    assert found["source"] == "looks"
    for entry in found["entries"]:
        assert sum(entry["outlook"]["verdicts"].values()) == 2
        assert entry["outlook"]["gain"]["mean"] >= 0
        assert entry["last_hundred"]["mean"] is not None
    (table,) = bill_tables(out)
    assert "outlook" in table.blocks[0].header
    assert all(len(row) == len(table.blocks[0].header) for block in table.blocks for row in block.rows)


def test_a_study_without_a_bill_has_no_table(tmp_path: Path) -> None:
    assert bill_tables(tmp_path) == []


def test_runs_that_keep_no_answers_have_a_bill_without_teachers(tmp_path: Path) -> None:
    small: dict[str, Any] = {"hidden": 8, "models": 2, "iterations": 4, "batch": 2, "seeds": 1, "episodes": 5}
    study("grid", out=tmp_path, workers=1, progress=False, teachers=("twodifdetm",), queries=("dagger",), **small)
    (table,) = bill_tables(tmp_path)
    assert table.blocks[0].header[:2] == ("rule", "cost in all"), "nobody is said to have given 0 answers"


def test_teachers_without_prices_have_one_column_each(out: Path) -> None:
    (table,) = bill_tables(out)
    assert table.blocks[0].header[:4] == ("rule", "first: answers", "last: answers", "cost in all")
    for rule, *counts, cost in (row[:4] for row in table.blocks[0].rows):
        total = sum(float(count.split()[0]) for count in counts)
        assert total == pytest.approx(float(cost.split()[0]), abs=1.0), rule  # rounded to whole answers
