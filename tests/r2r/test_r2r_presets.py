"""The presets of R2R: from a store of answers unless a run is to be as printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apil.r2r.options import PRESETS, sizes_of
from apil.runs.resolve import resolve
from apil.settings import RunSettings


def _settings(data: Path, as_printed: bool = False, **given: Any) -> RunSettings:
    return resolve("r2r", "twodifdetm", "apil", {"data": str(data), **given}, {}, as_printed=as_printed).settings


def test_a_desk_learns_from_a_store_and_as_printed_without(houses_data: Path) -> None:
    store, printed = _settings(houses_data), _settings(houses_data, as_printed=True)
    assert store.learner.replay > 0
    assert store.learner.updates > 1
    assert sizes_of(store.task.options).persona_gate
    assert not sizes_of(printed.task.options).persona_gate
    # The study's: nothing of the store, not even among what names a run.
    names = printed.identity()
    assert not {"replay", "updates", "validation"} & names.keys()
    assert "persona_gate" not in printed.task.options
    assert {name: names[name] for name in PRESETS["desk"].settings} == PRESETS["desk"].settings
    assert store.task.options == {**printed.task.options, **PRESETS["desk"].learning_sizes}


def test_what_is_typed_goes_before_the_preset(houses_data: Path) -> None:
    typed = _settings(houses_data, persona_gate=False, updates=7, width=16)
    assert typed.learner.updates == 7
    assert sizes_of(typed.task.options).persona_gate is False
    assert sizes_of(typed.task.options).width == 16
    without = _settings(houses_data, replay=0).learner
    assert (without.replay, without.updates, without.validation) == (0, 1, 0.0)


@pytest.mark.parametrize("as_printed", [False, True])
def test_the_papers_preset_is_as_printed_anyway(houses_data: Path, as_printed: bool) -> None:
    paper = _settings(houses_data, as_printed=as_printed, preset="paper")
    assert (paper.learner.replay, paper.iterations) == (0, 100_000)
    assert not sizes_of(paper.task.options).persona_gate
