"""An R2R run that goes on is the run that was meant to be so long, to the byte."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from apil.cli import main


def _train(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["apil", "train", *arguments])
    main()


def _content(folder: Path) -> dict[str, bytes]:
    """All files that two equal runs share."""
    skip = {"timings.jsonl", "environment.json", ".lock"}
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in skip}


@pytest.mark.parametrize("query", ["dagger", "apil"])
def test_three_iterations_and_three_more_are_six(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, houses_data: Path, query: str
) -> None:
    settings = ("--task", "r2r", "--data", str(houses_data), "--query", query, "--batch", "6", "--log-every", "2")
    sizes = ("--option", "width=16", "heads=2", "--save-every", "2")
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    _train(monkeypatch, *settings, *sizes, "--iterations", "6", "--out", str(whole))
    _train(monkeypatch, *settings, *sizes, "--iterations", "3", "--out", str(stopped))
    short = _content(stopped)
    _train(monkeypatch, "--resume", str(stopped), "--iterations", "6")
    found, expected = _content(stopped), _content(whole)
    assert found.keys() == expected.keys()
    assert {"metrics.jsonl", "answers.jsonl"} < found.keys()
    assert any(name.endswith(".safetensors") for name in found)
    for name, content in expected.items():
        assert found[name] == content, name
    assert short["metrics.jsonl"] != expected["metrics.jsonl"]
