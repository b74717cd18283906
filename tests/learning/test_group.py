"""Some runs of a stack: their records, and putting what belongs to groups back in order."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch
from torch import Tensor

from apil.learning.build import build
from apil.learning.collect import collect
from apil.learning.group import Group, Groups, Places, take
from apil.rng import Streams
from apil.settings import RunSettings
from apil.types import Belief, Episodes, Reference, Uncertainty


def _belief() -> Belief:
    parts = torch.arange(5 * 4 * 2, dtype=torch.float).view(5, 4, 2)
    state = torch.rand(4, 2, 3, generator=torch.Generator().manual_seed(0))
    return Belief(state, state[..., :2], state[..., 2:], Uncertainty(*parts), remaining=7)


@pytest.mark.parametrize("runs", [slice(1, 3), torch.tensor([3, 0])])
def test_a_taken_record_has_the_same_fields_of_some_runs(runs: Places) -> None:
    whole = _belief()
    some: Belief = take(whole, runs)
    assert isinstance(some, Belief)
    assert torch.equal(some.state, whole.state[runs])
    assert some.state is some.state, "taken once"
    assert (some.remaining, some.drawn, some.of_model) == (7, None, None)
    for part in fields(Uncertainty):
        assert torch.equal(getattr(some.uncertainty, part.name), getattr(whole.uncertainty, part.name)[runs])


def test_a_taken_record_is_a_record_like_any_other() -> None:
    some: Belief = take(_belief(), slice(1, 3))
    again: Belief = take(some, slice(1, 2))
    assert torch.equal(again.mean, _belief().mean[2:3])
    changed = replace(some, remaining=3)
    assert changed.remaining == 3
    assert torch.equal(changed.identity, some.identity)
    with pytest.raises(FrozenInstanceError):
        some.remaining = 4  # type: ignore[misc]
    assert {field.name for field in fields(some)} == {field.name for field in fields(Belief)}


def test_situations_are_taken_by_themselves() -> None:
    class Situations:
        def __init__(self, places: Tensor) -> None:
            self.places = places

        def of_runs(self, runs: Places) -> Situations:
            return Situations(self.places[runs])

    number = torch.zeros(3, 1)
    reference = Reference(number, number, number, Situations(torch.arange(3)))  # type: ignore[arg-type]
    assert take(reference, slice(1, 3)).situations.places.tolist() == [1, 2]


@pytest.mark.parametrize(
    "places", [[slice(0, 2), slice(2, 5)], [slice(2, 5), slice(0, 2)], [torch.tensor([0, 3, 4]), torch.tensor([2, 1])]]
)
def test_what_belongs_to_groups_is_put_in_the_order_of_the_stack(places: list[Places]) -> None:
    stack = torch.arange(10).view(5, 2)
    groups = Groups(Group(runs, Streams([]), None, "") for runs in places)
    assert torch.equal(groups.join([stack[runs] for runs in places]), stack)


def test_how_runs_are_ordered_in_a_stack_changes_no_run() -> None:
    """Query policies and teachers that stand side by side, or apart."""
    configs = [
        RunSettings.of("maze", teacher, query, seed=seed, threshold=0.3 if query == "errpred" else None)
        for seed, (teacher, query) in enumerate([("tworand", "apil"), ("twodifdetm", "bc"), ("tworand", "errpred")] * 2)
    ]
    order = [3, 0, 5, 2, 1, 4]
    found: Episodes = collect(build(configs), 0, 3)
    shuffled: Episodes = collect(build([configs[run] for run in order]), 0, 3)
    for field in fields(Episodes):
        if field.name != "uncertainty":
            whole, other = getattr(found, field.name), getattr(shuffled, field.name)
            torch.testing.assert_close(whole[order], other, atol=0, rtol=0, equal_nan=True)
