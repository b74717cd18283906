"""What a run is made with is noted, and a resume says when its bytes will differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from apil.runs import environment as module
from apil.runs.environment import changed_software, environment
from apil.runs.train import resume_run, start_run
from apil.settings import RunSettings

_CONFIG = RunSettings.of("grid", "detm", "dagger", iterations=2, save_every=1, hidden=8)


def _resumed(folder: Path, iterations: int) -> None:
    resume_run(folder, iterations=iterations, progress=lambda done: None)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    start_run(_CONFIG, tmp_path / "run", progress=lambda done: None)
    return tmp_path / "run"


def _noted(run: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((run / "environment.json").read_text())
    return found


def test_what_chooses_the_kernels_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    start_run(_CONFIG, tmp_path / "run", progress=lambda done: None)
    noted = _noted(tmp_path / "run")
    assert noted["kernels"] == torch.backends.cpu.get_cpu_capability()
    assert isinstance(noted["variables"], dict)
    assert noted["variables"]["MKL_CBWR"] == "COMPATIBLE"


@pytest.mark.parametrize("name", ["ATEN_CPU_CAPABILITY", "MKL_CBWR"])
def test_another_choice_of_kernels_is_told_on_resume(
    run: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(name, raising=False)
    _resumed(run, 3)
    capsys.readouterr()
    monkeypatch.setenv(name, "other")
    _resumed(run, 4)
    told = capsys.readouterr().err
    assert f"{name} unset -> other" in told
    assert "its bytes will differ from those of a run that was never stopped" in told
    _resumed(run, 5)
    assert "warning" not in capsys.readouterr().err, "it is noted now"


def test_other_kernels_and_features_are_told(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "ABACUS")
    monkeypatch.setattr(module, "_features", lambda: "beads")
    _resumed(run, 3)
    told = capsys.readouterr().err
    assert "-> ABACUS" in told
    assert "features of the processor +beads" in told
    assert "will differ" in told


def test_other_code_may_change_bytes(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "environment.json").write_text(json.dumps({**_noted(run), "code": "another"}))
    _resumed(run, 3)
    told = capsys.readouterr().err
    assert "code another -> " in told
    assert "its bytes may differ" in told


def test_an_older_record_lacks_nothing_that_it_could_not_have() -> None:
    now = environment()
    older = {name: value for name, value in now.items() if name not in ("kernels", "features", "variables")}
    assert changed_software(older, now) == ""
    assert changed_software({**now, "kernels": "ABACUS"}, now).startswith("kernels ABACUS -> ")
