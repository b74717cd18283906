"""Tables state what was measured, beside what was expected and what the paper prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_up_study import HEADER, write_study

from apil.errors import ApilError
from apil.studies.records import QUERIES, TEACHERS, read_study
from apil.studies.tables import all_tables, queries_table, teachers_table, uncertainty_table
from apil.studies.text import spelled


@pytest.fixture(scope="module")
def study_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("study"))


def test_uncertainty_stands_beside_expectation_and_paper_for_every_trainer(study_folder: Path) -> None:
    text = uncertainty_table(read_study(study_folder)).markdown()
    assert "| expectation | 0.000 | 0.727 | 0.727 | 0.000 |" in text
    assert "| paper | 0.04 | 0.72 | 0.72 | 0.05 |" in text
    assert "| paper | 0.00 | 0.00 | 0.00 | 0.56 |" in text
    assert all(text.count(f"| {spelled(query)} |") == 2 for query in QUERIES)
    for said in ("exact", "5 seeds", "1,000 training iterations", "bits", "last tenth of training"):
        assert said in text


def test_a_figure_whose_interval_misses_the_papers_number_is_marked(tmp_path: Path) -> None:
    folder = write_study(tmp_path, teachers=["rand"], queries=["dagger", "bc"], optional=False)
    summary = json.loads((folder / "summary.json").read_text())
    for cell, low in zip(summary["cells"], (0.70, 0.80), strict=True):
        cell["intrinsic"] = {"mean": low + 0.02, "low": low, "high": low + 0.04}
        cell["extrinsic"] = {"mean": 0.004, "low": 0.004, "high": 0.004}
    (folder / "summary.json").write_text(json.dumps(summary))
    intrinsic, extrinsic = uncertainty_table(read_study(folder)).blocks
    assert ("dagger", "0.720 [0.700, 0.740]") in intrinsic.rows
    assert ("bc", "0.820 [0.800, 0.840] ≠") in intrinsic.rows
    assert ("bc", "0.004 [0.004, 0.004]") in extrinsic.rows, "0.004 rounds to the paper's 0.00"


def test_a_task_outside_the_paper_has_no_row_for_it(tmp_path: Path) -> None:
    text = uncertainty_table(read_study(write_study(tmp_path, task="maze", optional=False))).markdown()
    assert "| paper |" not in text
    assert "| expectation | 0 | > 0 | > 0 | 0 |" in text, "without records only the sign is known"


def test_questions_are_listed_for_each_teacher_and_policy(study_folder: Path) -> None:
    table = queries_table(read_study(study_folder))
    assert [block.heading for block in table.blocks] == [f"Teacher {spelled(teacher)}" for teacher in TEACHERS]
    first = table.blocks[0]
    assert [row[0] for row in first.rows] == list(QUERIES)
    dagger = dict(zip(first.header, first.rows[1], strict=True))
    assert dagger["query rate, last tenth"] == "1.000 [1.000, 1.000]"
    assert dagger["answers, whole run"] == "8,000 [8,000, 8,000]"
    assert "success with help" not in first.header, "a figure that no cell has gets no column"


def test_a_committee_is_said_to_be_one_teacher_or_several(study_folder: Path) -> None:
    table = teachers_table(read_study(study_folder))
    blocks = {block.heading.split()[1].rstrip(":"): block for block in table.blocks}
    assert "their true policies differ" in blocks["TwoDifDetm"].heading
    assert "their true policies are the same" in blocks["TwoRand"].heading
    assert blocks["TwoDifDetm"].rows[0][1] == "0.600 [0.600, 0.600]"
    assert blocks["Detm"].rows[0][1] == "–"


def test_a_study_without_teacher_records_has_the_other_tables(tmp_path: Path) -> None:
    tables = all_tables(read_study(write_study(tmp_path, optional=False)))
    assert [table.name for table in tables] == ["table_uncertainty", "table_queries"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("summary.json", "{", "not JSON"),
        ("summary.json", "{}", "not as expected"),
        ("summary.json", "[]", "not an object"),
        ("metrics.csv", "teacher,query\n", "lacks the columns"),
        ("metrics.csv", ",".join(HEADER) + "\ngrid,detm,bc,0,20" + ",x" * 8 + "\n", "not a number"),
    ],
)
def test_broken_records_are_named_in_one_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    folder = write_study(tmp_path, teachers=["detm"], queries=["bc"], seeds=1, optional=False)
    (folder / name).write_text(content)
    with pytest.raises(ApilError, match=message) as caught:
        read_study(folder)
    assert "\n" not in str(caught.value)


def test_a_folder_that_holds_no_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ApilError, match=r"summary\.json"):
        read_study(tmp_path)
    with pytest.raises(ApilError, match="No study folder"):
        read_study(tmp_path / "nowhere")
