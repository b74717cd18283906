"""The pages in a real browser."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from browsers import browser, needs_browser, page_of
from looks import faint, out_of_reach
from test_teaching import ORDERS, links, stored, teaching, wait_for

from apil.people.channel import Channel
from apil.people.desk import packed
from apil.people.pictures import board
from apil.people.simulated import Client, maze_teacher

pytestmark = needs_browser
BOARD = ("..G", ".#.", "A..")
UNNAMED = """
    [...document.querySelectorAll('button, a, input, textarea, img, progress, [role=img]')].filter(e => !(e.innerText
        || e.getAttribute('aria-label') || e.alt || e.closest('label') || e.labels?.length || e.closest('[hidden]')
    )).map(e => e.outerHTML)
"""
"""What a screen reader has no name for."""
EVIL = "<b id='evil'>bob</b>"


class Run:
    """A server with no training behind it: the test asks."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder = folder
        self.channel = Channel(folder, "127.0.0.1", 0, "")
        settings = {"lease": 60.0, "show_agent": True}
        self.channel.call("hello", {"settings": settings, "about": {"task": "maze", "horizon": 20}})
        tokens = self.channel.call("links", {"teachers": names, "renew": []})["tokens"]
        self.links = {name: f"{self.channel.address}/{'t' if name else 'o'}/{token}" for name, token in tokens.items()}
        self._asked = 0

    def ask(self, assigned: str = "ann", **more: Any) -> str:
        self._asked += 1
        moves = [("up", 0, "ArrowUp"), ("right", 1, "ArrowRight")]
        about = {
            "continuous": False,
            "actions": [{"action": action, "name": name, "keys": [key]} for name, action, key in moves],
            "agent": {"action": 0, "name": "up", "chance": 0.83},
            "ask_distance": False,
            "cells": list(BOARD),
            "text": "",
            "views": [],
            **more,
        }
        svg = packed_text(board(BOARD).encode())
        question = {
            "id": f"q{self._asked}",
            "kind": "live",
            "epoch": 1,
            "walk": self._asked,
            "episode": 0,
            "step": 0,
            "version": 0,
            "assigned": assigned,
            "distance_known": None,
            "about": about,
            "features": packed(torch.tensor([float(self._asked)])),
            "valid": packed(torch.tensor([True, True])),
            "copies": 0,
            "pictures": [["image/svg+xml", svg]],
        }
        return str(self.channel.call("ask", {"questions": [question]})["taken"][0]["id"])

    def answers(self) -> list[tuple[Any, ...]]:
        """Teacher, question, action, flag and note of all answers."""
        with sqlite3.connect(self.folder / "people.sqlite") as db:
            return db.execute("SELECT teacher, question, action, flag, note FROM answers ORDER BY seq").fetchall()


def packed_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.fixture(scope="module")
def shown() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path, ["ann", EVIL])
    yield made
    made.channel.call("end", {})
    made.channel.wait()


def test_keys_answer_skip_and_undo_and_a_reload_changes_nothing(shown: Any, run: Run) -> None:
    first = run.ask()
    with page_of(shown, run.links["ann"]) as page:
        page.wait_for_selector("#desk:not([hidden])")
        assert "the agent would choose up, 83 % sure" in page.inner_text(".reply")
        page.uncheck("#agent")
        assert "the agent would choose" not in page.inner_text(".reply")
        page.reload()
        page.wait_for_selector("#desk:not([hidden])")
        assert run.answers() == []
        page.keyboard.press("n")
        page.keyboard.type("not sure <img src=x>")
        page.keyboard.press("Escape")
        page.keyboard.press("ArrowUp")
        page.wait_for_selector("#idle:not([hidden])")
        assert run.answers() == [("ann", first, "0", "", "not sure <img src=x>")]
        second = run.ask()
        page.wait_for_selector("#desk:not([hidden])")
        page.keyboard.press("u")
        page.wait_for_selector("#kind:not([hidden])")
        assert page.get_attribute("#actions .was", "aria-keyshortcuts") == "ArrowUp"
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#kind", state="hidden")
        assert run.answers()[1][:4] == ("ann", first, "1", "correction")
        page.keyboard.press("s")
        page.wait_for_selector("#idle:not([hidden])")
    with page_of(shown, run.links[EVIL]) as page:
        page.wait_for_selector("#desk:not([hidden])")
        assert page.query_selector("#evil") is None, "a name is text"
        assert EVIL in page.inner_text("#title")
        page.keyboard.press("k")
        page.wait_for_selector("#idle:not([hidden])")
    assert [row[1] for row in run.answers()] == [first, first]
    assert run.channel.call("poll", {"after": 0})["outcomes"][-1]["question"] == second
    with page_of(shown, run.links[""]) as page:
        page.wait_for_selector("#notes li")
        assert page.query_selector("#evil") is None
        assert "not sure <img src=x>" in page.inner_text("#notes")


def test_a_page_keeps_its_answer_while_the_server_is_away(shown: Any, run: Run) -> None:
    own = run.ask()
    with page_of(shown, run.links["ann"]) as page:
        page.wait_for_selector("#desk:not([hidden])")
        os.kill(json.loads((run.folder / "people.json").read_text())["pid"], signal.SIGKILL)
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#banner:has-text('kept')")
        run.channel.call("withdraw", {"questions": []})  # a trainer that calls brings the server back
        page.wait_for_selector("#given:text-is('1')")
    assert run.answers() == [("ann", own, "1", "", "")]


@pytest.mark.parametrize("width", [360, 1280])
def test_all_fits_the_width_has_labels_and_comes_from_the_server(shown: Any, run: Run, width: int) -> None:
    run.ask(views=[["exit 1: ahead", "a " + "long " * 40]], ask_distance=True, text="go on " * 30)
    for link in (run.links["ann"], run.links[""]):
        run.channel.call("withdraw", {"questions": []})  # a server whose trainer has been silent for a minute ends
        with page_of(shown, link, width, 740) as page:
            page.wait_for_selector("#desk:not([hidden]), #teachers td")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert (page.evaluate(UNNAMED), faint(page), out_of_reach(page)) == ([], [], [])
            hosts = page.evaluate("performance.getEntriesByType('resource').map(e => new URL(e.name).origin)")
            assert set(hosts) == {run.channel.address}


def test_words_for_the_distance_and_sliders_work_by_keys(shown: Any, run: Run) -> None:
    run.ask(ask_distance=True)
    with page_of(shown, run.links["ann"]) as page:
        page.wait_for_selector("#distance:not([hidden])")
        page.keyboard.press("ArrowUp")
        assert run.answers() == [], "the distance is asked for first"
        page.keyboard.press("c")
        page.keyboard.press("ArrowUp")
        page.wait_for_selector("#idle:not([hidden])")
        sides = [{"name": "turn", "low": -1.0, "high": 1.0}, {"name": "gas", "low": 0.0, "high": 1.0}]
        run.ask(continuous=True, actions=sides, agent=None)
        page.wait_for_selector("#sliders:not([hidden])")
        for key in ("ArrowRight", "ArrowRight", "Tab", "ArrowLeft", "Enter"):
            page.keyboard.press(key)
        page.wait_for_selector("#idle:not([hidden])")
    with sqlite3.connect(run.folder / "people.sqlite") as db:
        rows = db.execute("SELECT action, said FROM answers ORDER BY seq").fetchall()
    assert rows[0] == ("0", "closer")
    assert json.loads(rows[1][0]) == pytest.approx([0.2, 0.45])


ARROWS = {"up": "ArrowUp", "right": "ArrowRight", "down": "ArrowDown", "left": "ArrowLeft"}


def press(page: Any, name: str) -> None:
    """Answers the question that is shown, by what can be seen of it; nothing if there is none."""
    if page.is_hidden("#desk"):
        return
    told = page.get_attribute("#picture", "alt") or ""
    seen = told.partition("rows: ")[2].partition(". A is")[0].split(", ")
    buttons = page.locator("#actions button").all_inner_texts()
    moves = [re.match("[a-z]+", text)[0] for text in buttons]  # type: ignore[index]
    if not told or not moves:
        return
    actions = [{"action": place, "name": move} for place, move in enumerate(moves)]
    best = maze_teacher(ORDERS[name])({"cells": seen, "actions": actions})
    page.keyboard.press(ARROWS[moves[best]])


def test_two_teachers_in_two_browsers_teach_a_maze_by_keys_until_it_succeeds_alone(shown: Any, tmp_path: Path) -> None:
    folder = tmp_path / "live"
    maze = [
        "--task",
        "maze",
        "--size",
        "4",
        "--walls",
        "2",
        "--answer-budget",
        "150",
        "--log-every",
        "2",
        "--models",
        "4",
    ]
    with teaching(folder, "--teachers", "ann", "bob", "--out", str(folder), *maze) as process:
        made = links(folder)
        owner = Client(made["owner"])
        owner.enter()
        with page_of(shown, made["teachers"]["ann"]) as ann, page_of(shown, made["teachers"]["bob"], 360, 740) as bob:

            def taught() -> bool:
                press(ann, "ann")
                press(bob, "bob")
                if process.poll() is not None:
                    return True
                status = owner.get("/api/owner/status")[1]
                return bool((status["training"].get("success_alone") or 0) >= 0.9)

            wait_for(taught, 120)
            last = owner.get("/api/owner/status")[1] if process.poll() is None else None
        owner.drop()
    assert last is not None, "it succeeds before the answers are spent"
    assert last["curve"][0]["success"] < 0.9
    assert {name for _, _, name in stored(folder)} == {"ann", "bob"}
