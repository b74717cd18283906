"""One call turns a study folder into tables, figures and a page that stands alone."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from made_up_study import write_study

from apil.errors import ApilError
from apil.studies.findings import findings
from apil.studies.records import read_study
from apil.studies.report import build_report


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grid")
    return write_study(folder, teachers=["detm", "twodifdetm"], queries=["dagger", "intrun", "apil"], seeds=3)


@pytest.fixture(scope="module")
def written(folder: Path) -> list[Path]:
    return build_report(folder)


@pytest.fixture(scope="module")
def html(folder: Path, written: list[Path]) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def test_everything_is_written_into_the_folder_and_named(folder: Path, written: list[Path]) -> None:
    names = {path.name for path in written}
    assert {"report.html", "table_uncertainty.md", "table_queries.md", "table_teachers.md"} <= names
    assert {f"figure_personas.{ending}" for ending in ("png", "svg")} <= names
    assert len(names) == 3 + 2 * 6 + 1
    assert all(path.parent == folder and path.stat().st_size for path in written)
    assert not [path for path in folder.iterdir() if path.name.startswith(".")], "no temporary file stays"


def test_a_second_report_is_the_same_to_the_byte(folder: Path, written: list[Path]) -> None:
    before = {path: path.read_bytes() for path in written}
    assert {path: path.read_bytes() for path in build_report(folder)} == before


def test_the_page_needs_nothing_from_elsewhere(html: str) -> None:
    assert re.findall(r'(?:src|href)="(?!data:)', html) == []
    assert "<script" not in html
    assert "@import" not in html
    assert 'name="viewport"' in html


def test_the_page_is_well_formed(html: str) -> None:
    class Balance(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            if tag not in ("meta", "img"):
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

    parser = Balance()
    parser.feed(html)
    assert parser.open == []


def test_the_page_says_how_it_was_made_and_what_differs(html: str, folder: Path) -> None:
    assert f"apil study grid --seeds 3 --iterations 1000 --out {folder.name}" in html
    assert "intrun: 0.1. Found on detm." in html
    assert "What differs from the paper, and why" in html
    assert "The sign in Algorithm 2" in html
    assert "Difference from the paper (bits)" in html
    assert html.count("<figure") == 6


def test_findings_follow_the_records(tmp_path: Path) -> None:
    folder = write_study(tmp_path, task="maze", teachers=["detm", "rand"], queries=["dagger", "intrun", "apil"])
    said = " ".join(findings(read_study(folder)))
    assert "intrun ends up asking more than under detm" in said
    _swap_cells(folder / "summary.json", "intrun", "apil")
    swapped = " ".join(findings(read_study(folder)))
    assert "apil ends up asking more than under detm" in swapped
    assert "intrun ends up" not in swapped


def test_equal_success_is_said_to_tell_nothing(tmp_path: Path) -> None:
    grid, maze = (
        findings(read_study(write_study(tmp_path / task, task=task, teachers=["detm"], optional=False)))
        for task in ("grid", "maze")
    )
    assert "also one that never asked, reaches the goal" in grid[0]
    assert not any("reaches the goal" in sentence for sentence in maze)
    assert any("best success alone" in sentence for sentence in maze)


def test_the_smallest_study_has_a_report(tmp_path: Path) -> None:
    folder = write_study(
        tmp_path, task="maze", teachers=["rand"], queries=["never"], seeds=1, iterations=50, optional=False
    )
    summary = json.loads((folder / "summary.json").read_text())
    unknown = {"mean": None, "low": None, "high": None}
    summary["cells"][0] |= {"success_alone": unknown, "intrinsic": unknown}
    (folder / "summary.json").write_text(json.dumps(summary))
    assert build_report(folder)[-1].name == "report.html"
    html = (folder / "report.html").read_text(encoding="utf-8")
    assert "1 seed, so no interval" in html
    assert "The maze is not in the paper" in html
    assert "nan" not in re.sub(r"base64,[^\"]*", "", html)


def test_no_study_no_report(tmp_path: Path) -> None:
    with pytest.raises(ApilError, match=r"No 'summary\.json'"):
        build_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def _swap_cells(path: Path, one: str, other: str) -> None:
    summary = json.loads(path.read_text())
    for cell in summary["cells"]:
        cell["query"] = {one: other, other: one}.get(cell["query"], cell["query"])
    path.write_text(json.dumps(summary))
