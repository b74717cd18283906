"""The documentation as a site: what the repository's links become, what it loads, what it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from site_pages import in_repository, listing, outside_assets, rewritten, site_path

import apil
import apil.teachers

_ROOT = Path(__file__).parents[1]
_REFERENCE = "".join(page.read_text() for page in (_ROOT / "docs" / "reference").glob("*.md"))


@pytest.mark.parametrize(
    ("page", "link", "there"),
    [
        ("README.md", "docs/paper.md", "paper.md"),
        ("README.md", "docs/decisions/", "decisions/index.md"),
        ("README.md", "results/grid/figure_query_rate.png", "results/grid/figure_query_rate.png"),
        ("docs/guide/budget-tasks.md", "../../examples/budget", "../examples/budget/index.md"),
        ("docs/guide/minigrid.md", "../../results/grid/table_queries.md#x", "../results/grid/table_queries.md#x"),
        ("docs/guide/minigrid.md", "../method/r2r.md", "../method/r2r.md"),
        ("SECURITY.md", "docs/guide/threat-model.md", "guide/threat-model.md"),
        ("CODE_OF_CONDUCT.md", "https://example.org/a.md", "https://example.org/a.md"),
    ],
)
def test_links_lead_to_the_same_place_on_the_site(page: str, link: str, there: str) -> None:
    assert rewritten(f"see [this]({link}), once", page) == f"see [this]({there}), once"


@pytest.mark.parametrize("path", ["README.md", "CHANGELOG.md", "docs/paper.md", "results/grid/table_queries.md"])
def test_a_page_of_the_site_is_known_by_its_path_in_the_repository(path: str) -> None:
    assert in_repository(site_path(path)) == path


def test_a_folder_becomes_a_list_of_its_pages_by_title() -> None:
    first = (_ROOT / "docs" / "decisions" / "0001-runs-as-stacks.md").read_text().splitlines()[0].removeprefix("# ")
    assert f"- [{first}](0001-runs-as-stacks.md)" in listing("docs/decisions").splitlines()


@pytest.mark.parametrize(
    ("html", "loads"),
    [
        ('<script src="https://cdn.example/x.js"></script>', ["https://cdn.example/x.js"]),
        ('<link rel="stylesheet" href="//fonts.example/a.css">', ["//fonts.example/a.css"]),
        ("body { background: url(https://a.example/b.png) }", ["https://a.example/b.png"]),
        ('<a href="https://example.org">a link</a> <img src="figure.png">', []),
        ('<link rel="canonical" href="https://example.org/">', []),
    ],
)
def test_what_a_page_loads_from_another_host_is_found(html: str, loads: list[str]) -> None:
    assert outside_assets(html) == loads


def test_the_reference_names_everything_public() -> None:
    public = [f"apil.{name}" for name in dir(apil)]
    public += [f"apil.teachers.{name}" for names in apil.teachers._HOMES.values() for name in names]
    missing = [name for name in public if not re.search(rf"(::: |`){re.escape(name)}(`|$)", _REFERENCE, re.MULTILINE)]
    assert missing == [], "add them to docs/reference"
