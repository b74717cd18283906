"""The report in a real browser, from a file and without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browsers import browser, needs_browser, page_of
from looks import faint, out_of_reach, without_words
from made_up_study import write_study

from apil.studies.report import build_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = needs_browser
LONG = "a rule with a rather long name variance@0.17"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_study(tmp_path_factory.mktemp("study"), task="maze", seeds=2)
    for name in ("summary.json", "metrics.csv", "teachers.json"):
        (folder / name).write_text((folder / name).read_text().replace("modlun", LONG))
    build_report(folder)
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def shown() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.mark.parametrize("width", [1280, 400])
def test_the_first_figure_is_above_the_fold_and_nothing_scrolls_sideways(
    shown: Browser, report: str, width: int
) -> None:
    with page_of(shown, report, width) as page:
        box = page.locator("figure .chart").first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 800
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        inside = "e => e.getBoundingClientRect().right <= innerWidth && e.scrollWidth <= e.clientWidth + 1"
        assert page.locator(".legend button").evaluate_all(f"all => all.every({inside})"), "no name is cut off"
        assert page.locator("img").evaluate_all("all => all.every(e => e.alt.length > 10)")


def test_a_wide_window_shows_whole_tables(shown: Browser, report: str) -> None:
    with page_of(shown, report, 1200) as page:
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        cut = "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.getAttribute('aria-label'))"
        assert page.locator("#table_queries .scroll").evaluate_all(cut) == []


def test_a_rule_is_hidden_and_values_are_read_with_the_keyboard(shown: Browser, report: str) -> None:
    with page_of(shown, report) as page:
        chart = page.locator("figure .chart").first
        marks = chart.locator("circle").count()
        key = chart.locator(".legend button", has_text="DAgger")
        key.focus()
        page.keyboard.press("Space")
        assert key.get_attribute("aria-pressed") == "false"
        assert chart.locator("circle").count() == marks - 4, "one for each teacher"
        chart.locator("svg").first.focus()
        page.keyboard.press("ArrowRight")
        tip = chart.locator(".tip").inner_text()
        assert "APIL: 0." in tip
        assert "DAgger" not in tip
        page.keyboard.press("Escape")
        assert not chart.locator(".tip").is_visible()


def test_pointing_at_a_curve_shows_every_rule_there(shown: Browser, report: str) -> None:
    with page_of(shown, report) as page:
        panel = page.locator("#figure_query_rate svg").first
        panel.scroll_into_view_if_needed()
        panel.hover()
        tip = page.locator("#figure_query_rate .tip").inner_text()
        assert "training iteration" in tip
        assert tip.count("[") == 10


def test_a_table_is_sorted_by_its_headings_and_back(shown: Browser, report: str) -> None:
    with page_of(shown, report) as page:
        table = page.locator(".first table")
        names = table.locator("tbody th")
        before = names.all_inner_texts()
        heading = table.locator("thead button").nth(1)
        heading.click()
        assert names.all_inner_texts()[-1] == "never", "the lowest success is last"
        heading.click()
        assert names.all_inner_texts()[0] == "never"
        heading.click()
        assert names.all_inner_texts() == before


RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_in_a_report_is_faint_nameless_or_out_of_reach(shown: Browser, report: str, width: int) -> None:
    with page_of(shown, report, width) as page:
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        assert (faint(page), without_words(page), out_of_reach(page)) == ([], [], [])
        page.emulate_media(color_scheme="dark")
        assert faint(page) == []


@pytest.mark.parametrize("name", ["budget", "whom", "maze", "grid", "minigrid/room"])
@pytest.mark.parametrize("width", [1280, 400])
def test_committed_reports_begin_with_a_chart(shown: Browser, name: str, width: int) -> None:
    with page_of(shown, (RESULTS / name / "report.html").as_uri(), width) as page:
        assert faint(page) == []
        box = page.locator("figure .chart").first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 800
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_rows_of_a_benchmark_are_read_with_the_keyboard(shown: Browser) -> None:
    with page_of(shown, (RESULTS / "budget" / "report.html").as_uri()) as page:
        chart = page.locator("figure .chart").first
        rows = chart.locator("circle").count()
        chart.locator("svg").first.focus()
        seen = []
        for _ in range(rows):
            page.keyboard.press("ArrowDown")
            seen.append(chart.locator(".tip").inner_text())
        assert len(set(seen)) == rows, "each row has its own figures"
        assert any(text.startswith("SLIP") for text in seen)
        page.keyboard.press("Escape")
        assert not chart.locator(".tip").is_visible()
