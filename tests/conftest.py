"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings
from made_up_r2r import made_up_files, write_folder

from apil.learning.build import configure_torch
from apil.r2r.compile import compile_world
from apil.r2r.houses_folder import write_houses
from apil.r2r.world import World

# A slow machine is no failure.
settings.register_profile("apil", deadline=None)
settings.load_profile("apil")


@pytest.fixture(scope="session", autouse=True)
def _torch() -> None:
    """Every test computes as training does: one thread, and numbers too small for a full mantissa count as 0.

    The second is a setting of the processor: strategies of Hypothesis need `allow_subnormal=False`.
    """
    configure_torch()


@pytest.fixture(scope="session")
def r2r_raw() -> Path:
    """The public Room-to-Room files, which are not part of the repository."""
    beside = Path(__file__).parents[1] / ".." / "shared" / "r2r" / "packed"
    folder = Path(os.environ.get("APIL_R2R_RAW", beside))
    if not folder.is_dir():
        pytest.skip("needs the public R2R files: set APIL_R2R_RAW to their folder (docs/guide/r2r.md)")
    return folder


@pytest.fixture(scope="session")
def r2r_world(r2r_raw: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The real world, compiled."""
    return World.open(compile_world(r2r_raw, tmp_path_factory.mktemp("r2r"), lambda stage, done, total: None))


@pytest.fixture(scope="session")
def made_up_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two small houses of `made_up_r2r`, compiled."""
    folder = tmp_path_factory.mktemp("made_up")
    raw = write_folder(folder / "raw", made_up_files())
    return compile_world(raw, folder, lambda stage, done, total: None)


@pytest.fixture(scope="session")
def houses_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three generated houses, compiled: two to train in, one unseen."""
    return write_houses(tmp_path_factory.mktemp("houses") / "three", 3, 0, lambda stage, done, total: None)
