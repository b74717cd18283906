"""A study of R2R: its tables, figures and report, from made-up records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_up_r2r_study import write_r2r_study
from made_up_study import write_study

from apil.r2r.report import REPORT
from apil.r2r.tables import look_to_reach, navigation_table, paired_table, results_table
from apil.studies.extras import extras_of
from apil.studies.figures import PLATES
from apil.studies.findings import findings
from apil.studies.records import Look, RunResult, StudyRecords, read_study
from apil.studies.report import build_report
from apil.studies.tables import TableBlock, queries_table, uncertainty_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_r2r_study(tmp_path_factory.mktemp("r2r"))


@pytest.fixture(scope="module")
def study(folder: Path) -> StudyRecords:
    return read_study(folder)


def _row(block: TableBlock, name: str) -> dict[str, str]:
    return next(dict(zip(block.header, row, strict=True)) for row in block.rows if row[0] == name)


def test_the_second_table_stands_beside_the_papers(study: StudyRecords) -> None:
    block = results_table(study).blocks[0]
    assert _row(block, "apil")["detm"] == "48.0 [45.0, 51.0] / 30.0", "mean of 45, 48 and 51"
    assert _row(block, "apil, paper")["tworand"] == "36.9 / 29.7"
    assert _row(block, "bc")["detm"] == "33.0 / 100.0", "one seed has no interval"
    assert _row(block, "extrun")["detm"] == "–"
    assert not any(row[0] == "extrun, paper" for row in block.rows), "the paper has none"


def test_every_table_says_how_many_seeds_each_row_rests_on(study: StudyRecords) -> None:
    assert "1 to 3 seeds, as each row says" in results_table(study).notes[0]
    for table in (results_table(study), navigation_table(study), queries_table(study), uncertainty_table(study)):
        for block in table.blocks:
            assert (_row(block, "dagger")["seeds"], _row(block, "bc")["seeds"]) == ("3", "1"), (
                table.name,
                block.heading,
            )
            assert "[" not in "".join(_row(block, "bc").values())


def test_unequal_seeds_within_a_row_are_told_for_each_teacher(tmp_path: Path) -> None:
    folder = write_r2r_study(tmp_path, teachers=["detm", "rand"], seeds={"dagger": 2, "apil": 2})
    summary = json.loads((folder / "summary.json").read_text())
    summary["cells"][0]["seeds"] = 1
    (folder / "summary.json").write_text(json.dumps(summary))
    assert _row(results_table(read_study(folder)).blocks[0], "dagger")["seeds"] == "1, 2"


def test_all_measures_are_shown_for_each_split_and_teacher(study: StudyRecords) -> None:
    table = navigation_table(study)
    assert [block.heading for block in table.blocks][3:5] == [
        "val_unseen, teacher TwoDifDetm",
        "val_seen, teacher Detm",
    ]
    bc = _row(table.blocks[0], "bc")
    assert (bc["success alone (%)"], bc["success with help (%)"], bc["oracle success (%)"]) == ("33.0", "80.0", "43.0")
    assert (bc["SPL"], bc["nDTW"], bc["navigation error (m)"], bc["path length (m)"]) == (
        "0.290",
        "0.500",
        "6.25",
        "10.50",
    )
    assert _row(table.blocks[4], "bc")["success alone (%)"] == "41.0"


def test_apil_is_compared_with_dagger_seed_by_seed(study: StudyRecords) -> None:
    table = paired_table(study)
    row = _row(table.blocks[0], "detm")
    assert (row["common seeds"], row["mean"], row["each seed"]) == ("3", "+3.0", "+1.0, +3.0, +5.0")
    assert row["95 % interval"] == "-2.0 to +8.0", "Student's: 4.303 * 2 / sqrt(3) on either side"
    assert _row(table.blocks[0], "all") == {**row, "teacher": "all"}, "all teachers have the same differences"
    answers = {(run.query, run.seed): run.answers for run in study.runs if run.teacher == "detm"}
    share = sum(answers["apil", seed] for seed in range(3)) / sum(answers["dagger", seed] for seed in range(3))
    assert _row(table.blocks[-1], "detm")["APIL's share (%)"] == f"{100 * share:.1f}"


def test_a_study_of_11_seeds_has_its_paired_table(tmp_path: Path) -> None:
    folder = write_r2r_study(tmp_path, teachers=["detm"], seeds={"dagger": 11, "apil": 11})
    row = _row(paired_table(read_study(folder)).blocks[0], "detm")
    # Differences of 1, 3, ... 21 points: 11 plus or minus 2.2281 * sqrt(44) / sqrt(11).
    assert (row["common seeds"], row["mean"], row["95 % interval"]) == ("11", "+11.0", "+6.5 to +15.5")


def test_other_data_than_the_public_ones_have_another_label_and_none_of_the_papers_numbers(tmp_path: Path) -> None:
    folder = write_r2r_study(tmp_path, teachers=["detm"], seeds={"dagger": 1, "apil": 1})
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "public_data": False}))
    build_report(folder)
    for name in ("table_r2r.md", "table_uncertainty.md"):
        text = (folder / name).read_text()
        assert text.splitlines()[0].endswith(", houses")
        assert "paper |" not in text
    page = (folder / "report.html").read_text()
    assert "Against the paper" not in page
    assert "Reference actions on R2R" in page


def test_findings_are_those_of_the_records(study: StudyRecords) -> None:
    said = findings(study, REPORT)
    assert said[0].startswith("Detm: the highest success alone on val_unseen is 48.0 [45.0, 51.0] % (APIL, 3 seeds)")
    assert "The teacher itself, followed at every step, reaches 99.9 %." in said[0]
    assert any("minus DAgger's is +3.0 points (over 3 common seeds, from +1.0 to +5.0)" in text for text in said)
    assert any("higher under Rand than under Detm for 6 of 6 trainers" in text for text in said)
    assert any("trained by APIL, bits: Detm 0.0009 (paper 0.00)" in text for text in said)


def test_the_report_has_the_ceiling_the_papers_numbers_and_the_maps(folder: Path) -> None:
    for name in ("map_1.svg", "map_2.svg"):
        (folder / name).write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    written = {path.name for path in build_report(folder)}
    assert {"table_r2r.md", "table_navigation.md", "table_ceiling.md", "table_paired.md"} <= written
    assert {"figure_splits.png", "figure_success_answers.svg", "figure_training_success.png"} <= written
    page = (folder / "report.html").read_text()
    assert "Teachers followed at every step" in page
    assert "<td>36.9 / 29.7</td>" in page
    assert "minus the paper&#39;s on test (points)" in page
    assert page.count('<figure id="map_') == 2
    assert "Reference actions on R2R" in page
    assert "<td>nan" not in page


def test_a_task_without_splits_has_none_of_this(tmp_path: Path) -> None:
    maze = read_study(write_study(tmp_path, task="maze", teachers=["detm"], queries=["apil", "dagger"], seeds=2))
    extras = extras_of("maze")
    assert not extras.tables(maze)
    assert extras.plates(PLATES) == PLATES
    assert "seeds" not in queries_table(maze).blocks[0].header, "all rows have the same, and the notes say it"


def _looked(*looks: tuple[float, float]) -> RunResult:
    told = tuple(Look(100 * place, *look) for place, look in enumerate(looks, 1))
    return RunResult("detm", "apil", 0, looks[-1][0] if looks else 0.0, {}, told)


def test_answers_to_reach_a_share_are_those_of_the_first_look_that_is_good_enough() -> None:
    dagger = _looked((100.0, 0.2), (200.0, 0.5), (300.0, 0.4))
    assert look_to_reach(_looked((30.0, 0.3), (60.0, 0.39), (90.0, 0.1)), dagger) == (200, 60.0, 0.39)
    assert look_to_reach(_looked((30.0, 0.3), (60.0, 0.37)), dagger) is None
    assert look_to_reach(_looked((30.0, 0.3), (60.0, 0.37)), dagger, share=0.9) == (200, 60.0, 0.37)
    assert look_to_reach(_looked(), dagger) is None
    assert look_to_reach(dagger, dagger) == (200, 200.0, 0.5)


def test_answers_to_come_near_dagger_stand_beside_daggers_own(tmp_path: Path) -> None:
    """DAgger ends at 42 %, 95 % of which is 39.9: APIL is there after 40 answers, DAgger after 60 of its 120."""
    folder = write_r2r_study(tmp_path, teachers=["detm"], seeds={"dagger": 1, "apil": 1})
    records = json.loads((folder / "evaluations.json").read_text())
    looks = {"apil": [(20, 0.38), (40, 0.41), (60, 0.30)], "dagger": [(30, 0.2), (60, 0.40), (100, 0.42)]}
    for run in records["runs"]:
        told = enumerate(looks[run["query"]], 1)
        run["looks"] = [{"iteration": 100 * i, "answers": n, "success_alone": share} for i, (n, share) in told]
        run["answers"] = 120 if run["query"] == "dagger" else 60
    (folder / "evaluations.json").write_text(json.dumps(records))
    block = next(
        block for block in paired_table(read_study(folder)).blocks if block.heading.startswith("Answers to 95 %")
    )
    assert block.rows == (("detm", "1 of 1", "40", "60", "200", "200", "66.7", "33.3"),)


def test_without_the_records_over_training_no_empty_figure_is_drawn(tmp_path: Path) -> None:
    folder = write_r2r_study(tmp_path)
    (folder / "metrics.csv").unlink()
    assert "figure_training_success.png" not in {path.name for path in build_report(folder)}
