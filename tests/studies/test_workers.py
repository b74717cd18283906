from __future__ import annotations

import pytest

from apil.studies.workers import worker_pool


class TwoPartError(Exception):
    """Cannot be unpickled: it is made of two parts and keeps one."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)


def fail() -> None:
    raise TwoPartError(7, "a wire is loose")


def test_an_error_that_cannot_be_unpickled_still_says_what_it_was() -> None:
    with pytest.raises(RuntimeError, match="TwoPartError: a wire is loose"), worker_pool(1) as pool:
        pool.submit(fail).result()
