"""Calibration: the reported rate is measured, and the nearest to APIL's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apil.errors import ApilError
from apil.learning.trainer import Trainer
from apil.settings import RunSettings
from apil.studies.calibrate import FIRST_SEED, UNCALIBRATED, calibrate, calibrate_briefly

_BASE = RunSettings.of("grid", "detm", "apil", iterations=12, log_every=5)
_SEEDS = 2


def _rates(query: str, thresholds: list[float | None]) -> list[float]:
    """Query rates over whole runs with DETM, by independent training."""
    configs = [
        _BASE.changed(query=query, threshold=threshold, seed=FIRST_SEED + seed)
        for threshold in thresholds
        for seed in range(_SEEDS)
    ]
    trainer = Trainer(configs)
    trainer.train()
    steps = 8 * _BASE.iterations
    own = [rows[-1]["answers"] / steps for rows in trainer.rows]
    return [sum(own[place : place + _SEEDS]) / _SEEDS for place in range(0, len(own), _SEEDS)]


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    told: list[tuple[int, int]] = []
    result = calibrate(_BASE, ("errpred", "modlun", "random", "extrun"), _SEEDS, lambda *at: told.append(at))
    assert told == [(done, told[-1][1]) for done in range(1, told[-1][1] + 1)], "progress goes up to its total"
    return result


def test_the_target_is_apils_own_query_rate(found: dict[str, dict[str, Any]]) -> None:
    (apil,) = _rates("apil", [None])
    assert 0 < apil < 1
    for query in ("errpred", "modlun", "random"):
        assert found[query]["target"] == pytest.approx(apil)


@pytest.mark.parametrize("query", ["errpred", "modlun"])
def test_the_reported_rate_is_that_of_the_threshold_and_none_tried_is_nearer(
    found: dict[str, dict[str, Any]], query: str
) -> None:
    entry = found[query]
    # The first round of the search: eight thresholds over five decades.
    tried: list[float | None] = [float(f"{value:.4g}") for value in np.geomspace(1e-5, 1.0, 8)]
    measured, *others = _rates(query, [entry["threshold"], *tried])
    assert entry["query_rate"] == pytest.approx(measured)
    distance = abs(measured - entry["target"])
    assert all(distance <= abs(rate - entry["target"]) + 1e-12 for rate in others)
    assert f"{measured:.4f}" in entry["how"]
    assert "12 iterations" in entry["how"]


def test_random_asks_at_apils_rate_and_extrun_is_not_calibrated(found: dict[str, dict[str, Any]]) -> None:
    assert found["random"]["threshold"] == pytest.approx(found["random"]["target"], abs=1e-6)
    assert found["extrun"]["threshold"] == 0.002
    assert found["extrun"]["how"].startswith("Not calibrated")


@pytest.mark.parametrize("query", ["bc", "dagger", "apil", "never"])
def test_a_policy_without_a_threshold_cannot_be_calibrated(query: str) -> None:
    with pytest.raises(ApilError, match=f"'{query}' has no threshold. Policies to calibrate: intrun, extrun"):
        calibrate(_BASE, (query,), 1)


def test_a_threshold_found_briefly_asks_about_as_often_as_apil() -> None:
    """The rate that is told is that of a run with the threshold, and near the target."""
    base = RunSettings.of("maze", "detm", "apil", iterations=200, batch=16, epsilon=0.0)
    told: list[tuple[int, int]] = []
    found = calibrate_briefly(base, ["intrun", "behvun", "extrun", "random"], 1, lambda *at: told.append(at))
    assert told[-1][0] == told[-1][1]
    assert told == sorted(told)
    target = found["random"]["target"]
    assert found["behvun"]["threshold"] == found["intrun"]["threshold"]
    assert found["extrun"]["threshold"] == UNCALIBRATED["extrun"]
    config = base.changed(query="intrun", threshold=found["intrun"]["threshold"], iterations=40, seed=FIRST_SEED)
    trainer = Trainer([config])
    trainer.train()
    rows = trainer.rows[0]
    rate = sum(row["query_rate"] * row["steps"] for row in rows) / sum(row["steps"] for row in rows)
    assert rate == pytest.approx(found["intrun"]["query_rate"])
    assert abs(rate - target) < 0.15


def test_an_interrupted_search_goes_on_with_what_it_has(tmp_path: Path) -> None:
    """Runs that are noted are not made again: a target that was changed by hand in the notes is believed."""
    base = RunSettings.of("maze", "detm", "apil", iterations=25, batch=4, epsilon=0.0)
    kept = tmp_path / "calibration_runs.json"
    first = calibrate_briefly(base, ["intrun", "random"], 1, kept=kept)
    notes = json.loads(kept.read_text())
    assert calibrate_briefly(base, ["intrun", "random"], 1, kept=kept) == first
    assert json.loads(kept.read_text()) == notes
    target = next(name for name in notes if name.startswith("detm-apil-"))
    assert notes[target]["rate"] == first["random"]["target"]
    notes[target]["rate"] = 0.123
    kept.write_text(json.dumps(notes))
    assert calibrate_briefly(base, ["random"], 1, kept=kept)["random"]["target"] == 0.123
    other = base.changed(learning_rate=2e-3)
    assert calibrate_briefly(other, ["random"], 1, kept=kept)["random"]["target"] != 0.123


def test_a_threshold_with_which_a_policy_falls_silent_is_not_chosen(tmp_path: Path) -> None:
    """Asking a lot at first and never again gives the wanted rate over a run, and is not what is wanted."""
    base = RunSettings.of("maze", "detm", "apil", iterations=25, batch=4, epsilon=0.0)
    kept = tmp_path / "calibration_runs.json"
    first = calibrate_briefly(base, ["intrun"], 1, kept=kept)["intrun"]
    notes = json.loads(kept.read_text())
    for name, note in notes.items():
        if name.startswith("detm-apil-"):
            note["end"] = 0.3
        elif note["threshold"] is not None:  # an earlier search, in which every policy still asked in the end but one
            note["end"] = 0.0 if note["threshold"] == first["threshold"] else 0.3
    kept.write_text(json.dumps(notes))
    again = calibrate_briefly(base, ["intrun"], 1, kept=kept)["intrun"]
    assert again["threshold"] != first["threshold"]
    assert again["query_rate"] > 0.0
