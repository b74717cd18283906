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


VARIABLES = (
    "ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE", "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA", "ONEDNN_CPU_ISA_HINTS", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE",
    "OPENBLAS_CORETYPE", "BLIS_ARCH_TYPE", "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES", "GLIBC_TUNABLES",
)  # fmt: skip
"""Variables of the environment by which torch, NumPy and their libraries choose how to calculate."""
_VECTORS = re.compile(r"(s?sse|avx|fma|f16c|amx|xop|asimd|sve|neon|fp|bf16|i8mm)\w*")
_ARITHMETIC = ("torch", "numpy", "processor", "kernels", "features", "variables", "device")
"""What of `environment` changes the bytes of a run; `code` and `python` may."""


@cache
def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""


@cache
def _processor() -> str:
    """The model of the processor, as far as the system tells it."""
    found = re.search(r"^model name\s*:(.*)", _cpuinfo(), re.MULTILINE)
    return f"{platform.machine()} {found[1].strip() if found else platform.processor()}".strip()


@cache
def _features() -> str:
    """What the processor can calculate with, of vectors and fractions; empty where the system does not tell."""
    found = re.search(r"^(?:flags|Features)\s*:(.*)", _cpuinfo(), re.MULTILINE)
    return " ".join(sorted(flag for flag in (found[1].split() if found else ()) if _VECTORS.fullmatch(flag)))


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
    return ", ".join(_difference(name, before.get(name), now[name]) for name in _changed(before, now))


def changes_arithmetic(before: Any, now: dict[str, Any]) -> bool:
    """Whether the bytes of a run do change: it is calculated in another way."""
    return any(name in _ARITHMETIC for name in _changed(before if isinstance(before, dict) else {}, now))


def _changed(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    # What an older record lacks is not known; its code is another one anyway.
    always = ("code", "torch", "numpy", "python", "processor")
    return [
        name
        for name in (*always, "kernels", "features", "variables", "device")
        if before.get(name) != now[name] and (name in always or name in before)
    ]


def _difference(name: str, before: Any, now: Any) -> str:
    if name == "features" and isinstance(before, str):
        old, new = before.split(), now.split()
        differ = [f"+{one}" for one in new if one not in old] + [f"-{one}" for one in old if one not in new]
        return f"{name} of the processor {' '.join(differ)}"
    if isinstance(before, dict) and isinstance(now, dict):
        names = [one for one in {**before, **now} if before.get(one) != now.get(one)]
        return ", ".join(f"{one} {before.get(one, 'unset')} -> {now.get(one, 'unset')}" for one in names)
    return f"{name} {before} -> {now}"


def environment(device: str = "cpu") -> dict[str, Any]:
    """`device` is that of the run."""
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
        "kernels": torch.backends.cpu.get_cpu_capability(),
        "features": _features(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "cores": os.cpu_count(),
        "device": device,
    }
