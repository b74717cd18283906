"""`apil.teachers.People`: teachers who are people, and answer in a browser or by any other client."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from apil.errors import ApilError
from apil.people.desk import Desk, DeskSettings, packed
from apil.people.messages import actions_of
from apil.people.pictures import encoded
from apil.teachers.committee import Selection
from apil.teachers.policies import Question, Reply
from apil.teachers.team import Member, Team
from apil.types import Scene

LONGEST = 40
"""Characters of a name."""
_TABLE = 60
"""Features that are shown as numbers where there is no picture."""
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
"""Colours of a terminal."""


@dataclass(frozen=True)
class Person:
    """One of the people, as a member of a team."""

    name: str
    desk: Desk
    batched: ClassVar[bool] = True
    """All questions of a step are put at once; answers are on file before they are used."""

    def reply(self, question: Question) -> Reply:
        return self.post(question)()

    def post(self, question: Question) -> Callable[[], Reply]:
        """Puts the questions; nobody is asked while an agent is measured, or when the desk is closed."""
        scene = question.reference.scene
        if scene is None or not self.desk.is_open or math.isinf(question.time):
            return lambda: Reply(None, torch.zeros_like(question.who))
        if len(question.who) > 1:
            raise ApilError("People teach one run at a time, not a stack: train the runs one by one.")
        places = [episode for _, episode in question.who.nonzero().tolist()]
        tickets = self.desk.ask([self._question(question, scene, episode) for episode in places])

        def wait() -> Reply:
            outcomes = {e: self.desk.wait(ticket) for e, ticket in zip(places, tickets, strict=True)}
            return self._reply(question, outcomes)

        return wait

    def _question(self, question: Question, scene: Scene, episode: int) -> dict[str, Any]:
        observation, distance = question.observation, float(question.reference.distance[0, episode])
        pictures = scene.pictures[0][episode]
        return {
            "kind": "live",
            "assigned": self.name,
            "walk": scene.iteration,
            "episode": episode,
            "step": scene.step,
            "features": packed(observation.features[0, episode].float()),
            "valid": packed(observation.valid[0, episode]),
            "distance_known": None if math.isnan(distance) else distance,
            "pictures": [
                [kind, base64.b64encode(data).decode()] for kind, data in filter(None, map(encoded, pictures))
            ],
            "about": about(self.desk, question, scene, episode),
        }

    def _reply(self, question: Question, outcomes: dict[int, Any]) -> Reply:
        answered = {episode: outcome for episode, outcome in outcomes.items() if outcome is not None}
        given = torch.zeros_like(question.who)
        if not answered:
            return Reply(None, given)
        actions = {episode: self.desk.action(outcome) for episode, outcome in answered.items()}
        first = next(iter(actions.values()))
        action = first.new_zeros(*question.who.shape, *first.shape)
        distance = question.reference.distance.float().clone()
        identity = torch.zeros_like(question.who, dtype=torch.long)
        for episode, outcome in answered.items():
            given[0, episode] = True
            action[0, episode] = actions[episode]
            distance[0, episode] = self.desk.distance(outcome, float(distance[0, episode]))
            identity[0, episode] = self.desk.identity(outcome)
        return Reply(action, given, distance, identity)


class People(Team):
    """People as teachers. Training starts a server on the loopback interface and prints a link for each person.

        apil.train("maze", apil.teachers.People(["ann", "bob"]), walks=8, answer_budget=300, folder="runs/live")

    In a team with others, `apil.teachers.Team({**People(["ann"]).persons, "script": script})`.
    """

    def __init__(
        self, names: Sequence[str], *, selection: Selection = "episode", desk: Desk | None = None, **settings: Any
    ) -> None:
        """`settings` are those of `DeskSettings`: lease, overlap, show_agent, distances, frames, host, port, ..."""
        check_names(names)
        found = Desk(names, DeskSettings(**settings)) if desk is None else desk
        self.persons = {name: Person(name, found) for name in names}
        """Each of the people as a member for any team."""
        super().__init__([Member(name, person) for name, person in self.persons.items()], selection=selection)
        self.spec = f"people:{'+'.join(names)}"
        """How a run names them."""


def people(names: str = "") -> People:
    """People by their names, as 'ann+bob'."""
    if not names:
        raise ApilError("Which people? Give their names, for example people:ann+bob.")
    return People(names.split("+"))


def check_names(names: Sequence[str]) -> None:
    if isinstance(names, str) or not names:
        raise ApilError(f"{names!r:.60} are no teachers: give a list of names, for example ['ann', 'bob'].")
    for name in names:
        if (
            not isinstance(name, str)
            or not name.strip()
            or len(name) > LONGEST
            or not name.isprintable()
            or "+" in name
        ):
            raise ApilError(f"{name!r:.60} cannot be a teacher's name: give up to {LONGEST} letters, without '+'.")
        if names.count(name) > 1:
            raise ApilError(f"Two teachers are called '{name}': give each a name of their own.")


def about(desk: Desk, question: Question, scene: Scene, episode: int) -> dict[str, Any]:
    """What a question shows besides its pictures, as JSON."""
    task, picture = desk.task, scene.pictures[0][episode][-1]
    valid = question.observation.valid[0, episode].nonzero().flatten().tolist()
    names = [str(name) for name in task.action_names]
    unknown = math.isnan(float(question.reference.distance[0, episode]))
    shown: dict[str, Any] = {
        "continuous": task.box is not None,
        "actions": actions_of(names, valid) if task.box is None else _sliders(names, task.box),
        "agent": _agent(task, scene.mean[0, episode], names),
        "ask_distance": desk.settings.distances == "said" or (unknown and desk.settings.distances == "task"),
        "cells": list(picture.cells),
        "text": "" if picture.pixels is not None else _ESCAPES.sub("", picture.text),
        "views": [list(view) for view in picture.views],
    }
    if not picture.cells and picture.pixels is None:
        features = question.observation.features[0, episode].tolist()
        shown["table"] = [[f"feature {place}", round(value, 4)] for place, value in enumerate(features[:_TABLE])]
    return shown


def _sliders(names: Sequence[str], box: Any) -> list[dict[str, Any]]:
    sides = zip(names, box.low.tolist(), box.high.tolist(), strict=True)
    return [{"name": name, "low": low, "high": high} for name, low, high in sides]


def _agent(task: Any, mean: torch.Tensor, names: Sequence[str]) -> dict[str, Any]:
    """What the agent would do, and how sure it is."""
    if task.box is None:
        best = int(mean.argmax())
        return {"action": best, "name": names[best], "chance": round(float(mean[best]), 3)}
    numbers = len(task.box.low)
    spread = (mean[numbers:] * 0.5 * (task.box.high - task.box.low)).tolist()
    return {"action": [round(own, 4) for own in task.box.unscaled(mean[:numbers]).tolist()], "spread": spread}
