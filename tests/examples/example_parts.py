"""Examples as the tests use them: their parts registered for a while, their studies made tiny."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from apil.query import QUERY_POLICIES
from apil.select import SELECTORS
from apil.studies.run import study
from apil.tasks import TASKS
from apil.teachers import TEACHERS

EXAMPLES = Path(__file__).parents[2] / "examples"


@contextmanager
def names_taken_back() -> Iterator[None]:
    """What is registered meanwhile is forgotten in the end."""
    registries = (TASKS, TEACHERS, QUERY_POLICIES, SELECTORS)
    before = [set(registry.names()) for registry in registries]
    try:
        yield
    finally:
        for registry, known in zip(registries, before, strict=True):
            for own in set(registry.names()) - known:
                registry.forget(own)


@contextmanager
def imported(name: str) -> Iterator[ModuleType]:
    """An example as a module, by its path without the ending; the names that it registers are taken back in the end."""
    path, name = EXAMPLES / f"{name}.py", name.rpartition("/")[2]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    with names_taken_back():
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
            yield module
        finally:
            del sys.modules[name]


def tiny_study(name: str, folder: Path) -> Path:
    """Runs the example's study with two seeds and a few iterations; returns where it wrote."""
    text = (EXAMPLES / f"{name}.toml").read_text()
    for key, value in (("seeds", 2), ("episodes", 4), ("iterations", 6), ("batch", 2)):
        text, found = re.subn(rf"^{key} = \d+", f"{key} = {value}", text, flags=re.MULTILINE)
        assert found == 1
    text = re.sub(r"^log_every = .*\n", "", text, flags=re.MULTILINE)
    (folder / f"{name}.toml").write_text(text + "log_every = 2\n")
    study(folder / f"{name}.toml", out=folder / "out", workers=1)
    return folder / "out"


def lines_of_task(name: str) -> int:
    """Lines of the example up to where its task has a name, without blank ones and its docstring."""
    text = (EXAMPLES / f"{name}.py").read_text().split('"""', 2)[2]
    return sum(bool(line.strip()) for line in text[: text.index("apil.register_task")].splitlines()) + 1
