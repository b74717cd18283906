"""Names for parts."""

from __future__ import annotations

import pytest

from apil.errors import ApilError
from apil.query import QUERY_POLICIES, THRESHOLD_POLICIES
from apil.registry import Registry
from apil.tasks import TASKS
from apil.teachers import TEACHERS


def test_a_part_is_found_by_name_in_the_order_of_registration() -> None:
    registry = Registry("shape")
    registry.register("square", "math:sqrt", "a square")
    registry.register("circle", "math:pi", "a circle")
    assert registry.names() == ("square", "circle")
    assert [entry.summary for entry in registry] == ["a square", "a circle"]
    assert registry.load("square")(9) == 3
    assert registry.check("circle") == "circle"


def test_an_unknown_name_gets_the_nearest_match_and_all_known_ones() -> None:
    with pytest.raises(ApilError) as caught:
        TEACHERS.load("TwoRnd")
    message = str(caught.value)
    assert message.startswith("Unknown teacher 'TwoRnd'. Did you mean 'tworand'?")
    assert all(name in message for name in TEACHERS.names())


def test_a_name_like_no_other_gets_no_guess() -> None:
    with pytest.raises(ApilError, match=r"^Unknown task 'xyzzy'\. Known: grid, maze, r2r\.$"):
        TASKS.check("xyzzy")


def test_a_name_can_be_taken_once() -> None:
    registry = Registry("shape")
    registry.register("square", "math:sqrt", "a square")
    with pytest.raises(ApilError, match="'square' is registered already"):
        registry.register("square", "math:pi", "another")


@pytest.mark.parametrize("registry", [TASKS, TEACHERS, QUERY_POLICIES], ids=lambda registry: registry.kind)
def test_every_registered_part_can_be_loaded(registry: Registry) -> None:
    assert all(callable(registry.load(name)) for name in registry.names())


def test_the_policies_with_a_threshold_are_registered() -> None:
    assert set(THRESHOLD_POLICIES) <= set(QUERY_POLICIES.names())
