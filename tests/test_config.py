"""The settings of a run: what is refused, and the way to JSON and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from apil.config import RunConfig
from apil.errors import ApilError
from apil.rng import Streams


def _config(**settings: Any) -> RunConfig:
    return RunConfig(**{"task": "grid", "teacher": "detm", "query": "bc", **settings})


def test_a_config_survives_json() -> None:
    config = _config(weights=(0.25, 0.75), teacher="twodifdetm", threshold=0.125, seed=-4, expectation="monte-carlo")
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert RunConfig.from_json(json.loads(json.dumps(_config().to_json()))) == _config()


def test_an_optimizer_survives_json_and_is_adam_where_none_is_named() -> None:
    saved = json.loads(json.dumps(_config(optimizer="muon").to_json()))
    assert RunConfig.from_json(saved) == _config(optimizer="muon")
    del saved["optimizer"]
    assert RunConfig.from_json(saved) == _config()
    with pytest.raises(ApilError, match="optimizer") as caught:
        RunConfig.from_json({**saved, "optimizer": 3})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"iterations": 0}, "iterations is 0: give a number above 0"),
        ({"batch": -1}, "batch is -1"),
        ({"learning_rate": 0.0}, "learning-rate is 0"),
        ({"learning_rate": float("nan")}, "learning-rate is nan"),
        ({"learning_rate": float("inf")}, "learning-rate is inf"),
        ({"samples": 0}, "samples is 0"),
        ({"models": 0}, "models is 0"),
        ({"hidden": 0}, "hidden is 0"),
        ({"persona": 0}, "persona is 0"),
        ({"log_every": 0}, "log-every is 0"),
        ({"dropout": 1.0}, "dropout is 1"),
        ({"dropout": -0.1}, "dropout is -0.1"),
        ({"dropout": float("nan")}, "dropout is nan"),
        ({"sigma": 1.0}, "sigma is 1: progress needs a factor above 1"),
        ({"epsilon": -1.0}, "epsilon is -1"),
        ({"gap": float("nan")}, "gap is nan"),
        ({"threshold": -0.5}, "threshold is -0.5"),
        ({"threshold": float("nan")}, "threshold is nan"),
        ({"expectation": "guess"}, "expectation is 'guess': give monte-carlo or exact"),
        ({"optimizer": "sgd"}, "optimizer is 'sgd': give adam or muon"),
    ],
)
def test_a_setting_out_of_range_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ApilError, match=message) as caught:
        _config(**settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("rate", [0.0, 0.5, 1 - 1e-6])
def test_a_dropout_rate_that_is_accepted_can_be_drawn(rate: float) -> None:
    accepted = _config(dropout=rate).dropout
    assert bool(torch.isfinite(Streams([0]).draws("mask", 0).kept(accepted, 50)).all())


@pytest.mark.parametrize(
    "values",
    [
        {"schema": 1, "teacher": "detm", "query": "bc"},
        {"schema": 1, "task": "grid", "teacher": "detm", "query": "bc", "colour": "red"},
        {"schema": 1},
    ],
)
def test_a_file_that_is_no_config_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ApilError, match="Not a run's config"):
        RunConfig.from_json(values)


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(ApilError, match="unknown settings: colour"):
        RunConfig.from_json({**_config().to_json(), "colour": "red"})


@pytest.mark.parametrize(
    "wrong",
    [{"iterations": "many"}, {"iterations": None}, {"weights": 3}, {"threshold": "high"}, {"hidden": 2.5}, {"task": 1}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_setting_of_the_wrong_type_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ApilError):
        RunConfig.from_json({**_config().to_json(), **wrong})
