"""Names for parts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import apil
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


# Parts from outside apil.


def _five() -> int:
    """Always five."""
    return 5


def test_a_factory_is_registered_as_it_is_and_can_be_forgotten() -> None:
    apil.register_query_policy("my-five", _five, needs_threshold=True)
    try:
        assert QUERY_POLICIES.load("my-five") is _five
        assert QUERY_POLICIES.entry("my-five").summary == "Always five."
        assert QUERY_POLICIES.trait("my-five", "needs_threshold", False) is True
        assert QUERY_POLICIES.trait("my-five", "takes_budget", False) is False
        apil.register_query_policy("my-five", _five)  # a module that is imported twice is no mistake
        with pytest.raises(ApilError, match="'my-five' is registered already"):
            apil.register_query_policy("my-five", len)
    finally:
        QUERY_POLICIES.forget("my-five")
    with pytest.raises(ApilError, match="Unknown query policy 'my-five'"):
        QUERY_POLICIES.check("my-five")


def test_what_comes_with_apil_stays() -> None:
    with pytest.raises(ApilError, match="'bc' comes with apil and stays"):
        QUERY_POLICIES.forget("bc")


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("a+b", _five, "'a\\+b' cannot be typed"),
        ("", _five, "'' cannot be typed"),
        ("mine", 5, "registered with 5: give a factory"),
        ("mine", "module.attribute", "registered with 'module.attribute': give a factory, or 'module:attribute'"),
    ],
)
def test_what_cannot_be_a_part_is_refused(name: str, target: Any, message: str) -> None:
    with pytest.raises(ApilError, match=message):
        apil.register_task(name, target)


_PLUGIN = """
import apil

class Mine:
    '''A rule of mine.'''

for register in (apil.register_task, apil.register_teacher, apil.register_query_policy):
    register("mine", Mine)
"""


def _listed(tmp_path: Path, plugins: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "APIL_PLUGINS": plugins}
    command = [sys.executable, "-m", "apil.cli", "list"]
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)


def test_a_plugin_file_and_an_entry_point_are_listed(tmp_path: Path) -> None:
    (tmp_path / "my_parts.py").write_text(_PLUGIN)
    information = tmp_path / "other-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[apil.query_policies]\ntheirs = other.rules:Theirs\n")
    done = _listed(tmp_path, "my_parts.py")
    listed = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("  ")]
    assert listed.count(["mine", "A rule of mine."]) == 3, done.stderr
    assert ["theirs", "of other (other.rules:Theirs)"] in listed


def test_a_plugin_file_imports_its_neighbours(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "named_here.py").write_text("NAME = 'near'\n")
    (folder / "own.py").write_text("import apil\nimport named_here\napil.register_task(named_here.NAME, dict)\n")
    done = _listed(tmp_path, "parts/own.py")
    assert "  near " in done.stdout, done.stderr


def test_a_plugin_that_fails_is_one_line(tmp_path: Path) -> None:
    done = _listed(tmp_path, "nowhere_at_all")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "APIL_PLUGINS names 'nowhere_at_all', which cannot be imported: ModuleNotFoundError" in done.stderr
