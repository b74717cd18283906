"""The settings of a run: what is refused, where they are derived to, and the way to JSON and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apil.cli.train import options
from apil.errors import ApilError
from apil.learning.build import stack_shape
from apil.rng import Streams
from apil.settings import RunSettings
from apil.settings.keywords import RunKeywords
from apil.settings.record import arguments_of, described
from apil.settings.run import LEAVES
from apil.studies.plan import Cell
from keywords import keywords

_SOURCE = Path(__file__).parents[1]


def _settings(**settings: Any) -> RunSettings:
    return RunSettings.of(**{"task": "grid", "teacher": "detm", "query": "bc", **settings})


def test_settings_survive_json() -> None:
    some = _settings(weights=(0.25, 0.75), teacher="twodifdetm", threshold=0.125, seed=-4, expectation="monte-carlo")
    for settings in (some, _settings(), _settings(optimizer="muon", options={"size": 4})):
        saved = json.loads(json.dumps(settings.to_json()))
        assert RunSettings.from_json(saved) == settings
        assert hash(RunSettings.from_json(saved)) == hash(settings)


def test_the_flat_form_of_older_folders_is_read() -> None:
    old = {"schema": 1, "task": "grid", "teacher": "detm", "query": "random", "batch": 7, "threshold": 0.5}
    assert RunSettings.from_json(old) == _settings(query="random", batch=7, threshold=0.5)


def test_committed_runs_have_the_names_that_their_settings_give() -> None:
    """A study finds its finished runs by these names: a new setting must not change them."""
    folders = sorted((_SOURCE / "results" / "r2r" / "runs").iterdir())
    assert len(folders) > 30
    for folder in folders:
        run = RunSettings.from_json(json.loads((folder / "config.json").read_text()))
        assert Cell(run).folder == folder.name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"iterations": 0}, "iterations is 0: give a whole number from 1"),
        ({"iterations": 10**12}, "iterations is 1000000000000: give"),
        ({"batch": -1}, "batch is -1"),
        ({"batch": 2**63}, "batch is 9223372036854775808"),
        ({"seed": 2**63}, "seed is 9223372036854775808"),
        ({"learning_rate": 0.0}, "learning-rate is 0"),
        ({"learning_rate": float("nan")}, "learning-rate is nan"),
        ({"learning_rate": float("inf")}, "learning-rate is inf"),
        ({"samples": 0}, "samples is 0"),
        ({"models": 0}, "models is 0"),
        ({"hidden": 0}, "hidden is 0"),
        ({"hidden": True}, "hidden is True"),
        ({"persona": 0}, "persona is 0"),
        ({"log_every": 0}, "log-every is 0"),
        ({"dropout": 1.0}, "dropout is 1"),
        ({"dropout": -0.1}, "dropout is -0.1"),
        ({"sigma": 1.0}, "sigma is 1: progress needs a factor above 1"),
        ({"sigma": float("inf")}, "sigma is inf"),
        ({"epsilon": -1.0}, "epsilon is -1"),
        ({"epsilon": float("inf")}, "epsilon is inf"),
        ({"gap": float("nan")}, "gap is nan: give a number from 0 to 1e9, or estimate"),
        ({"gap": 1e308}, "gap is 1e\\+308"),
        ({"threshold": -0.5}, "threshold is -0.5"),
        ({"query": "random", "threshold": 1.5}, "for random it is a probability"),
        ({"threshold": 0.1, "budget": 0.1}, "a threshold or a budget, not both"),
        ({"expectation": "guess"}, "expectation is 'guess': give monte-carlo or exact"),
        ({"optimizer": "sgd"}, "optimizer is 'sgd': give adam or muon"),
        ({"task": "gr\0id"}, "name is 'gr.x00id': give printable text"),
        ({"options": {"a": [1]}}, "options is .*: give plain values by name"),
        ({"colour": "red"}, "Unknown setting 'colour'"),
    ],
)
def test_a_setting_out_of_range_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ApilError, match=message) as caught:
        _settings(**settings)
    assert "\n" not in str(caught.value)


@given(rate=st.floats(0.0, 1.0, exclude_max=True, allow_subnormal=False))
def test_an_accepted_dropout_rate_gives_finite_masks(rate: float) -> None:
    accepted = _settings(dropout=rate).model.dropout
    assert bool(torch.isfinite(Streams([0]).draws("mask", 0).kept(accepted, 50)).all())


@pytest.mark.parametrize(
    "values",
    [
        {"schema": 1, "teacher": "detm", "query": "bc"},
        {"schema": 1, "task": "grid", "teacher": "detm", "query": "bc", "colour": "red"},
        {"schema": 2, "task": {"name": "grid"}, "teachers": {"name": "detm"}, "query": {"name": "bc", "colour": 1}},
        {"schema": 2, "task": "grid", "teachers": {"name": "detm"}, "query": {"name": "bc"}},
        {"schema": 1},
    ],
)
def test_a_file_that_is_no_config_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ApilError, match="Not a run's config"):
        RunSettings.from_json(values)


@pytest.mark.parametrize(
    "wrong",
    [{"iterations": "many"}, {"iterations": None}, {"weights": 3}, {"threshold": "high"}, {"hidden": 2.5}, {"task": 1}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_setting_of_the_wrong_type_is_refused(wrong: dict[str, Any]) -> None:
    flat = {"schema": 1, "task": "grid", "teacher": "detm", "query": "bc"}
    with pytest.raises(ApilError):
        RunSettings.from_json({**flat, **wrong})


def test_every_setting_can_be_typed_and_is_a_keyword() -> None:
    typed = set(options(()).__dataclass_fields__)  # type: ignore[attr-defined]
    assert set(LEAVES) - {"options"} <= typed
    assert {"task", "teacher", "query", *get_type_hints(RunKeywords)} == set(LEAVES)
    assert (_SOURCE / "src/apil/settings/keywords.py").read_text() == keywords()
    assert all(leaf.help for leaf in LEAVES.values())


_OTHER: dict[str, Any] = {
    "task": "maze", "options": {"size": 6}, "teacher": "rand", "weights": (1.0,), "selection": "query",
    "query": "dagger", "query_options": {"k": 3}, "gap": "estimate", "expectation": "monte-carlo", "optimizer": "muon",
    "on_teacher_error": "skip", "answers": False, "dropout": 0.5, "average": 0.5, "sigma": 3.0,
    "asking": "review", "standardise": True, "recent": 0.5, "validation": 0.5,
    "select": "cheapest", "select_options": {"power": 1}, "switch_cost": 0.5, "acting": "by-skill",
    "stop": "never",
}  # fmt: skip


@pytest.mark.parametrize("name", list(LEAVES))
def test_runs_share_a_stack_only_where_a_setting_may_differ(name: str) -> None:
    """A setting that nobody thought of when stacks were written keeps runs apart."""
    base = _settings(replay=8, looks=5, stop="when-flat")
    other = base.changed(**{name: _OTHER.get(name, 0.25 if name in ("threshold", "budget") else 7)})
    assert other.value(name) != base.value(name)
    may_differ = {
        "teacher", "weights", "selection", "query", "threshold", "budget", "query_options", "seed", "save_every",
        "expectation", "samples", "answer_budget", "select", "select_options", "switch_cost", "acting",
        "stop", "patience",
    }  # fmt: skip
    assert (stack_shape(other) == stack_shape(base)) == (name in may_differ)


def test_the_arguments_of_a_factory_are_read_off_it() -> None:
    def factory(setup: Any, size: int, *, share: float = 0.5, mode: str = "a", odd=None) -> None:  # type: ignore[no-untyped-def]
        """Of no use."""

    arguments = arguments_of(factory, skip=1)
    assert list(described(arguments)) == ["size", "share", "mode", "odd"]
    assert arguments(3).share == 0.5
    for wrong, message in (
        ({}, "size is missing"),
        ({"size": "x"}, "size is 'x': give a whole number"),
        ({"size": 1, "share": float("inf")}, "share is inf: give a finite number"),
        ({"size": 1, "mode": "\n"}, "mode is .*: give printable text"),
        ({"size": 1, "odd": [1]}, "odd is"),
        ({"size": 1, "shape": 2}, "Unknown setting 'shape'. Did you mean 'share'"),
    ):
        with pytest.raises(ApilError, match=message):
            arguments(**wrong)
