"""A run on disk: saved, loaded, the same agent; damaged, one clear error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from apil.errors import ApilError
from apil.files import read_rows, write_json
from apil.learning.evaluate import evaluate
from apil.learning.state import weights
from apil.learning.trainer import Trainer
from apil.runs.folder import load_config, load_run
from apil.runs.writer import Record, train_on
from apil.settings import RunSettings

_CONFIGS = [
    RunSettings.of("maze", teacher, query, seed=seed, iterations=4, batch=3, log_every=2, threshold=0.3)
    for seed, (teacher, query) in enumerate([("twodifdetm", "apil"), ("tworand", "bc"), ("twodifdetm", "errpred")])
]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainer, list[Path]]:
    folders = [tmp_path_factory.mktemp("run") for _ in _CONFIGS]
    records = [Record(folder, config) for folder, config in zip(folders, _CONFIGS, strict=True)]
    trainer = train_on(records, lambda done, since, took: False, lambda done: None)
    for record in records:
        record.close()
    return trainer, folders


@pytest.fixture(scope="module")
def trainer(stack: tuple[Trainer, list[Path]]) -> Trainer:
    return stack[0]


@pytest.fixture(scope="module")
def saved(stack: tuple[Trainer, list[Path]]) -> list[Path]:
    return stack[1]


@pytest.fixture
def copy(saved: list[Path], tmp_path: Path) -> Path:
    """A run folder to damage."""
    return Path(shutil.copytree(saved[0], tmp_path / "run"))


def test_a_run_out_of_a_stack_comes_back_the_same(trainer: Trainer, saved: list[Path]) -> None:
    expected = evaluate(trainer.agents, 30)
    for run, folder in enumerate(saved):
        config, agents = load_run(folder)
        assert config == _CONFIGS[run]
        own = weights(trainer.agents, run)
        loaded = weights(agents, 0)
        assert set(loaded) == set(own)
        assert all(torch.equal(value, loaded[name]) for name, value in own.items())
        assert evaluate(agents, 30) == [expected[run]]
        assert read_rows(folder / "metrics.jsonl") == trainer.rows[run]


def test_weights_are_named_by_part_and_fixed_rules_have_none_for_asking(trainer: Trainer) -> None:
    parts = [{name.split(".")[0] for name in weights(trainer.agents, run)} for run in range(3)]
    assert parts == [{"policy", "identity", "query"}, {"policy", "identity"}, {"policy", "identity", "query"}]


def _weight_files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.safetensors"))
    assert files
    return files


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "garbage", "missing"])
def test_damaged_weights_are_told_and_never_used(copy: Path, damage: str) -> None:
    for path in _weight_files(copy):
        content = path.read_bytes()
        middle = len(content) // 2
        if damage == "missing":
            path.unlink()
            continue
        path.write_bytes(
            {
                "cut": content[:middle],
                "flip": content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :],
                "empty": b"",
                "garbage": b"not a tensor" * 100,
            }[damage]
        )
    with pytest.raises(ApilError) as caught:
        load_run(copy)
    assert str(copy) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", [{"hidden": 7}, {"teacher": "first+last+uniform"}, {"task": "grid"}, {"query": "errpred", "hidden": 90}])  # fmt: skip  # noqa: E501
def test_weights_of_another_run_are_refused(copy: Path, change: dict[str, object]) -> None:
    write_json(copy / "config.json", load_config(copy).changed(**change).to_json())
    with pytest.raises(ApilError, match="of a run with other settings"):
        load_run(copy)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "Cannot read"),
        ("[1, 2]", "is not a run's config"),
        ("{}", "use another folder"),
        ('{"schema": 5, "mood": "new"}', "newer apil .schema 5.: upgrade"),
        ('{"schema": 2, "task": {"name": "grid", "hue": 3}}', "Not a run's config: unknown setting 'hue'"),
        ('{"schema": 1}', "Not a run's config"),
        ('{"schema": 1, "task": "grid", "teacher": "detm", "query": "bc", "hue": 3}', "Unknown setting 'hue'"),
        ('{"schema": 1, "task": "gird", "teacher": "detm", "query": "bc"}', "Unknown task 'gird'"),
    ],
)
def test_a_damaged_config_is_told(copy: Path, content: str, message: str) -> None:
    (copy / "config.json").write_text(content)
    with pytest.raises(ApilError, match=message):
        load_run(copy)


def test_a_folder_that_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(ApilError, match="There is no run folder"):
        load_run(tmp_path / "nowhere")
    with pytest.raises(ApilError, match=r"config\.json does not exist"):
        load_config(tmp_path)
