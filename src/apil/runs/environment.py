"""What made a run: versions, commit, machine."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import apil


@cache
def code_hash() -> str:
    """Sixteen hex digits over the package's source files: another code gives another number."""
    digest = hashlib.sha256()
    root = Path(apil.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@cache
def _processor() -> str:
    """The model of the processor, as far as the system tells it."""
    try:
        found = re.search(r"^model name\s*:(.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return f"{platform.machine()} {found[1].strip() if found else platform.processor()}".strip()


@cache
def _commit() -> str | None:
    """The commit of the checkout that the package is run from, with '+' where files differ from it."""
    command = ["git", "-C", str(Path(apil.__file__).parent), "describe", "--always", "--abbrev=40", "--dirty=+"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def changed_software(before: Any, now: dict[str, Any]) -> str:
    """What differs between two records of `environment` and may change the bytes of a run, in words; else empty."""
    before = before if isinstance(before, dict) else {}
    changed = [name for name in ("code", "torch", "numpy", "python", "processor") if before.get(name) != now[name]]
    return ", ".join(f"{name} {before.get(name)} -> {now[name]}" for name in changed)


def environment() -> dict[str, Any]:
    import numpy
    import torch

    return {
        "apil": apil.__version__,
        "code": code_hash(),
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }
