"""A server in this process with a clock of the test's own, and questions to put to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from apil.people.hub import Hub
from apil.people.server import origins_of, public_app
from apil.people.storage import OWNER, Storage

ADDRESS = "http://127.0.0.1:8000"


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Place:
    """A served run with its storage at hand."""

    def __init__(self, folder: Path, names: tuple[str, ...], **settings: Any) -> None:
        self.clock = Clock()
        self.storage = Storage(folder, self.clock)
        self.storage.set_meta("settings", {"lease": 60.0, "show_agent": True, **settings})
        self.tokens = {name: self.storage.new_link(name) for name in (OWNER, *names)}
        self.epoch = self.storage.begin_epoch()["epoch"]
        self.hub = Hub(self.storage)
        self.app = public_app(self.hub, "test", origins_of("127.0.0.1", 8000, ADDRESS))
        self._asked = 0

    def client(self, who: str | None = None) -> TestClient:
        """A client of its own; with the cookie of somebody, if named."""
        client = TestClient(self.app, base_url=ADDRESS, follow_redirects=False)
        if who is not None:
            entered = client.get(f"/{'o' if who == OWNER else 't'}/{self.tokens[who]}")
            assert entered.status_code == 303
        return client

    def ask(self, assigned: str, **more: Any) -> str:
        """Puts a question with two actions; returns its id."""
        self._asked += 1
        about = {
            "continuous": False,
            "actions": [{"action": 0, "name": "left", "keys": ["1"]}, {"action": 2, "name": "right", "keys": ["2"]}],
            "agent": {"action": 0, "name": "left", "chance": 0.7},
        }
        question = {
            "id": f"q{self._asked}",
            "kind": "live",
            "epoch": self.epoch,
            "walk": self._asked,
            "episode": 0,
            "step": 0,
            "version": 0,
            "assigned": assigned,
            "distance_known": 2.0,
            "about": about,
            "features": f"seen {self._asked}".encode(),
            "valid": b"v",
            "copies": 0,
            **more,
        }
        return str(self.storage.ask(question, [("image/svg+xml", b"<svg/>")])["id"])

    def answers(self) -> list[dict[str, Any]]:
        """Everything that is on disk, read by a connection of its own."""
        rows = self.storage.db.execute("SELECT * FROM answers ORDER BY seq").fetchall()
        return [dict(row) | {"action": json.loads(row["action"])} for row in rows]


@contextmanager
def place(folder: Path, *names: str, **settings: Any) -> Iterator[Place]:
    made = Place(folder, names or ("ann", "bob"), **settings)
    try:
        yield made
    finally:
        made.hub.write.close()


def answer(client: TestClient, question: str, key: str, action: Any = 0, **more: Any) -> Any:
    return client.post("/api/answers", json={"question": question, "key": key, "action": action, **more})
