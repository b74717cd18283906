"""What people are shown of each kind of task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from apil.learning.build import Parts, build
from apil.learning.evaluate import evaluate
from apil.learning.walk import Question, advance, walk
from apil.people.desk import Desk
from apil.people.distances import Said
from apil.people.pictures import encoded
from apil.people.teacher import People, about
from apil.r2r.task import R2R
from apil.runs.resolve import resolve
from apil.tasks.gymnasium import from_gymnasium
from apil.teachers import policies
from apil.types import Answer, Scene


def asked(task: Any, after: int = 0, **settings: Any) -> tuple[dict[str, Any], Scene]:
    """What is shown at a question of the first episode, and its scene; `after` so many answers."""
    people = People(["ann"], **settings)
    assert isinstance(people.desk, Desk)
    found = resolve(task, people.spec, "always", {"batch": 1, "hidden": 8, "models": 2}, {})
    agents = build([found.settings], Parts(found.task, people))
    people.desk.task = found.task
    steps = walk(agents, 3, 1)
    question = advance(steps)
    for _ in range(after):
        assert isinstance(question, Question)
        valid = question.seen.valid[..., :1].long().argmax(-1)
        box = found.task.box
        action = valid if box is None else box.low.expand(1, 1, -1).clone()
        question = advance(steps, Answer(action, torch.zeros(1, 1), torch.zeros(1, 1, dtype=torch.long)))
    assert isinstance(question, Question)
    scene = question.reference.scene
    assert scene is not None
    put = policies.Question(
        question.seen, question.reference, question.put, torch.zeros(1, 1), np.zeros((1, 1), np.uint64), 3.0
    )
    with torch.inference_mode():
        return about(people.desk, put, scene, 0), scene


def test_a_board_with_the_moves_that_can_be_taken() -> None:
    shown, scene = asked("maze", frames=3)
    assert len(shown["cells"]) == 7
    assert {"up", "right", "down", "left"} >= {own["name"] for own in shown["actions"]}
    assert all(own["keys"][0].startswith("Arrow") for own in shown["actions"])
    assert 0 < shown["agent"]["chance"] <= 1
    picture = encoded(scene.pictures[0][0][-1])
    assert picture is not None
    assert picture[0] == "image/svg+xml"
    assert picture[1].count(b"<rect") == 50


def test_the_last_states_are_shown_up_to_a_number() -> None:
    _, scene = asked("grid", after=5, frames=3)
    frames = [picture.cells for picture in scene.pictures[0][0]]
    assert len(frames) == 3
    assert len(set(frames)) == 3
    assert (scene.iteration, scene.step) == (3, 5)


def make(name: str, **settings: Any) -> Callable[[], Any]:
    return lambda: gymnasium.make(name, **settings)


def test_an_environment_that_draws_is_shown_as_its_picture() -> None:
    task = from_gymnasium(make("FrozenLake-v1", render_mode="rgb_array"), distance="success")
    shown, scene = asked(task)
    picture = encoded(scene.pictures[0][0][-1])
    assert picture is not None
    assert picture[1].startswith(b"\x89PNG")
    assert shown["text"] == ""
    assert [own["keys"] for own in shown["actions"]] == [["0"], ["1"], ["2"], ["3"]]


def test_text_for_a_terminal_loses_its_colours() -> None:
    task = from_gymnasium(make("FrozenLake-v1", render_mode="ansi"), distance="success")
    shown, _ = asked(task)
    assert "SFFF" in shown["text"]
    assert "\x1b" not in shown["text"]


def test_an_environment_that_draws_nothing_is_a_table_and_vectors_are_sliders() -> None:
    task = from_gymnasium(make("MountainCarContinuous-v0"), distance="success", horizon=5)
    shown, scene = asked(task)
    assert encoded(scene.pictures[0][0][-1]) is None
    assert len(shown["table"]) == 2
    assert shown["continuous"]
    assert shown["actions"] == [{"name": "number 0", "low": -1.0, "high": 1.0}]
    assert -1 <= shown["agent"]["action"][0] <= 1


def test_a_house_is_an_instruction_what_lies_in_each_direction_and_a_map(houses_data: Path) -> None:
    shown, scene = asked(R2R(str(houses_data)))
    picture = scene.pictures[0][0][-1]
    assert picture.sketch is not None
    exits = [own["name"] for own in shown["actions"] if own["name"] != "stop"]
    assert len(shown["text"].split()) > 5
    assert [title.partition(":")[0] for title, _ in shown["views"] if title != "here"] == exits
    assert sorted(word for _, word in picture.sketch.labels) == sorted(name[5:] for name in exits)
    drawn = encoded(picture)
    assert drawn is not None
    assert drawn[1].startswith(b"<svg")
    assert {own["name"]: own["keys"][-1] for own in shown["actions"]}["exit 1"] == "1"


@pytest.mark.parametrize(("distances", "wanted"), [("task", False), ("said", True), ("none", False)])
def test_the_distance_is_asked_for_where_it_is_to_be_said(distances: str, wanted: bool) -> None:
    assert asked("maze", distances=distances)[0]["ask_distance"] is wanted


def test_words_become_distances_within_an_episode() -> None:
    said = Said(horizon=20)
    steps = [("same", 20.0), ("closer", 10.0), ("closer", 5.0), ("farther", 10.0), (None, 10.0), ("done", 0.0)]
    assert [said.at(1, 0, step, word) for step, (word, _) in enumerate(steps)] == [far for _, far in steps]
    assert said.at(2, 0, 0, "farther") == 40.0
    assert said.at(2, 0, 1, "farther") == 40.0, "never beyond twice the first"
    assert said.at(1, 0, 2, "same") == 10.0, "a correction is of its own step"
    assert said.last(2, 0) == 40.0


def test_people_are_not_asked_while_an_agent_is_measured() -> None:
    people = People(["ann"])
    found = resolve("grid", people.spec, "always", {"hidden": 8, "models": 2}, {})
    result = evaluate(build([found.settings], Parts(found.task, people)), 2)[0]
    assert result["query_rate_with_help"] == 1.0
