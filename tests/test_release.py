"""What a release is made of agrees with itself. `make release-check` tries the wheel itself."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import apil
from release import data_files

_ROOT = Path(__file__).parents[1]
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text())


def test_one_version() -> None:
    cited = re.search(r"^version: (.*)$", (_ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.search(r"^## ([\d.]+)", (_ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited is not None
    assert newest is not None
    assert {cited[1], newest[1], _PROJECT["project"]["version"]} == {apil.__version__}


def test_the_wheel_has_every_data_file() -> None:
    package = _ROOT / "src" / "apil"
    patterns = _PROJECT["tool"]["setuptools"]["package-data"]["apil"]
    packed = {f"apil/{path.relative_to(package).as_posix()}" for pattern in patterns for path in package.glob(pattern)}
    assert set(data_files()) - packed == set(), "add a pattern to package-data"
