"""Figures are drawn from records alone, whichever part of a study there is."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from made_up_study import write_study
from matplotlib.figure import Figure

from apil.studies.figures import PLATES, Plate, pictures, render
from apil.studies.records import StudyRecords, read_study

_BY_NAME = {plate.name: plate for plate in PLATES}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyRecords:
    folder = tmp_path_factory.mktemp("study")
    return read_study(write_study(folder, teachers=["detm", "twodifdetm"], queries=["dagger", "apil"], seeds=3))


@pytest.mark.parametrize("plate", PLATES, ids=lambda plate: plate.name)
def test_every_figure_is_drawn_in_both_formats(study: StudyRecords, plate: Plate) -> None:
    formats = render(plate, study)
    assert formats["png"].startswith(b"\x89PNG")
    assert b"<svg" in formats["svg"][:2000]


@pytest.mark.parametrize("name", ["figure_personas", "figure_model_samples"])
def test_a_figure_has_the_same_bytes_every_time(study: StudyRecords, name: str) -> None:
    assert render(_BY_NAME[name], study) == render(_BY_NAME[name], study)


def test_a_label_that_the_font_lacks_is_drawn_without_a_word(recwarn: pytest.WarningsRecorder) -> None:
    figure = Figure()
    figure.suptitle("\U0001846e")
    assert pictures(figure)["png"].startswith(b"\x89PNG")
    assert not recwarn.list


def test_logarithmic_scales_have_powers_of_ten(study: StudyRecords) -> None:
    for name, power in (("figure_model_samples", "10⁻¹"), ("figure_success_answers", "10³")):
        assert f"<!-- {power} -->" in render(_BY_NAME[name], study)["svg"].decode()


def test_figures_without_their_records_are_left_out(tmp_path: Path) -> None:
    bare = read_study(write_study(tmp_path, teachers=["detm"], queries=["apil"], seeds=1, optional=False))
    drawn = {plate.name for plate in PLATES if render(plate, bare)}
    assert drawn == {"figure_uncertainty", "figure_query_rate", "figure_success_answers"}


def test_an_agent_that_never_asks_and_logs_no_uncertainty_is_drawn(tmp_path: Path) -> None:
    folder = write_study(tmp_path, teachers=["detm"], queries=["never"], seeds=1, iterations=50)
    for name in ("metrics.csv", "samples.csv"):
        _overwrite(folder / name, {"model": "nan", "total": "nan", "success": "nan"}, keep=1)
    silent = read_study(folder)
    assert all(render(_BY_NAME[name], silent) for name in ("figure_query_rate", "figure_success_answers"))
    assert render(_BY_NAME["figure_uncertainty"], silent)


def test_model_uncertainty_of_zero_is_drawn(tmp_path: Path) -> None:
    folder = write_study(tmp_path, teachers=["twodifdetm"], queries=["dagger"], seeds=2)
    _overwrite(folder / "samples.csv", {"model": "0.0"}, keep=20)
    assert render(_BY_NAME["figure_model_samples"], read_study(folder))


def test_a_teacher_and_a_policy_of_ones_own_are_drawn(tmp_path: Path) -> None:
    folder = write_study(tmp_path, teachers=["detm", "rand", "tworand"], queries=["apil"], seeds=2)
    for name in ("metrics.csv", "summary.json", "query_objective.csv"):
        path = folder / name
        path.write_text(path.read_text().replace("tworand", "grandmother").replace("apil", "coin"))
    own = read_study(folder)
    assert own.teachers == ["detm", "rand", "grandmother"]
    assert all(render(_BY_NAME[name], own) for name in ("figure_uncertainty", "figure_query_rate"))


def _overwrite(path: Path, values: dict[str, str], keep: int) -> None:
    """Keep the first rows of a CSV file, with some columns set to a value."""
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        rows = [row | values for row in reader][:keep]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
