"""R2R is a plug-in like any other: what does not need it does not load it, and nothing else names it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]

_TRAIN = """
import json, sys
from apil.cli import main

for words in ("train --task maze --iterations 2 --out run", "evaluate run --episodes 2", "replay run"):
    main(words.split())
print(json.dumps(sorted(name for name in sys.modules if name.startswith("apil.r2r"))))
"""


def test_a_maze_training_loads_no_module_of_r2r(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _TRAIN], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_r2r_is_named_by_its_own_files_and_where_it_is_registered() -> None:
    command = ["git", "grep", "-il", "r2r", "--", "src/apil"]
    try:
        found = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("needs git")
    if found.returncode != 0:
        pytest.skip("needs the repository")
    others = [name for name in found.stdout.splitlines() if not name.startswith("src/apil/r2r/")]
    assert others == ["src/apil/tasks/__init__.py"]
