"""What all tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

from apil.learning.build import configure_torch

# A slow machine is no failure.
settings.register_profile("apil", deadline=None)
settings.load_profile("apil")


@pytest.fixture(scope="session", autouse=True)
def _torch() -> None:
    """Every test computes as training does: one thread, and numbers too small for a full mantissa count as 0.

    The second is a setting of the processor: strategies of Hypothesis need `allow_subnormal=False`.
    """
    configure_torch()
