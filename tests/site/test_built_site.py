"""The built site, as `make docs` leaves it in site/: links lead somewhere, and every page can be read and used."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import cache, partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest
from browsers import browser, needs_browser, page_of
from looks import faint, out_of_reach, without_words

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_SITE = Path(__file__).parents[2] / "site"
_PAGES = sorted(path for path in _SITE.rglob("*.html") if path.name not in ("404.html", "report.html"))
"""The pages of the theme. Reports of studies have tests of their own."""
_KINDS = ("index", "guide/minigrid", "reference/teachers", "notebooks/grid", "method/uncertainty", "guide/people")
"""A page of each kind: tables and a picture, code and links to it, signatures, a notebook, formulas, other blocks."""

pytestmark = pytest.mark.skipif(not _PAGES, reason="there is no site: make docs builds it")


class _Links(HTMLParser):
    """What a page refers to, and what in it can be referred to."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.targets |= {given[name] for name in ("href", "src") if name in given}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}


@cache
def _links(page: Path) -> _Links:
    found = _Links()
    found.feed(page.read_text(encoding="utf-8"))
    return found


def _leads(page: Path, target: str) -> bool:
    link = urlsplit(target)
    if link.scheme or link.netloc:
        return True
    there = (page.parent / unquote(link.path)).resolve() if link.path else page
    if not there.is_file():
        return False
    return not link.fragment or there.suffix != ".html" or unquote(link.fragment) in _links(there).anchors


def test_every_link_and_anchor_of_the_site_leads_somewhere() -> None:
    wrong = [
        f"{page.relative_to(_SITE)}: {target}"
        for page in _PAGES
        for target in sorted(_links(page).targets)
        if not _leads(page, target)
    ]
    assert wrong == []


class _Server(ThreadingHTTPServer):
    request_queue_size = 64  # a browser opens many connections at once


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of a server: from a file, browsers start no worker for the search."""
    with _Server(("127.0.0.1", 0), partial(_Silent, directory=str(_SITE))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def shown() -> Iterator[Browser]:
    with browser() as found:
        yield found


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_on_the_site_is_faint(shown: Browser, site: str, scheme: str) -> None:
    found = {}
    with page_of(shown, f"{site}/index.html") as page:
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        grounds = set()
        for name in _KINDS:
            page.goto(f"{site}/{name}.html")
            grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            found[name] = faint(page)
        assert len(grounds) == 1
        assert (grounds == {"rgb(255, 255, 255)"}) == (scheme == "light"), "the scheme of the system is followed"
    assert {name: texts for name, texts in found.items() if texts} == {}


@needs_browser
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("name", _KINDS)
def test_pictures_and_controls_have_names_and_the_page_fits(shown: Browser, site: str, name: str, width: int) -> None:
    with page_of(shown, f"{site}/{name}.html", width) as page:
        assert without_words(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@needs_browser
def test_every_control_is_reached_by_keyboard(shown: Browser, site: str) -> None:
    with page_of(shown, f"{site}/reference/select.html") as page:
        assert out_of_reach(page) == []
