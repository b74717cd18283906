from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

import apil
from apil.errors import ApilError
from apil.learning.build import Parts
from apil.learning.trainer import Trainer
from apil.rng import Draws
from apil.runs.movies import frames
from apil.runs.train import resume_run, start_run
from apil.settings import RunSettings
from apil.tasks import TASKS, from_gymnasium
from apil.tasks.gymnasium import GymnasiumTask
from apil.tasks.maze import Maze
from apil.teachers import TEACHERS, Team
from apil.types import Answer, Observation, Reference

SMALL: dict[str, Any] = {"batch": 3, "iterations": 4, "log_every": 2, "save_every": 2, "hidden": 16, "models": 3}


@dataclass(frozen=True)
class Scripts:
    """Two scripts of the observation, one of whom answers for an episode."""

    scripts: tuple[Any, ...]
    members: tuple[str, ...] = ("one", "two")

    def begin(self, draws: Draws, episodes: int, horizon: int) -> ScriptSession:
        return ScriptSession(self.scripts, (draws.uniform(episodes) * len(self.scripts)).long())


@dataclass(frozen=True)
class ScriptSession:
    scripts: tuple[Any, ...]
    identity: Tensor

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        assert reference.situations is not None
        told = {
            (run, e): reference.situations.action(
                self.scripts[int(self.identity[run, e])](reference.situations.observation(run, e))
            )
            for run, e in asked.nonzero().tolist()
        }
        first = next(iter(told.values()))
        action = first.new_zeros(*asked.shape, *first.shape)
        for place, own in told.items():
            action[place] = own
        return Answer(action, reference.distance, self.identity)


def _mountain() -> GymnasiumTask:
    return from_gymnasium(
        lambda: gymnasium.make("MountainCarContinuous-v0"),
        distance=lambda env: max(0.0, 0.45 - float(env.unwrapped.state[0])),
        horizon=12,
    )


PUSHES = Scripts((lambda seen: [1.0 if seen[1] >= 0 else -1.0], lambda seen: np.array([0.25])))


def _pole() -> GymnasiumTask:
    return from_gymnasium(lambda: gymnasium.make("CartPole-v1"), distance="steps", horizon=15)


LEANS = Scripts((lambda seen: int(seen[2] + seen[3] > 0), lambda seen: int(seen[2] > 0)))


def _rows(folder: Path) -> bytes:
    return (folder / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("query", "threshold"),
    [("apil", None), ("dagger", None), ("errpred", 0.05), ("behvun", 0.5), ("modlun", 0.001), ("random", 0.5)],
)
@pytest.mark.parametrize("continuous", [False, True])
def test_the_same_seed_gives_the_same_rows_and_goes_on_after_a_stop(
    tmp_path: Path, query: str, threshold: float | None, continuous: bool
) -> None:
    task, teacher = (_mountain(), PUSHES) if continuous else (_pole(), LEANS)
    settings = {**SMALL, "threshold": threshold}
    whole = apil.train(task, teacher, query, folder=tmp_path / "whole", **settings)
    again = apil.train(task, teacher, query, folder=tmp_path / "again", **{**settings, "iterations": 2})
    assert len(again.rows) == 1
    apil.train(task, teacher, query, folder=tmp_path / "again", **settings)
    assert _rows(tmp_path / "again") == _rows(tmp_path / "whole")
    memory = apil.train(task, teacher, query, **settings)
    assert memory.rows == whole.rows
    assert whole.evaluate(4) == memory.evaluate(4)
    task.close()


def test_answers_on_file_are_vectors_and_are_not_asked_for_again(tmp_path: Path) -> None:
    task = _mountain()
    apil.train(task, PUSHES, "bc", folder=tmp_path / "run", **SMALL)
    rows = [json.loads(line) for line in (tmp_path / "run" / "answers.jsonl").read_text().splitlines()]
    assert len(rows) == 4 * 3 * 12
    of = {who: {tuple(row["action"]) for row in rows if row["identity"] == who} for who in (0, 1)}
    assert of[1] == {(0.25,)}
    assert of[0] <= {(1.0,), (-1.0,)}
    assert of[0]
    # Without its checkpoints the run is trained again from the answers on file: nobody needs to answer.
    before = _rows(tmp_path / "run")
    for path in (tmp_path / "run").glob("checkpoint-*"):
        path.unlink()
    (tmp_path / "run" / "metrics.jsonl").unlink()
    silent = Scripts((None, None))
    resume_run(tmp_path / "run", iterations=None, progress=lambda done: None, parts=Parts(task, silent))
    assert _rows(tmp_path / "run") == before
    text = (tmp_path / "run" / "answers.jsonl").read_text().replace('"action": [0.25]', '"action": [1.25]')
    (tmp_path / "run" / "answers.jsonl").write_text(text)
    # The checkpoint vouches for them, and without it each row for itself.
    with pytest.raises(ApilError, match="was changed"):
        resume_run(tmp_path / "run", iterations=None, progress=lambda done: None, parts=Parts(task, silent))
    for path in (tmp_path / "run").glob("checkpoint-*"):
        path.unlink()
    with pytest.raises(ApilError, match="a row that was changed since"):
        apil.train(task, PUSHES, "bc", folder=tmp_path / "run", **{**SMALL, "iterations": 6})


@pytest.mark.parametrize(
    ("scripts", "told"),
    [
        (lambda seen: np.array([1.5]), r"action \[1.5\] is not in the action space Box\(-1.0, 1.0, \(1,\), float32\)"),
        (lambda seen: [float("nan")], r"action \[nan\] is not in the action space"),
        (lambda seen: "left", r"action 'left' is not in the action space"),
    ],
)
def test_an_answer_outside_the_box_is_refused_with_its_place(scripts: Any, told: str) -> None:
    teacher = Scripts((scripts,), ("bad",))
    with pytest.raises(ApilError, match=f"Teacher 'bad' raised ApilError: {told}.* in iteration 0, episode 0, step 0"):
        apil.train(_mountain(), teacher, "bc", **SMALL)


def test_a_session_that_answers_outside_the_box_is_caught_too() -> None:
    class Wild(ScriptSession):
        def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
            return Answer(torch.full((*asked.shape, 1), 3.0), reference.distance, self.identity)

    class WildTeacher(Scripts):
        def begin(self, draws: Draws, episodes: int, horizon: int) -> ScriptSession:
            return Wild((), torch.zeros(1, episodes).long())

    with pytest.raises(ApilError, match=r"member 0 \(one\), answered action \[3.0\], but actions lie between \[-1.0\]"):
        apil.train(_mountain(), WildTeacher(()), "bc", **SMALL)


def test_a_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    task = _pole()
    apil.train(task, LEANS, "bc", folder=tmp_path / "run", **SMALL)
    with pytest.raises(ApilError, match="other settings \\(seed 0\\)"):
        apil.train(task, LEANS, "bc", folder=tmp_path / "run", seed=1, **SMALL)


def test_a_task_and_its_teachers_are_made_once_a_run(tmp_path: Path) -> None:
    made: list[str] = []

    def maze() -> Maze:
        made.append("task")
        return Maze()

    def teachers() -> Team:
        made.append("teacher")
        return Team({"a": "first", "b": "last"})

    apil.register_task("counted", maze, "for this test")
    apil.register_teacher("counted", teachers, "for this test")
    try:
        settings = RunSettings.of("counted", "counted", "apil", iterations=2, batch=2)
        start_run(settings, tmp_path / "run", progress=lambda done: None)
        assert sorted(made) == ["task", "teacher"]
        made.clear()
        resume_run(tmp_path / "run", iterations=4, progress=lambda done: None)
        assert sorted(made) == ["task", "teacher"]
    finally:
        TASKS.forget("counted")
        TEACHERS.forget("counted")


@pytest.mark.parametrize(
    ("task", "teacher", "settings", "message"),
    [
        (3, LEANS, {}, "'3' is no task"),
        ("mase", LEANS, {}, "Unknown task 'mase'. Did you mean 'maze'"),
        (None, lambda seen, rng: 1, {}, "is no teacher: put scripts and policies into a team"),
        (None, LEANS, {"itterations": 3}, "Unknown setting 'itterations'. Did you mean 'iterations'"),
    ],
)
def test_what_cannot_be_trained_with_is_told(task: Any, teacher: Any, settings: Any, message: str) -> None:
    with pytest.raises(ApilError, match=message):
        apil.train(task or _pole(), teacher, "bc", **settings)


class Spots(gymnasium.Env[Any, Any]):
    """Shows a bright left or right half; the right action is the bright side."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {"picture": spaces.Box(0, 255, (8, 8, 1), np.uint8), "step": spaces.Discrete(5)}
        )
        self.action_space = spaces.Discrete(2)
        self.steps = self.missed = 0

    def _show(self) -> dict[str, Any]:
        self.side = int(self.np_random.integers(2))
        picture = np.zeros((8, 8, 1), np.uint8)
        picture[:, 4 * self.side : 4 * self.side + 4] = 255
        return {"picture": picture, "step": np.int64(self.steps)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = self.missed = 0
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.missed += int(action) != self.side
        self.steps += 1
        return self._show(), 0.0, False, self.steps == 4, {}


def test_pictures_are_learned_through_the_default_encoder_and_a_stack_gives_the_same_rows_as_a_run_alone() -> None:
    task = from_gymnasium(Spots, distance=lambda env: float(env.unwrapped.missed), horizon=4)
    side = Scripts((lambda seen: int(seen["picture"][0, 4, 0] > 0),), ("side",))
    shared: dict[str, Any] = {
        "batch": 4,
        "iterations": 60,
        "learning_rate": 3e-3,
        "log_every": 20,
        "hidden": 16,
        "models": 3,
    }
    configs = [
        RunSettings.of(task.name, "side", query, seed=seed, **shared) for query, seed in (("dagger", 0), ("apil", 1))
    ]
    stack = Trainer(configs, parts=Parts(task, side))
    stack.train()
    alone = Trainer(configs[1:], parts=Parts(task, side))
    alone.train()
    assert alone.rows[0] == stack.rows[1]
    trained = apil.train(task, side, "dagger", as_printed=True, **shared)
    assert trained.rows == stack.rows[0]
    # Guessing all four sides right has a chance of 1/16.
    assert trained.evaluate(50)["success_alone"] > 0.8


def test_an_episode_of_an_environment_can_be_looked_at() -> None:
    trained = apil.train(_mountain(), PUSHES, "bc", **{**SMALL, "iterations": 1})
    shown = frames(trained.agents, 1)
    assert len(shown) == 12
    assert "distance" in shown[0].picture.text
    assert "[" in shown[0].caption
