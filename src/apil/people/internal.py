"""The interface for the trainer: on loopback, behind a token of its own. Questions in, outcomes out."""

from __future__ import annotations

import base64
import hmac
import time
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from apil.people.api import refusing
from apil.people.hub import Hub
from apil.people.messages import sent_of
from apil.people.storage import Refused, Storage

POLL = 10.0
"""Seconds that a poll waits for something to tell."""


class TrainerApi:
    """The routes of the trainer. All are POST with JSON; bytes travel as base64."""

    def __init__(self, hub: Hub, token: str) -> None:
        self._hub, self._token = hub, token

    def app(self) -> Starlette:
        named = ("hello", "ask", "poll", "counted", "withdraw", "status", "links", "end")
        return Starlette(routes=[Route(f"/{name}", refusing(self._checked(name)), methods=["POST"]) for name in named])

    def _checked(self, name: str) -> Any:
        own = getattr(self, name)

        async def endpoint(request: Request) -> Response:
            if not hmac.compare_digest(request.headers.get("authorization", ""), f"Bearer {self._token}"):
                raise Refused(401, "This is for the trainer alone.")
            self._hub.heard = time.monotonic()
            return JSONResponse(await own(sent_of(await request.body())))

        return endpoint

    async def hello(self, sent: dict[str, Any]) -> dict[str, Any]:
        """A trainer has started: what it needs to know. `settings` and `about` are those of now."""

        def begin(storage: Storage) -> dict[str, Any]:
            for name in ("settings", "about"):
                storage.set_meta(name, sent[name])
            storage.set_meta("stop", False)
            return storage.begin_epoch()

        found = await self._hub.write(begin)
        self._hub.change()
        return found

    async def links(self, sent: dict[str, Any]) -> dict[str, Any]:
        """New links for those who have none yet, or for all of `renew`."""

        def make(storage: Storage) -> dict[str, str]:
            known = set(storage.teachers()) | ({""} if storage.meta("owner") else set())
            wanted = [name for name in ["", *sent["teachers"]] if name not in known or name in sent["renew"]]
            return {name: storage.new_link(name) for name in wanted}

        tokens = await self._hub.write(make)
        self._hub.sessions.clear()
        return {"tokens": tokens}

    async def ask(self, sent: dict[str, Any]) -> dict[str, Any]:
        questions = [
            ({**own, "features": _bytes(own["features"]), "valid": _bytes(own["valid"])}, _pictures(own["pictures"]))
            for own in sent["questions"]
        ]
        taken = await self._hub.write(lambda storage: [storage.ask(own, pictures) for own, pictures in questions])
        self._hub.change()
        for own in taken:
            own["outcome"] = own["outcome"] and _as_text(own["outcome"])
        return {"taken": taken}

    async def poll(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Outcomes after the number `after`; waits for some if there are none."""

        def look(storage: Storage) -> dict[str, Any]:
            control = {"stop": storage.meta("stop", False), "paused": storage.meta("paused", False)}
            return {"outcomes": storage.outcomes(sent["after"]), **control}

        found = await self._hub.write(look)
        until = time.monotonic() + POLL
        while not (found["outcomes"] or found["stop"] or self._hub.stopping.is_set()):
            if (left := until - time.monotonic()) <= 0:
                break
            await self._hub.outcome(left)
            found = await self._hub.write(look)
        return found | {"outcomes": [_as_text(row) for row in found["outcomes"]]}

    async def counted(self, sent: dict[str, Any]) -> dict[str, Any]:
        """All answers that count."""
        rows = await self._hub.write(lambda storage: storage.counted())
        return {"answers": [_as_text(row) for row in rows]}

    async def withdraw(self, sent: dict[str, Any]) -> dict[str, Any]:
        found = await self._hub.write(lambda storage: storage.withdraw(sent["questions"]))
        self._hub.change()
        return {"withdrawn": found}

    async def status(self, sent: dict[str, Any]) -> dict[str, Any]:
        """How far training is, for the owner's page; a point of the curve is kept."""
        self._hub.status = sent["status"]
        point = sent.get("point")
        if point is not None:

            def add(storage: Storage) -> None:
                storage.set_meta("curve", [*storage.meta("curve", []), point])

            await self._hub.write(add)
        self._hub.change()
        return {}

    async def end(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Training is over; the server ends."""
        self._hub.stopping.set()
        self._hub.change()
        return {}


def _as_text(row: dict[str, Any]) -> dict[str, Any]:
    return row | {name: base64.b64encode(row[name]).decode() for name in ("features", "valid")}


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


def _pictures(sent: list[list[str]]) -> list[tuple[str, bytes]]:
    return [(kind, _bytes(data)) for kind, data in sent]
