"""Checks that the wheel works outside of the repository: `make release-check`.

Builds the wheel, installs it with the pinned versions into a new environment, and uses it from an empty folder: every
data file of the package is there, the versions agree, and both ways to start the command line list, train, evaluate
and teach. `--python` names another interpreter of the machine.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_SOURCE = _ROOT / "src"
_USES = (
    "apil --version",
    "python -m apil --version",
    "apil list",
    "apil train --task grid --teacher twodifdetm --iterations 3 --out run",
    "apil evaluate run --episodes 5",
    "apil teach --help",
    "apil study grid --seeds 1 --iterations 3 --episodes 5 --teachers detm --queries apil --out study",
    """python -c "import apil; print(apil.load('run'))" """,
)


def data_files() -> list[str]:
    """The files of the package that are no modules, by their paths in the wheel."""
    found = (path for path in (_SOURCE / "apil").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(path.relative_to(_SOURCE).as_posix() for path in found if path.suffix != ".py")


def missing(wheel: Path) -> list[str]:
    """What the package has and the wheel has not."""
    with zipfile.ZipFile(wheel) as packed:
        return sorted(set(data_files()) - set(packed.namelist()))


def check(python: str, folder: Path) -> None:
    """Builds, installs and uses the wheel in a folder outside of the repository."""
    pip = ("-m", "pip", "--quiet", "--disable-pip-version-check")
    environment, work = folder / "environment", folder / "work"
    work.mkdir()
    _run((sys.executable, *pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(_ROOT)), folder)
    (wheel,) = folder.glob("apil-*.whl")
    version = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["version"]
    if missing(wheel) or not wheel.name.startswith(f"apil-{version}-"):
        sys.exit(f"{wheel.name} (version {version}) lacks {missing(wheel)}: see package-data in pyproject.toml.")
    _run((python, "-m", "venv", str(environment)), folder)
    inside = str(environment / "bin" / "python")
    constraints = ("-c", str(_ROOT / "constraints.txt"))
    _run((inside, *pip, "install", *constraints, "torch"), folder)
    _run((inside, *pip, "install", *constraints, f"{wheel}[people]"), folder)
    for command in _USES:
        program, *words = shlex.split(command)
        said = _run((str(environment / "bin" / program), *words), work)
        if "--version" in words and version not in said:
            sys.exit(f"{command} prints {said.strip()!r}, and the wheel is {version}.")
    print(f"{wheel.name} works with {python}")


def _run(command: tuple[str, ...], folder: Path) -> str:
    print("+", *command, flush=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "APIL_", "VIRTUAL"))}
    done = subprocess.run(command, cwd=folder, env=clean, text=True, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}failed with code {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter of the new environment")
    with tempfile.TemporaryDirectory(prefix="apil-release-") as made:
        check(parser.parse_args().python, Path(made))
