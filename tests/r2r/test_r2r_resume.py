"""An R2R run that goes on is the run that was meant to be so long, to the byte."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from safetensors import safe_open

from apil.cli import main
from apil.files import read_rows


def _train(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["apil", "train", *arguments])
    main()


def _content(folder: Path) -> dict[str, bytes]:
    """All files that two equal runs share."""
    skip = {"timings.jsonl", "environment.json", ".lock"}
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in skip}


_STORE = ("--replay", "4", "--updates", "3", "--validation", "0.2", "--recent", "0.5")


@pytest.mark.parametrize(
    ("query", "optimizer", "width", "more"),
    [
        ("dagger", "adam", 16, ()),
        ("apil", "adam", 16, ()),
        ("apil", "muon", 64, ()),
        ("apil", "muon", 64, (*_STORE, "--budget", "0.3")),
        ("apil", "adam", 16, (*_STORE, "--budget", "0.3", "--asking", "review", "--answer-budget", "60")),
    ],
)
def test_three_iterations_and_three_more_are_six(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    houses_data: Path,
    query: str,
    optimizer: str,
    width: int,
    more: tuple[str, ...],
) -> None:
    place = ("--task", "r2r", "--data", str(houses_data), "--as-printed")
    settings = (*place, "--query", query, "--batch", "6", "--log-every", "2", *more)
    sizes = ("--width", str(width), "--heads", "2", "--optimizer", optimizer, "--save-every", "2")
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
    last = max(path for path in stopped.iterdir() if path.match("checkpoint-*.safetensors"))
    with safe_open(last, framework="pt") as opened:
        names = set(opened.keys())
    # What Muon turns has no second moment.
    assert ("adam.policy.second.step.0.f.1.w" in names) == (optimizer == "adam")
    assert "adam.policy.first.step.0.f.1.w" in names
    assert short["metrics.jsonl"] != expected["metrics.jsonl"]


def test_a_store_without_an_answer_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, houses_data: Path
) -> None:
    """No episode is learned from as long as nobody has been asked."""
    place = ("--task", "r2r", "--data", str(houses_data), "--as-printed", "--batch", "6", *_STORE)
    asks = ("--query", "random", "--threshold", "0", "--width", "16", "--heads", "2", "--iterations", "2")
    _train(monkeypatch, *place, *asks, "--log-every", "1", "--out", str(tmp_path / "run"))
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert [(row["answers"], row["policy_loss"]) for row in rows] == [(0, 0.0), (0, 0.0)]
