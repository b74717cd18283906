"""Compiled data are vouched for: a changed table is noticed when they are opened, and by every run on them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_r2r import read_compiled, write_compiled
from torch import Tensor

import apil
from apil.cli import main
from apil.errors import ApilError
from apil.files import read_json, write_json
from apil.r2r.checksum import tables_checksum
from apil.r2r.world import FILE, World
from apil.runs.folder import load_config, load_run
from apil.runs.train import resume_run
from apil.settings import RunSettings
from apil.studies.plan import Cell

_TINY: dict[str, Any] = {"iterations": 2, "save_every": 1, "log_every": 1, "batch": 4, "width": 16, "heads": 2}
Tables = dict[str, Tensor]


def _forged(file: Path, change: Callable[[Tables], None]) -> None:
    """Other tables with a checksum that fits them."""
    about, tables = read_compiled(file)
    change(tables)
    write_compiled(file, about, tables)


def _triple(tables: Tables) -> None:
    tables["distances"] = tables["distances"] * 3


def _reverse(tables: Tables) -> None:
    """The words of every instruction in reverse order."""
    tokens, lengths = tables["train/tokens"].clone(), tables["train/tokens_length"]
    for row, length in zip(tokens, lengths.tolist(), strict=True):
        row[: length - 1] = row[: length - 1].flip(0)
    assert not torch.equal(tokens, tables["train/tokens"])
    tables["train/tokens"] = tokens


@pytest.fixture
def data(houses_data: Path, tmp_path: Path) -> Path:
    """A folder with compiled data, to change."""
    (tmp_path / "data").mkdir()
    return Path(shutil.copy(houses_data, tmp_path / "data" / FILE)).parent


def _trained(data: Path, out: Path) -> Path:
    apil.train(
        "r2r", "detm", "dagger", folder=out, as_printed=True, progress=False, options={"data": str(data)}, **_TINY
    )
    return out


def test_every_changed_table_is_noticed(data: Path) -> None:
    """One byte of each, where the bounds of the numbers notice nothing."""
    file = data / FILE
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    spans = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
    assert {"distances", "train/tokens", "glove"} <= set(spans)
    for name, (first, last) in spans.items():
        changed = bytearray(content)
        changed[start + (first + last) // 2] ^= 1
        file.write_bytes(changed)
        with pytest.raises(ApilError, match="it was changed since it was compiled") as caught:
            World.open(data)
        assert "\n" not in str(caught.value), name
    about, tables = read_compiled(file)
    write_compiled(file, {**about, "viewpoints": about["viewpoints"][::-1]}, tables, seal=False)
    with pytest.raises(ApilError, match="it was changed since it was compiled"):
        World.open(data)


@pytest.mark.parametrize("change", [_triple, _reverse])
def test_a_run_notices_data_that_were_changed_under_it(
    data: Path, tmp_path: Path, change: Callable[[Tables], None]
) -> None:
    run = _trained(data, tmp_path / "run")
    metrics = (run / "metrics.jsonl").read_bytes()
    _forged(data / FILE, change)
    World.open(data)
    for work in (
        lambda: resume_run(run, iterations=4, progress=lambda done: None),
        lambda: load_run(run),
        lambda: apil.load(run),
    ):
        with pytest.raises(ApilError, match=r"was changed since the run was trained on it .*: restore it"):
            work()
    assert (run / "metrics.jsonl").read_bytes() == metrics


def test_data_of_an_older_apil_open_and_are_vouched_for_by_the_run(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    about, tables = read_compiled(data / FILE)
    whole = World.open(data)
    del about["tables"]
    write_compiled(data / FILE, about, tables, seal=False)
    older = World.open(data)
    assert (older.vouched, whole.vouched) == (False, True)
    assert (older.tables, older.digest) == (whole.tables, whole.digest)
    main(["data", "show", str(data)])
    assert "No checksum, since an older apil compiled it: compile it again" in capsys.readouterr().out
    run = _trained(data, tmp_path / "run")
    _triple(tables)
    write_compiled(data / FILE, about, tables, seal=False)
    with pytest.raises(ApilError, match="was changed since the run was trained on it"):
        resume_run(run, iterations=4, progress=lambda done: None)


def test_a_run_of_an_older_apil_is_resumed_on_data_with_a_checksum(data: Path, tmp_path: Path) -> None:
    """Its config has none; its name in a study and its checkpoints are what they were."""
    run = _trained(data, tmp_path / "run")
    config = load_config(run)
    assert config.task.options["tables"] == World.open(data).tables
    values = read_json(run / "config.json")
    del values["task"]["options"]["tables"]
    older = RunSettings.from_json(values)
    assert Cell(older).folder == Cell(config).folder
    shutil.rmtree(run)
    run.mkdir()
    write_json(run / "config.json", values)
    resume_run(run, iterations=None, progress=lambda done: None)
    assert "tables" not in load_config(run).task.options
    load_run(run)


def test_the_runs_of_the_repository_keep_their_names() -> None:
    runs = sorted(Path(__file__).parents[2].glob("results/r2r/runs/*/config.json"))
    assert len(runs) > 30
    for path in runs:
        assert Cell(load_config(path.parent)).folder == path.parent.name


def test_a_checksum_tells_names_types_and_shapes_apart() -> None:
    zeros = np.zeros((2, 2), np.int16)
    others: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"a": zeros}, {}),
        ({"b": zeros}, {}),
        ({"a": zeros.reshape(4)}, {}),
        ({"a": zeros.view(np.float16)}, {}),
        ({"a": zeros, "b": zeros[:0]}, {}),
        ({"a": zeros}, {"scans": ["x"]}),
    ]
    assert len({tables_checksum(about, tables) for tables, about in others}) == len(others)
    assert tables_checksum({"tables": "x"}, {"a": zeros}) == tables_checksum({}, {"a": zeros})
