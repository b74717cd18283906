"""What more answers would bring: looks that change nothing, three verdicts, and a run that stops by them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import apil
from apil.cli import main
from apil.errors import ApilError
from apil.files import read_rows
from apil.learning.outlook import Look, Outlook, Teachers, outlook
from apil.learning.trainer import Trainer
from apil.learning.update import Learner
from apil.runs.looks import curves_of, figure, learning_curves
from apil.runs.train import resume_run, start_run
from apil.settings import RunSettings

SMALL: dict[str, Any] = {"hidden": 8, "persona": 4, "models": 3, "encode": 8, "standardise": True, "batch": 4}
LEARNS: dict[str, Any] = {"replay": 16, "updates": 3, "validation": 0.1, "log_every": 4}
POINTS = [round(10 * 2 ** (k / 2)) for k in range(12)]


def _run(query: str = "dagger", seed: int = 0, **settings: Any) -> RunSettings:
    return RunSettings.of("maze", "twodifdetm", query, seed=seed, **{**SMALL, **LEARNS, "iterations": 14, **settings})


def _looks(success: list[float], episodes: int = 50, distance: float = 0.0) -> list[Look]:
    return [Look(n, episodes, s, distance, 0.5) for n, s in zip(POINTS, success, strict=False)]


def test_three_ends_are_told_apart() -> None:
    good = outlook(_looks([0.1, 0.4, 0.8, 0.95] + [1.0] * 8), Teachers(1.0))
    stuck = outlook(_looks([0.1, 0.3, 0.4] + [0.5] * 9, episodes=400), Teachers(1.0))
    level = outlook(_looks([0.1, 0.3, 0.4] + [0.5] * 9, episodes=400), Teachers(0.52, episodes=80))
    rising = outlook(_looks([0.06 * k for k in range(12)]), Teachers(1.0))
    assert [own.verdict for own in (good, stuck, level, rising)] == [
        "as the teachers",
        "stalled",
        "as the teachers",
        "more",
    ]
    assert "cannot get better than its teachers" in str(good)
    assert "over 80 episodes" in str(level)
    assert "--hidden" in str(stuck)
    assert "more answers would help" in str(rising)
    assert rising.needed.mean > POINTS[-1]


def test_an_agent_that_has_not_learned_its_answers_yet_is_not_stalled() -> None:
    flat = _looks([0.1, 0.3, 0.4] + [0.5] * 9, episodes=400)
    falls = [replace(look, loss=3.0 - 0.2 * place) for place, look in enumerate(flat)]
    still = [replace(look, loss=0.7) for look in flat]
    verdicts = [outlook(looks, Teachers(1.0), held_out=True).verdict for looks in (falls, still, flat)]
    assert verdicts == ["learning", "stalled", "learning"], "a loss that is not known may fall"
    assert outlook(falls, Teachers(0.5), held_out=True).verdict == "as the teachers"
    assert "has not caught up" in str(outlook(falls, Teachers(1.0), held_out=True))


def test_where_the_teachers_miss_the_goal_their_distance_is_the_bar() -> None:
    flat = [0.02] * 12
    near, far = (outlook(_looks(flat, 400, distance), Teachers(None, distance=2.0)) for distance in (1.5, 6.0))
    assert (near.verdict, far.verdict) == ("as the teachers", "stalled")
    assert "d*_T 2" in str(near)


def test_one_look_by_chance_is_not_flat() -> None:
    once = outlook(_looks([0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0]), Teachers(1.0))
    again = outlook(_looks([0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0]), Teachers(1.0))
    assert (once.verdict, again.verdict) == ("more", "as the teachers")


def test_nothing_is_said_of_few_looks() -> None:
    assert outlook(_looks([1.0] * 3), Teachers(1.0)).verdict == "early"


def test_an_outlook_travels_as_json() -> None:
    found = outlook(_looks([0.5] * 6), Teachers(0.9, 30))
    assert Outlook.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found


def test_looks_change_nothing_else() -> None:
    with_looks, without = (Trainer([_run("apil", looks=looks, budget=0.3)]) for looks in (6, 0))
    for trainer in (with_looks, without):
        trainer.train()
    bare = [{k: v for k, v in row.items() if k not in ("looks", "outlook")} for row in with_looks.rows[0]]
    assert bare == without.rows[0]
    state = with_looks.state(0)
    assert all(torch.equal(value, state[name]) for name, value in without.state(0).items())
    assert without.outlook(0) is None
    seen = [look["answers"] for row in with_looks.rows[0] for look in row.get("looks", ())]
    assert seen == sorted(set(seen))
    assert len(seen) > 1


def test_a_run_looks_and_stops_the_same_alone_and_in_a_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apil.learning.outlook.SURE", 0.0)  # flat from the fifth look on
    given: dict[str, Any] = {"looks": 5, "stop": "when-flat", "iterations": 60}
    configs = [
        _run("random", 1, threshold=0.1, **given),
        _run("dagger", 2, **{**given, "stop": "never"}, answer_budget=600),
        _run("apil", 3, budget=0.2, answer_budget=500, **given),
    ]
    stack = Trainer(configs)
    stack.train()
    for run, config in enumerate(configs):
        alone = Trainer([config])
        alone.train()
        assert alone.rows[0] == stack.rows[run]
        assert alone.answers(0) == stack.answers(run)
    assert stack.answers(1) == 600, "looks alone stop nothing"
    assert stack.answers(2) < 500


def test_walks_in_flight_ask_no_more_when_flat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apil.learning.outlook.SURE", 0.0)
    # Walks end in any order. Without held-out answers no loss that happens to fall keeps the run from being flat.
    run = _run("random", threshold=0.2, looks=4, stop="when-flat", iterations=60, walks=3)
    trainer = Trainer([run.changed(validation=0.0)])
    assert trainer.store is not None
    given = trainer.store.shelves[0]
    while (found := trainer.outlook(0)) is None or not found.is_flat:
        trainer.step()
    # The look counts the answers of walks that have ended. Those of the three in flight are in the store as well.
    before = given.answers
    assert before >= found.answers
    while not trainer.done:
        trainer.step()
    trainer.close()
    assert given.answers <= before + 3, "of each walk in flight one question at most was open"
    assert trainer.iteration <= 60


@pytest.mark.parametrize("after", [2, 7, 13])
def test_a_run_that_is_to_stop_when_flat_resumes_exactly(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apil.learning.outlook.SURE", 0.0)
    config = _run("random", threshold=0.2, looks=5, stop="when-flat", iterations=40, save_every=3)
    start_run(config, tmp_path / "whole", progress=lambda done: None)
    original = Learner.replay

    def fails(self: Learner, episodes: Any, store: Any, iteration: int, *rest: Any) -> Any:
        if iteration == after:
            raise KeyboardInterrupt
        return original(self, episodes, store, iteration, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "replay", fails)
        with pytest.raises(KeyboardInterrupt):
            start_run(config, tmp_path / "stopped", progress=lambda done: None)
    resume_run(tmp_path / "stopped", iterations=None, progress=lambda done: None)
    names = {path.name for path in (tmp_path / "whole").iterdir()} - {"timings.jsonl", "environment.json", ".lock"}
    for name in names:
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.fixture(scope="module")
def easy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a task that is learned from few answers."""
    folder = tmp_path_factory.mktemp("easy") / "run"
    apil.train("grid", "detm", "dagger", stop="when-flat", answer_budget=3000, folder=folder, progress=False)
    return folder


def test_it_stops_before_its_budget_when_there_is_nothing_left_to_learn(easy: Path) -> None:
    rows = read_rows(easy / "metrics.jsonl")
    curves = learning_curves(easy)
    assert curves is not None
    assert curves.outlook.verdict == "as the teachers"
    assert rows[-1]["answers"] == curves.outlook.answers < 3000
    assert curves.looks[-1].success > 0.9


def test_apil_answers_shows_the_outlook_and_draws_it(easy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["answers", str(easy)])
    assert "Outlook: " in capsys.readouterr().out
    assert (easy / "outlook.png").read_bytes().startswith(b"\x89PNG")


def test_the_teachers_are_measured_where_they_are_followed() -> None:
    trainer = Trainer([_run("bc", looks=4, iterations=30)])
    trainer.train()
    found = trainer.outlook(0)
    assert found is not None
    assert found.teachers.episodes >= 20
    assert found.teachers.episodes % 4 == 0, "every training episode of BC until the last look"
    assert found.teachers.success is not None
    assert found.teachers.success > 0.95


def test_a_figure_needs_looks() -> None:
    assert curves_of([{"answers": 3, "validation_loss": 1.0}]) is None
    looks: list[dict[str, Any]] = [
        {"answers": n, "episodes": 9, "success": 0.5, "distance": 1.0, "progress": None} for n in (0, 12)
    ]
    known = outlook([Look(**look) for look in looks], Teachers(1.0)).to_json()
    curves = curves_of([{"answers": 12, "looks": looks, "outlook": known}])
    assert curves is not None
    assert figure(curves).startswith(b"\x89PNG")
    with pytest.raises(ApilError, match=r"restore metrics\.jsonl"):
        curves_of([{"answers": 12, "looks": [{"answers": 3}], "outlook": known}])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"stop": "when-flat"}, "looks is 0"),
        ({"patience": 10}, "give stop when-flat"),
        ({"stop": "when-flat", "looks": 5, "query": "never"}, "asks nobody"),
        ({"stop": "soon"}, "stop is 'soon'"),
        ({"stop": "when-flat", "looks": 5, "patience": 0}, "patience is 0"),
        ({"looks": -1}, "looks is -1"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ApilError, match=words):
        _run(**settings)


def test_the_command_line_says_so_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    typed = ["train", "--task", "grid", "--query", "never", "--stop", "when-flat", "--out", str(tmp_path / "run")]
    with pytest.raises(SystemExit, match="2"):
        main(typed)
    assert "asks nobody" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
