"""A client of the open interface that answers by itself: for tests and benchmarks, and as an example of one."""

from __future__ import annotations

import http.client
import json
import random
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

Answer = Callable[[dict[str, Any]], Any]
"""A question as the interface gives it -> an action, or None to skip."""
_MOVES = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}


class Client:
    """One teacher's connection. A lost one is opened again; the caller sees `OSError` meanwhile."""

    def __init__(self, link: str, timeout: float = 30.0) -> None:
        parts = urlsplit(link)
        self._host, self._port, self._timeout = parts.hostname or "", parts.port or 80, timeout
        self._link, self._cookie = parts.path, ""
        self._connection: http.client.HTTPConnection | None = None

    def enter(self) -> None:
        """Exchanges the link for a cookie."""
        status, headers, _ = self._send("GET", self._link, None)
        if status != 303:
            raise ConnectionError(f"the link was refused with {status}")
        self._cookie = headers["set-cookie"].partition(";")[0]

    def get(self, path: str) -> tuple[int, Any]:
        status, _, body = self._send("GET", path, None)
        return status, json.loads(body) if body else None

    def post(self, path: str, sent: dict[str, Any]) -> tuple[int, Any]:
        status, _, body = self._send("POST", path, json.dumps(sent).encode())
        return status, json.loads(body) if body else None

    def drop(self) -> None:
        """Closes the connection, as a phone in a tunnel does."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _send(self, method: str, path: str, body: bytes | None) -> tuple[int, http.client.HTTPMessage, bytes]:
        headers = {"cookie": self._cookie} if self._cookie else {}
        if body is not None:
            headers["content-type"] = "application/json"
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
            self._connection.request(method, path, body, headers)
            response = self._connection.getresponse()
            return response.status, response.headers, response.read()
        except (OSError, http.client.HTTPException) as error:
            self.drop()
            raise ConnectionError(str(error)) from error


class Teacher:
    """Answers every question in a thread of its own, after a pause, until it is stopped."""

    def __init__(
        self,
        link: str,
        answer: Answer,
        *,
        pause: Callable[[], float] = lambda: 0.0,
        poll: float = 0.02,
        seed: int = 0,
    ) -> None:
        """`pause` gives the seconds before an answer; `poll` are those between two looks for a question."""
        self.client, self._answer, self._pause, self._poll = Client(link), answer, pause, poll
        self.rng = random.Random(seed)
        self.acknowledged: list[tuple[str, str]] = []
        """Key and question of every answer that was said to be kept and to count."""
        self.shown: list[str] = []
        """The questions that were shown, in order."""
        self.seconds: list[float] = []
        """That each POST of an answer took, from the first try to the last."""
        self.refused: list[tuple[int, Any]] = []
        self.idle = 0.0
        """Seconds without a question."""
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Teacher:
        self._thread.start()
        return self

    def stop(self) -> None:
        self.ended.set()
        self._thread.join(30)
        self.client.drop()

    def _run(self) -> None:
        self._until(self._enter)
        while not self.ended.is_set():
            asked = time.monotonic()
            status, question = self._until(lambda: self.client.get("/api/question"))
            if status != 200:
                self.ended.wait(self._poll if status == 204 else 0.5)
                self.idle += time.monotonic() - asked
                continue
            if not self.shown or self.shown[-1] != question["id"]:
                self.shown.append(question["id"])
            self.ended.wait(self._pause())
            if not self.ended.is_set():
                self.respond(question)

    def _enter(self) -> tuple[int, Any]:
        self.client.enter()
        return 200, None

    def respond(self, question: dict[str, Any]) -> None:
        """Answers a question once, however often it has to be sent."""
        action = self._answer(question)
        if action is None:
            self._until(lambda: self.client.post("/api/skip", {"question": question["id"]}))
            return
        key = secrets.token_hex(16)
        sent = {"question": question["id"], "action": action, "key": key}
        began = time.monotonic()
        status, said = self._until(lambda: self.client.post("/api/answers", sent))
        self.seconds.append(time.monotonic() - began)
        if status in (200, 201) and said["counted"]:
            self.acknowledged.append((key, question["id"]))
        else:
            self.refused.append((status, said))

    def _until(self, send: Callable[[], tuple[int, Any]]) -> tuple[int, Any]:
        """Tries until the server answers."""
        while not self.ended.is_set():
            try:
                return send()
            except ConnectionError:
                self.ended.wait(0.05)
        return 0, None


def maze_teacher(order: Sequence[str]) -> Answer:
    """Walks a shortest way through a board of cells; of several first moves the earliest in `order`."""

    def answer(question: dict[str, Any]) -> int:
        steps = _steps_to_goal(question["cells"])
        row, column = _find(question["cells"], "A")
        moves = {own["name"]: own["action"] for own in question["actions"]}
        ways = {
            name: steps.get((row + _MOVES[name][0], column + _MOVES[name][1]), 10**6) for name in order if name in moves
        }
        best = min(ways.values())
        return int(moves[next(name for name, far in ways.items() if far == best)])

    return answer


def _find(cells: Sequence[str], mark: str) -> tuple[int, int]:
    return next((row, line.index(mark)) for row, line in enumerate(cells) if mark in line)


def _steps_to_goal(cells: Sequence[str]) -> dict[tuple[int, int], int]:
    goal = _find(cells, "G")
    found, waiting = {goal: 0}, deque([goal])
    while waiting:
        row, column = waiting.popleft()
        for down, right in _MOVES.values():
            near = (row + down, column + right)
            inside = 0 <= near[0] < len(cells) and 0 <= near[1] < len(cells[0])
            if inside and near not in found and cells[near[0]][near[1]] != "#":
                found[near] = found[row, column] + 1
                waiting.append(near)
    return found
