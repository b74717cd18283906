"""Maps of episodes, drawn by `apil evaluate --draw` and by a study, in generated houses."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from apil.cli import main
from apil.learning.build import build, committee_of
from apil.r2r.houses_folder import write_houses
from apil.r2r.maps import Route, picture
from apil.r2r.navigation import tours
from apil.r2r.routes import route_of, write_examples
from apil.r2r.task import R2R
from apil.runs.train import start_run
from apil.settings import RunSettings
from apil.studies.plan import Cell

_SMALL = {"width": 16, "heads": 2, "words": 40}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    data = write_houses(tmp_path_factory.mktemp("data") / "houses", 2, 0, lambda stage, done, total: None)
    return RunSettings.of(
        "r2r",
        "twodifdetm",
        "apil",
        batch=4,
        iterations=2,
        hidden=16,
        persona=8,
        models=2,
        options={"data": str(data), **_SMALL},
    )


@pytest.fixture(scope="module")
def runs(config: RunSettings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study's folder with one run in it."""
    out = tmp_path_factory.mktemp("study")
    start_run(config, out / "runs" / Cell(config).folder, progress=lambda done: None)
    return out


def test_evaluate_draws_the_first_episodes(
    config: RunSettings, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs / "runs" / Cell(config).folder
    monkeypatch.setattr(sys, "argv", ["apil", "evaluate", str(run), "--episodes", "5", "--draw", "2"])
    main()
    assert f"Wrote 2 maps into {run / 'maps'}" in capsys.readouterr().out.replace("\n", "")
    task = R2R(str(config.task.options["data"]))
    first = [task.name_of(int(number)).replace(" ", "_") for number in task.of_split("val_unseen").episodes[:2]]
    assert sorted(path.name for path in (run / "maps").iterdir()) == sorted(
        f"{name}.{ending}" for name in first for ending in ("png", "svg")
    )


def test_figures_are_shown_and_saved_where_maps_cannot_be_drawn(
    config: RunSettings, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs / "runs" / Cell(config).folder, run, ignore=shutil.ignore_patterns("maps"))
    (run / "maps").write_text("a file in the place of the folder")
    with pytest.raises(SystemExit) as stopped:
        main(["evaluate", str(run), "--episodes", "5", "--draw", "2"])
    assert stopped.value.code == 2
    assert "R2R val_unseen" in capsys.readouterr().out
    assert (run / "evaluation-val_unseen-first-5.json").exists()


def test_a_study_draws_three_examples_and_leaves_no_old_ones(config: RunSettings, runs: Path) -> None:
    (runs / "map_9.svg").write_text("old")
    write_examples([Cell(config.changed(query="dagger")), Cell(config)], runs, 12, 3)
    names = {f"map_{number}.{ending}" for number in (1, 2, 3) for ending in ("png", "svg")}
    assert {path.name for path in runs.glob("map_*")} == names
    assert max(path.stat().st_size for path in runs.glob("map_*")) < 300_000
    write_examples([Cell(config)], runs, 12, 0)
    assert not list(runs.glob("map_*")), "a report that is passed on shows no data"


def test_a_route_tells_the_walk_and_its_questions(config: RunSettings) -> None:
    always = config.changed(query="bc")
    agents = build([always])
    assert isinstance(agents.task, R2R)
    task = agents.task.of_split("val_seen")
    tour = next(tours(agents, task, "helped", limit=3))
    route = route_of(task, tour, 1, committee_of(always).members)
    episode = int(task.episodes[1])
    assert route.annotated[-1] == route.walked[-1], "the teachers of generated houses reach the goal"
    first = int((task.world.scan == task.world.scan[task.goals[episode]]).nonzero()[0])
    assert [at + first for at in route.annotated] == [int(at) for at in task.paths[episode] if at >= 0]
    assert len(route.answered) == len(route.walked), "a question at every step, the last one before it stops"
    assert set(route.answered) <= {0, 1}
    joined = {tuple(sorted(edge)) for edge in route.edges.tolist()}
    assert all(tuple(sorted(pair)) in joined for pair in zip(route.walked[:-1], route.walked[1:], strict=True))
    assert torch.allclose(
        torch.from_numpy(route.places[route.annotated[-1]]).float(), task.world.position[task.goals[episode]]
    )


def test_a_picture_has_the_same_bytes_every_time_and_stands_still(config: RunSettings) -> None:
    places = np.array([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [2.0, 2.0, 3.0]])
    still = Route(
        name="val_unseen 1_0",
        instruction="wait here " * 30,
        places=places,
        edges=np.array([[0, 1], [1, 2]]),
        annotated=[0, 1],
        walked=[0],
        heading=1.0,
        answered=[None],
        members=("first",),
        success_distance=3.0,
        outcome="success",
    )
    drawn = picture(still, "taught by detm")
    assert drawn["png"].startswith(b"\x89PNG")
    assert drawn == picture(still, "taught by detm")
