"""Whole trainings with people who are simulated clients of the interface."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import apil
from apil.errors import ApilError
from apil.people.run import start
from apil.people.simulated import Client, Teacher, maze_teacher
from apil.people.teacher import People
from apil.teachers.team import Team

ORDERS = {"ann": ("up", "right", "down", "left"), "bob": ("left", "down", "right", "up")}
QUICK = {"answer_budget": 24, "walks": 4, "log_every": 2, "batch": 2, "updates": 2, "hidden": 16, "models": 2}


def words(settings: dict[str, Any]) -> list[str]:
    return [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]


@contextmanager
def teaching(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """`apil teach` in a process of its own."""
    process = subprocess.Popen([sys.executable, "-m", "apil", "teach", *arguments], stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(there: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)


def links(folder: Path) -> dict[str, Any]:
    wait_for((folder / "links.json").exists)
    found: dict[str, Any] = json.loads((folder / "links.json").read_text())
    return found


def teachers(folder: Path, names: tuple[str, ...] = ("ann", "bob"), pause: float = 0.0) -> list[Teacher]:
    made = links(folder)["teachers"]
    return [Teacher(made[name], maze_teacher(ORDERS[name]), pause=lambda: pause).start() for name in names]


def counted(folder: Path) -> list[tuple[int, int, str]]:
    """Walk, step and teacher of the answers that count."""
    with sqlite3.connect(folder / "people.sqlite") as db:
        return db.execute(
            "SELECT q.walk, q.step, a.teacher FROM answers a JOIN questions q ON q.id = a.question WHERE a.counted"
        ).fetchall()


def stored(folder: Path) -> list[tuple[int, int, str]]:
    found = apil.answers(folder)
    return list(zip(found.iteration.tolist(), found.step.tolist(), found.teacher.tolist(), strict=True))


def test_two_people_teach_by_the_command_and_every_answer_is_learned_once(tmp_path: Path) -> None:
    folder = tmp_path / "live"
    with teaching(folder, "--teachers", "ann", "bob", "--out", str(folder), *words(QUICK)) as process:
        assert (folder / "links.json").exists() or links(folder)
        assert os.stat(folder / "links.json").st_mode & 0o777 == 0o600
        people = teachers(folder)
        assert process.wait(120) == 0
        for one in people:
            one.stop()
    assert len(counted(folder)) == 24
    assert sorted(stored(folder)) == sorted(counted(folder))
    assert {name for _, _, name in stored(folder)} == {"ann", "bob"}
    assert apil.answers(folder).executed.all()
    assert not (folder / "people.json").exists(), "the server has ended"
    with pytest.raises(ConnectionError):
        Client(links(folder)["owner"]).get("/")


def test_after_kills_of_trainer_and_server_every_acknowledged_answer_is_in_the_store_once(tmp_path: Path) -> None:
    folder = tmp_path / "live"
    people: list[Teacher] = []
    with teaching(folder, "--teachers", "ann", "bob", "--out", str(folder), *words(QUICK)):
        people = teachers(folder, pause=0.05)
        wait_for(lambda: sum(len(one.acknowledged) for one in people) >= 4)
        os.kill(json.loads((folder / "people.json").read_text())["pid"], signal.SIGKILL)
        wait_for(lambda: sum(len(one.acknowledged) for one in people) >= 8)
    # The trainer is killed; the server still takes the answers to what is open.
    with teaching(folder, "--resume", str(folder)) as process:
        assert process.wait(120) == 0
    for one in people:
        one.stop()
    acknowledged = [question for one in people for _, question in one.acknowledged]
    assert len(acknowledged) == len(set(acknowledged)) == len(counted(folder)) == 24
    assert sorted(stored(folder)) == sorted(counted(folder))
    for one in people:
        assert max(Counter(one.shown).values()) == 1, "nobody is asked the same twice"


def test_a_batch_that_is_walked_again_after_a_kill_gets_the_answers_that_are_there(tmp_path: Path) -> None:
    folder = tmp_path / "live"
    together = QUICK | {"walks": 0, "query": "always", "batch": 4, "save_every": 1}
    with teaching(folder, "--teachers", "ann", "bob", "--out", str(folder), *words(together)):
        people = teachers(folder, pause=0.02)
        wait_for(lambda: sum(len(one.acknowledged) for one in people) >= 10)
    with teaching(folder, "--resume", str(folder)) as process:
        assert process.wait(120) == 0
    for one in people:
        one.stop()
        assert max(Counter(one.shown).values()) == 1, "nobody is asked the same twice"
    assert sum(len(one.acknowledged) for one in people) == 24
    assert sorted(stored(folder)) == sorted(counted(folder))


def test_the_owner_stops_a_run_that_waits_for_people_and_it_is_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "live"
    with teaching(folder, "--teachers", "ann", "bob", "--out", str(folder), *words(QUICK)) as process:
        owner = Client(links(folder)["owner"])
        owner.enter()
        wait_for(lambda: owner.get("/api/owner/status")[1]["waiting"] == 4)
        assert owner.post("/api/owner/stop", {})[0] == 200
        owner.drop()
        assert process.wait(60) == 130
    before = links(folder)
    with teaching(folder, "--resume", str(folder)) as process:
        people = teachers(folder)
        assert process.wait(120) == 0
        for one in people:
            one.stop()
    assert links(folder) == before, "links stay the same"
    assert len(counted(folder)) == 24


def test_people_and_scripts_teach_in_one_team(tmp_path: Path) -> None:
    people = People(["ann"])
    team = Team({**people.persons, "script": "first"})
    made: list[Teacher] = []
    assert people.desk is not None
    people.desk.announce = lambda desk: made.append(  # type: ignore[attr-defined]
        Teacher(desk.links["teachers"]["ann"], maze_teacher(ORDERS["ann"])).start()
    )
    trained = apil.train("maze", team, "random", folder=tmp_path / "live", progress=False, **QUICK)  # type: ignore[arg-type]
    for one in made:
        one.stop()
    found = apil.answers(tmp_path / "live")
    assert trained.rows[-1]["answers"] == len(found) == 24
    assert set(found.teacher) == {"ann", "script"}
    assert int((found.teacher == "ann").sum()) == len(made[0].acknowledged)


def test_an_answer_budget_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ApilError, match="--answer-budget"):
        start("maze", ["ann"], "random", {}, tmp_path / "live", {})


def test_without_the_extra_the_command_leaves_no_folder_in_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)  # as if it were not installed
    with pytest.raises(ApilError, match=r"uvicorn is not installed: pip install .*apil\[people\]"):
        start("maze", ["ann"], "random", QUICK, tmp_path / "live", {})
    assert not (tmp_path / "live").exists()
