"""`apil report`: the page of a study again, from what is in its folder."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from made_up_study import write_study

from apil.cli import main
from apil.errors import ApilError
from apil.studies.rebuild import rebuild_report
from apil.studies.report import build_report
from apil.studies.tables import Table, TableBlock, blocks_of

RESULTS = Path(__file__).parents[2] / "results"
REPORTS = sorted(RESULTS.rglob("report.html"))


def test_a_report_is_made_again_also_without_the_records_over_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teachers, queries = ("detm", "twodifdetm"), ("dagger", "apil")
    folder = write_study(tmp_path / "study", task="maze", seeds=2, teachers=teachers, queries=queries)
    (folder / "study.json").write_text('{"task": "maze", "command": "apil study maze"}')
    build_report(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "report.html").unlink()
    main(["report", str(folder)])
    assert "report.html" in capsys.readouterr().out
    assert {name: (folder / name).read_bytes() for name in before} == before

    over_training = ("metrics.csv", "samples.csv", "query_objective.csv", "teachers.json")
    for name in over_training:
        (folder / name).unlink()
    assert rebuild_report(folder) == [folder / "report.html"]
    kept = {name: data for name, data in before.items() if name not in (*over_training, "report.html")}
    assert {name: (folder / name).read_bytes() for name in kept} == kept
    page = (folder / "report.html").read_text()
    assert 'id="figure_query_rate" class="interactive"' in page, "the data of the chart are kept beside it"
    assert "shown as they were drawn when the study ended" in page


def test_a_table_is_read_back_as_it_was_written() -> None:
    block = TableBlock("Teacher www.x@y.z: one", ("rule", "a|b"), (("`dagger`", "1 [0, 2]"), ("[x](y)", "–")))
    (found,) = blocks_of(Table("t", "Title", ("a note",), (block,)).markdown())
    assert found == block


def test_a_folder_that_is_no_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ApilError, match="give the folder that a study was written to"):
        rebuild_report(tmp_path)


@pytest.mark.parametrize("name", ["minigrid", "mountain-car-answers", "whom"])
def test_committed_results_are_rebuilt_from_what_is_committed(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    shutil.copytree(RESULTS / name, folder)
    for page in rebuild_report(folder):
        assert page.is_file()
    for path in (*RESULTS.joinpath(name).rglob("*.md"), *RESULTS.joinpath(name).rglob("report.html")):
        again = folder / path.relative_to(RESULTS / name)
        # Pictures and last digits differ with the version of matplotlib and the processor, the words do not.
        own, theirs = (re.sub(r"base64,[^\"]*|[\d.,-]+", "", each.read_text()) for each in (path, again))
        assert own == theirs, f"{path} is not what `apil report {name}` writes"


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: str(path.parent.relative_to(RESULTS)))
def test_every_committed_report_begins_with_a_picture_sentences_and_a_table(path: Path) -> None:
    first, found, _ = path.read_text().partition('<nav aria-label="')
    assert found
    assert first.count("<figure") == 1
    assert 2 <= first.count("<p>") <= 3
    assert first.count("<table>") == 1
    assert path.stat().st_size < 5_000_000
