"""A real browser for tests, where the system has one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this system: install chromium")
_QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@contextmanager
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_QUIET))
        try:
            yield found
        finally:
            found.close()


@contextmanager
def page_of(shown: Browser, link: str, width: int = 1280, height: int = 800) -> Iterator[Page]:
    """A page in a context of its own, which must not complain."""
    context = shown.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(120_000)  # beside other work a browser may take long to start
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(link)
    yield page
    context.close()
    assert faults == []
