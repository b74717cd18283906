"""Training on another device than the CPU: the whole path on a second kind of device, which refuses to mix the two."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import apil
from apil.device import Device
from apil.errors import ApilError
from apil.learning.build import NAMED, Parts
from apil.learning.trainer import Trainer
from apil.runs.folder import load_run
from apil.runs.resolve import resolve
from apil.runs.train import resume_run, start_run
from apil.settings import RunSettings
from apil.tasks.maze import Maze
from apil.teachers.team import Team
from second_device import MixedDevicesError, second_device

_SMALL: dict[str, Any] = {"iterations": 3, "log_every": 1, "batch": 4, "hidden": 8, "persona": 4}
_STORE: dict[str, Any] = {"replay": 8, "updates": 2, "window": 16, "validation": 0.25, "average": 0.9}


def _trained(settings: list[RunSettings], parts: Parts) -> Trainer:
    trainer = Trainer(settings, parts=parts)
    trainer.train()
    return trainer


def _assert_same_on_another_device(settings: list[RunSettings], parts: Parts = NAMED, *, float64: bool = True) -> None:
    expected = _trained(settings, parts)
    with second_device(float64=float64) as name:
        device = Device(name)
        device.float64 = float64
        found = _trained(settings, replace(parts, device=device))
        assert {value.device.type for value in found.agents.model.policy.values()} == {name}
        for run, rows in enumerate(found.rows):
            # The kernels are the same, but torch may put several together in other ways.
            assert rows == [pytest.approx(row, rel=1e-3, abs=1e-6) for row in expected.rows[run]]
            assert list(found.state(run)) == list(expected.state(run))
        trained = found.trained_agents()
    assert {value.device.type for value in trained.model.policy.values()} == {"cpu"}


@pytest.mark.parametrize(
    ("task", "query", "more"),
    [
        ("grid", "apil", {}),
        ("maze", "apil", {**_STORE, "encode": 8, "standardise": True}),
        ("maze", "intrun", {**_STORE, "budget": 0.3, "optimizer": "muon", "answer_budget": 10}),
        ("maze", "thriftydagger", _STORE),
        ("maze", "slip", {**_STORE, "budget": 0.3, "window": 4}),
        ("maze", "rnd", {**_STORE, "asking": "review", "budget": 0.3}),
    ],
)
def test_a_run_on_another_device_is_the_same_run(task: str, query: str, more: dict[str, Any]) -> None:
    _assert_same_on_another_device([RunSettings.of(task, "twodifdetm", query, **_SMALL, **more)])


def test_a_device_without_float64_is_enough() -> None:
    more = {**_STORE, "standardise": True, "budget": 0.3}
    _assert_same_on_another_device([RunSettings.of("maze", "detm", "apil", **_SMALL, **more)], float64=False)


def test_a_stack_of_different_runs_trains_on_another_device() -> None:
    kinds = [("detm", "apil"), ("rand", "intrun"), ("detm", "apil")]
    runs = [RunSettings.of("grid", *kind, threshold=0.5, seed=seed, **_SMALL) for seed, kind in enumerate(kinds)]
    _assert_same_on_another_device([run.changed(threshold=None) if run.query.name == "apil" else run for run in runs])


def test_continuous_actions_are_learned_on_another_device() -> None:
    task = apil.from_gymnasium("Pendulum-v1", distance="steps", horizon=5)
    team = Team({"hard": lambda seen, rng: [-2.0 * seen[1]], "soft": lambda seen, rng: [-seen[1]]})
    settings = resolve(task, "hard+soft", "apil", {**_SMALL, **_STORE}, {}).settings
    _assert_same_on_another_device([settings], Parts(task, team))


def test_an_encoder_of_a_task_is_learned_on_another_device() -> None:
    task = Maze()
    task.encoder = lambda: torch.nn.Sequential(torch.nn.Linear(task.state_size, 6), torch.nn.BatchNorm1d(6))
    settings = RunSettings.of("maze", "detm", "apil", **_SMALL, **_STORE)
    _assert_same_on_another_device([settings], Parts(task))


def test_a_run_can_change_its_device_on_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = RunSettings.of("grid", "detm", "apil", **_SMALL)
    start_run(settings, tmp_path / "run", progress=lambda done: None)
    with second_device() as name:
        more = resume_run(tmp_path / "run", iterations=6, progress=lambda done: None, parts=Parts(device=Device(name)))
    assert more.iteration == 6
    assert f"device cpu -> {name}" in capsys.readouterr().err
    _, agents = load_run(tmp_path / "run")
    assert {value.device.type for value in agents.model.policy.values()} == {"cpu"}


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cuda:900"])
def test_a_device_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(ApilError, match="device is"):
        apil.train("grid", "detm", device=name, progress=False)


def test_r2r_trains_on_another_device(houses_data: Path) -> None:
    small = {"data": str(houses_data), "width": 16, "heads": 2, "persona_gate": True, "branch_dropout": 0.1}
    settings = resolve("r2r", "twodifdetm", "apil", {**_SMALL, **_STORE, **small}, {}).settings
    _assert_same_on_another_device([settings], float64=False)


def test_a_tensor_on_the_wrong_device_is_noticed() -> None:
    with second_device() as name, pytest.raises(MixedDevicesError, match="cpu"):
        torch.ones(2, device=name) + torch.ones(2)
