"""Every public name says what it is, with an example that runs."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path

import pytest
from example_parts import EXAMPLES, names_taken_back

import apil

_SMALL = {
    r"iterations=\d+": "iterations=2",
    r"seeds=\d+": "seeds=1",
    r"(episodes=|evaluate\()\d+": r"\g<1>4",
}
_SMALL_SEARCH = {r"trials = \d+": "trials = 1", r"seeds = \d+": "seeds = 1", r"episodes = \d+": "episodes = 4"} | {
    r"answers = .*": "answers = [4]",
    r"\[settings\]": "[settings]\niterations = 3",
}


class _Answers(doctest.OutputChecker):
    """Looks at what comes last: a progress bar may come before."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got[-len(want) :], optionflags)


@pytest.mark.parametrize("name", sorted(set(dir(apil)) - {"__version__"}))
def test_the_example_of_a_public_name_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = inspect.getdoc(getattr(apil, name)) or ""
    for what, small in _SMALL.items():
        text = re.sub(what, small, text)
    example = doctest.DocTestParser().get_doctest(text, {"apil": apil}, f"apil.{name}", None, None)
    assert example.examples, f"apil.{name} has no example in its docstring"
    monkeypatch.chdir(tmp_path)
    _write_search(tmp_path / "examples" / "tune.toml")
    said: list[str] = []
    with names_taken_back():
        found = doctest.DocTestRunner(_Answers(), verbose=False).run(example, out=said.append)
    assert found.failed == 0, "".join(said)


def _write_search(path: Path) -> None:
    """The example's search, small."""
    text = (EXAMPLES / path.name).read_text()
    for what, small in _SMALL_SEARCH.items():
        text = re.sub(what, small, text)
    path.parent.mkdir()
    path.write_text(text)
