"""One call turns a study folder into tables, figures and a page that stands alone."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from made_up_study import write_study
from matplotlib.figure import Figure

from apil.errors import ApilError
from apil.studies.extras import Examples, Extras, extras_of
from apil.studies.figures import Plate
from apil.studies.findings import findings
from apil.studies.headline import Headline, headline
from apil.studies.pages import page
from apil.studies.paper import Reading
from apil.studies.records import StudyRecords, read_study
from apil.studies.report import build_report
from apil.studies.tables import Table
from apil.tasks import TASKS


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
    assert len(names) == 3 + 2 * 6 + 2, "three tables, six figures in two formats, the data of a chart, the page"
    assert all(path.parent == folder and path.stat().st_size for path in written)
    assert not [path for path in folder.iterdir() if path.name.startswith(".")], "no temporary file stays"


def test_a_second_report_is_the_same_to_the_byte(folder: Path, written: list[Path]) -> None:
    before = {path: path.read_bytes() for path in written}
    assert {path: path.read_bytes() for path in build_report(folder)} == before


def test_the_page_needs_nothing_from_elsewhere(html: str) -> None:
    assert re.findall(r'(?:src|href)="(?!data:|#)', html) == []
    assert "@import" not in html
    assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg)", html)
    assert len(html) < 5_000_000
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
    assert "IntrUn: 0.1. Found on detm." in html
    assert "What differs from the paper, and why" in html
    assert "The sign in Algorithm 2" in html
    assert "Difference from the paper (bits)" in html
    assert html.count("<figure") == 6


def test_findings_follow_the_records(tmp_path: Path) -> None:
    folder = write_study(tmp_path, task="maze", teachers=["detm", "rand"], queries=["dagger", "intrun", "apil"])
    said = " ".join(findings(read_study(folder)))
    assert "IntrUn ends up asking more than with Detm" in said
    _swap_cells(folder / "summary.json", "intrun", "apil")
    swapped = " ".join(findings(read_study(folder)))
    assert "APIL ends up asking more than with Detm" in swapped
    assert "IntrUn ends up" not in swapped


def test_the_first_screen_is_a_figure_three_sentences_and_a_small_table(tmp_path: Path) -> None:
    study = read_study(
        write_study(tmp_path, task="maze", teachers=["detm", "rand"], queries=["dagger", "apil", "never"])
    )
    names = ["figure_uncertainty", "figure_query_rate", "figure_success_answers"]
    first = headline(study, names)
    assert first.figure == "figure_success_answers"
    assert 1 <= len(first.sentences) <= 3
    assert first.sentences[0].startswith("The agent trained with APIL succeeds alone in ")
    assert first.header == ("rule", "Detm", "Rand")
    answers = study.cell("rand", "dagger").figure("answers").mean
    assert dict(first.rows)["DAgger"][1][1] == f"{answers:,.0f}", "below the success"


def test_where_everybody_succeeds_the_first_figure_is_how_often_they_ask(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, task="grid", queries=["dagger", "intrun", "apil"]))
    first = headline(study, ["figure_success_answers", "figure_query_rate"])
    assert first.figure == "figure_query_rate"
    assert first.sentences[2].endswith("than with Detm: IntrUn.")


def test_equal_success_is_said_to_tell_nothing(tmp_path: Path) -> None:
    grid, maze = (
        findings(read_study(write_study(tmp_path / task, task=task, teachers=["detm"], optional=False)))
        for task in ("grid", "maze")
    )
    assert "even one that never asked, reaches the goal" in grid[0]
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


_ODD = (
    r"$\frac{$",
    "<script>alert(1)</script>",
    "a\0b\x1b",
    "javascript:alert(1)",
    "https://evil.example/x",
    "[here](https://evil.example)",
    "_x|y",
)


def _rename(folder: Path, names: dict[str, str]) -> None:
    """Gives query policies other names in all records."""
    for path in folder.glob("*.json"):
        path.write_text(json.dumps(_renamed(json.loads(path.read_text()), names)))
    for path in folder.glob("*.csv"):
        with path.open(newline="") as file:
            rows = [[names.get(entry, entry) for entry in row] for row in csv.reader(file)]
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(rows)


def _renamed(data: Any, names: dict[str, str]) -> Any:
    if isinstance(data, dict):
        return {names.get(key, key): _renamed(value, names) for key, value in data.items()}
    if isinstance(data, list):
        return [_renamed(value, names) for value in data]
    return names.get(data, data) if isinstance(data, str) else data


def test_odd_labels_are_text_everywhere(tmp_path: Path) -> None:
    plain = ["dagger", "intrun", "apil", "behvun", "errpred", "random", "extrun"]
    folder = write_study(tmp_path, teachers=["detm"], queries=plain, seeds=2)
    _rename(folder, dict(zip(plain, _ODD, strict=True)))
    written = {path.name: path.read_bytes() for path in build_report(folder)}
    assert not [name for name, data in written.items() if not name.endswith(".png") and re.search(rb"[\0\x1b]", data)]
    page = written["report.html"].decode()
    assert "<script>alert" not in page
    assert not re.search(r'<a (?!href="#)', page)
    assert '<th scope="row">a\ufffdb\ufffd</th>' in page
    assert '<th scope="row">$\\frac{$</th>' in page
    tables = "".join(data.decode() for name, data in written.items() if name.endswith(".md"))
    assert "://" not in tables
    assert "](" not in tables.replace("\\](", "")
    assert "\n| _x\\|y |" in tables
    assert rb"<!-- $\frac{$ -->" in written["figure_query_rate.svg"], "drawn as it stands"


def test_a_label_like_an_address_leads_into_the_study(tmp_path: Path) -> None:
    table = Table("table_comparison", "All rules", (), ())
    first = Headline("", (), "", (), ())
    values = {"table": table, "headline": first, "leading": None, "figures": [], "findings": []}
    html = page("comparison", title="The study", tasks=["javascript:alert(1)", "a b?#"], **values)
    assert re.findall(r'href="([^"]*)"', html) == [
        "./javascript%3Aalert%281%29/report.html",
        "./a%20b%3F%23/report.html",
    ]


def test_more_processes_draw_the_same(folder: Path, written: list[Path]) -> None:
    before = {path: path.read_bytes() for path in written}
    build_report(folder, workers=3)
    assert {path: path.read_bytes() for path in written} == before


# What a task adds.


def _blank(study: StudyRecords) -> Figure:
    return Figure()


ADDED = Extras(
    printed={"detm": {"intrinsic": 0.5, "extrinsic": 0.25}},
    readings=(Reading("An open question", "Answered here."),),
    other_data=lambda summary: "elsewhere" if summary["seeds"] == 2 else "",
    tables=lambda study: [Table("table_extra", "An extra table", ("One note.",), ())],
    findings=lambda study: [f"{len(study.cells)} cells."],
    plates=lambda general: [Plate("figure_extra", "An extra figure", "How to read it.", _blank), general[2]],
    examples=Examples("Examples", "What they show.", "example_*.svg"),
)


@pytest.fixture
def registered() -> Iterator[None]:
    TASKS.register("added", lambda: None, "A task of another package", own=True, report="test_report:ADDED")
    yield
    TASKS.forget("added")


def test_a_task_from_outside_adds_its_parts_to_the_report(tmp_path: Path, registered: None) -> None:
    folder = write_study(tmp_path, task="added", teachers=["detm"], queries=["dagger", "apil"], seeds=3)
    (folder / "example_1.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (folder / "figure_uncertainty.png").write_text("of another study")
    names = {path.name for path in build_report(folder)}
    assert {"table_extra.md", "figure_extra.svg", "figure_query_rate.png"} <= names
    assert not (folder / "figure_uncertainty.png").exists(), "the task leaves this figure out"
    html = (folder / "report.html").read_text()
    for part in ("One note.", "How to read it.", "<li>2 cells.</li>", "What they show.", "An open question"):
        assert part in html
    assert '<figure id="example_1">' in html
    assert "The sign in Algorithm 2" in html
    assert "| paper | 0.50 |" in (folder / "table_uncertainty.md").read_text()


def test_other_data_than_the_papers_has_its_own_label_and_no_numbers_beside_it(
    tmp_path: Path, registered: None
) -> None:
    study = read_study(write_study(tmp_path, task="added", teachers=["detm"], queries=["apil"], seeds=2))
    assert (study.task, study.label, study.printed) == ("added", "elsewhere", {})


def test_a_task_that_is_not_registered_here_has_the_general_report(tmp_path: Path) -> None:
    folder = write_study(tmp_path, task="unheard-of", teachers=["detm"], queries=["apil"], seeds=1, optional=False)
    assert build_report(folder)
    assert extras_of("unheard-of") == Extras()


@pytest.mark.parametrize("report", ["nowhere:REPORT", "apil.studies.extras:NOTHING", "apil", 3])
def test_a_report_that_cannot_be_had_is_named_in_one_line(report: object) -> None:
    TASKS.register("added", lambda: None, "", own=True, report=report)
    try:
        with pytest.raises(ApilError, match=r"The (report of the )?task 'added'") as caught:
            extras_of("added")
    finally:
        TASKS.forget("added")
    assert "\n" not in str(caught.value)


def _swap_cells(path: Path, one: str, other: str) -> None:
    summary = json.loads(path.read_text())
    for cell in summary["cells"]:
        cell["query"] = {one: other, other: one}.get(cell["query"], cell["query"])
    path.write_text(json.dumps(summary))
