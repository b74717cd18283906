"""The interface for the owner of a run: how it goes, pause, stop, the end of a link, and all answers."""

from __future__ import annotations

import csv
import io
import json
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from apil.people.api import TeacherApi, refusing
from apil.people.hub import Hub
from apil.people.messages import sent_of, text_of
from apil.people.storage import OWNER, Refused, Storage

_PRESENT = 40.0
"""Seconds after a word from a teacher in which they count as there."""
COLUMNS = (
    *("seq", "question", "teacher", "action", "distance", "said", "note", "flag", "counted", "corrects", "shown_at"),
    *("answered_at", "kind", "walk", "episode", "step", "version", "asked_at"),
)
"""Of the download."""


class OwnerApi:
    """The routes of the owner."""

    def __init__(self, hub: Hub, teachers: TeacherApi) -> None:
        self._hub, self._teachers = hub, teachers

    def routes(self) -> list[Route]:
        return [
            Route("/api/owner/status", refusing(self.status)),
            Route("/api/owner/events", refusing(self.events)),
            Route("/api/owner/answers.{kind}", refusing(self.download)),
            Route("/api/owner/pause", refusing(self.pause), methods=["POST"]),
            Route("/api/owner/stop", refusing(self.stop), methods=["POST"]),
            Route("/api/owner/end", refusing(self.end), methods=["POST"]),
        ]

    async def status(self, request: Request) -> Response:
        await self._teachers.who(request, owner=True)
        found = await self._hub.write(overview)
        now = time.monotonic()
        for row in found["teachers"]:
            row["here"] = now - self._hub.here.get(row["name"], -1e9) < _PRESENT
        return JSONResponse(found | {"training": self._hub.status, "trainer": self._hub.trainer_is_here})

    async def events(self, request: Request) -> Response:
        await self._teachers.who(request, owner=True)
        return StreamingResponse(self._hub.stream(OWNER), media_type="text/event-stream")

    async def pause(self, request: Request) -> Response:
        """No new questions are given out while it is paused; those that are being looked at stay."""
        sent = await self._sent(request)
        if not isinstance(sent.get("paused"), bool):
            raise Refused(422, "paused has to be true or false.")
        await self._hub.write(lambda storage: storage.set_meta("paused", sent["paused"]))
        self._hub.change()
        return JSONResponse({"paused": sent["paused"]})

    async def stop(self, request: Request) -> Response:
        """Asks the trainer to save and end; it can be resumed."""
        await self._sent(request)
        await self._hub.write(lambda storage: storage.set_meta("stop", True))
        self._hub.change()
        return JSONResponse({"stop": True})

    async def end(self, request: Request) -> Response:
        """Ends the link of a teacher."""
        name = text_of(await self._sent(request), "teacher", 100)
        await self._hub.write(lambda storage: storage.end_link(name))
        self._hub.sessions.clear()
        self._hub.change()
        return JSONResponse({"ended": name})

    async def download(self, request: Request) -> Response:
        """All answers, flagged ones included, as CSV or JSON."""
        await self._teachers.who(request, owner=True)
        kind = request.path_params["kind"]
        if kind not in ("csv", "json"):
            raise Refused(404, "Answers come as csv or json.")
        rows = await self._hub.write(all_answers)
        text = as_csv(rows) if kind == "csv" else json.dumps(rows)
        named = {"content-disposition": f'attachment; filename="answers.{kind}"'}
        return Response(text, media_type="text/csv" if kind == "csv" else "application/json", headers=named)

    async def _sent(self, request: Request) -> dict[str, Any]:
        await self._teachers.who(request, owner=True)
        return sent_of(await request.body())


def all_answers(storage: Storage) -> list[dict[str, Any]]:
    """Every answer with its question, in the order in which they came."""
    rows = storage.db.execute(
        f"SELECT {', '.join(('a.' if at < 12 else 'q.') + name for at, name in enumerate(COLUMNS))} "
        "FROM answers a JOIN questions q ON q.id = a.question ORDER BY a.seq"
    )
    return [dict(row) for row in rows]


def as_csv(rows: list[dict[str, Any]]) -> str:
    """A table that a spreadsheet opens; a text that it would take for a formula begins with an apostrophe."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS)
    writer.writeheader()
    for row in rows:
        risky = [name for name in ("teacher", "note") if str(row[name])[:1] in ("=", "+", "-", "@", "\t")]
        writer.writerow(row | {name: f"'{row[name]}" for name in risky})
    return out.getvalue()


def overview(storage: Storage) -> dict[str, Any]:
    """What the owner's page shows of people."""
    db = storage.db
    teachers = [
        dict(row)
        for row in db.execute(
            "SELECT name, ended, (SELECT COUNT(*) FROM answers WHERE teacher = name AND counted) AS answers, "
            "(SELECT COUNT(*) FROM answers WHERE teacher = name AND NOT counted AND flag != '') AS flagged, "
            "(SELECT COUNT(*) FROM passed WHERE teacher = name AND why != 'lapsed') AS passed, "
            "(SELECT COUNT(*) FROM answers WHERE teacher = name AND corrects IS NOT NULL) AS corrections, "
            "(SELECT AVG(answered_at - shown_at) FROM answers WHERE teacher = name AND counted) AS seconds "
            "FROM teachers ORDER BY place"
        )
    ]
    waiting = db.execute("SELECT COUNT(*), MIN(asked_at) FROM questions WHERE state = 'open'").fetchone()
    notes = db.execute(
        "SELECT teacher, note, answered_at FROM answers WHERE note != '' ORDER BY seq DESC LIMIT 20"
    ).fetchall()
    return {
        "teachers": teachers,
        "waiting": waiting[0],
        "waiting_since": waiting[1],
        "answers": sum(row["answers"] for row in teachers),
        "agreement": agreement(storage),
        "notes": [dict(row) for row in notes],
        "curve": storage.meta("curve", []),
        "paused": storage.meta("paused", False),
        "stopping": storage.meta("stop", False),
        "about": storage.meta("about", {}),
    }


def agreement(storage: Storage) -> list[dict[str, Any]]:
    """How often two teachers gave the same answer in the same state, for each pair that met in one."""
    found: dict[tuple[str, str], list[int]] = {}
    pairs = storage.db.execute(
        "SELECT a.teacher AS one, b.teacher AS other, a.action = b.action AS same FROM answers a "
        "JOIN questions p ON p.id = a.question JOIN questions q ON q.features = p.features "
        "JOIN answers b ON b.question = q.id WHERE a.counted AND b.counted AND a.teacher < b.teacher"
    )
    for row in pairs:
        found.setdefault((row["one"], row["other"]), []).append(row["same"])
    return [_agreed(names, same) for names, same in sorted(found.items())]


def _agreed(names: tuple[str, str], same: list[int]) -> dict[str, Any]:
    return {"teachers": list(names), "alike": len(same), "share": sum(same) / len(same)}
