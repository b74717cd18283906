"""The interface for teachers: questions out, answers in. The page uses it, and so may any other client."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from apil.people.hub import Hub
from apil.people.messages import KEY, NOTE, answer_of, question_json, sent_of, text_of, why_of
from apil.people.storage import OWNER, Refused, Storage, digest

Endpoint = Callable[[Request], Awaitable[Response]]


def refusing(endpoint: Endpoint) -> Endpoint:
    """An endpoint whose refusals are answers with a status and a reason."""

    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Refused as refused:
            return JSONResponse({"error": refused.why}, refused.status)

    return answered


class TeacherApi:
    """The routes of teachers."""

    def __init__(self, hub: Hub, run: str, secure: bool) -> None:
        """`run` is a short name that tells the cookies of several runs on one machine apart."""
        self._hub = hub
        self._cookies = {OWNER: f"apil_owner_{run}"}
        self._cookie, self._secure = f"apil_{run}", secure

    def routes(self) -> list[Route]:
        return [
            Route("/t/{token}", refusing(self.enter)),
            Route("/o/{token}", refusing(self.enter)),
            Route("/api/me", refusing(self.me)),
            Route("/api/question", refusing(self.question)),
            Route("/api/questions/{id}/picture/{frame:int}", refusing(self.picture)),
            Route("/api/events", refusing(self.events)),
            Route("/api/answers", refusing(self.answer), methods=["POST"]),
            Route("/api/skip", refusing(self.skip), methods=["POST"]),
            Route("/api/undo", refusing(self.undo), methods=["POST"]),
        ]

    def _name_of(self, who: str) -> str:
        return self._cookies.get(who, self._cookie)

    async def enter(self, request: Request) -> Response:
        """Exchanges a link for a cookie and leads to the page, which holds nothing by itself."""
        token = request.path_params["token"]
        who, session = await self._hub.write(lambda storage: storage.enter(token))
        response = RedirectResponse("/owner" if who == OWNER else "/teach", 303)
        response.set_cookie(
            self._name_of(who), session, max_age=90 * 86400, httponly=True, samesite="strict", secure=self._secure
        )
        return response

    async def who(self, request: Request, owner: bool = False) -> str:
        """Who makes a request, by its cookie alone; refused if nobody who may."""
        cookie = request.cookies.get(self._name_of(OWNER) if owner else self._cookie)
        if cookie is None:
            raise Refused(401, "Open your link first.")
        mark = digest(cookie)
        if mark not in self._hub.sessions:  # a session that was found once is found again until a link is ended
            known = await self._hub.write(lambda storage: storage.who(mark))
            if known is not None:
                self._hub.sessions[mark] = known
        found = self._hub.sessions.get(mark)
        if found is None or (found == OWNER) != owner:
            raise Refused(403, "This link is no longer valid: ask for a new one.")
        if not owner:
            self._hub.here[found] = time.monotonic()
        return found

    async def me(self, request: Request) -> Response:
        who = await self.who(request)

        def look(storage: Storage) -> dict[str, Any]:
            row = storage.db.execute("SELECT COUNT(*) FROM answers WHERE teacher = ? AND counted", (who,)).fetchone()
            return {"name": who, "answers": row[0], "waiting": storage.waiting(who), **storage.meta("about", {})}

        return JSONResponse(await self._hub.write(look))

    async def question(self, request: Request) -> Response:
        """The next question, leased to who asks for it; 204 where there is none."""
        who = await self.who(request)

        def claim(storage: Storage) -> dict[str, Any] | None:
            again = storage.undone(who)
            row = storage.next_question(who) if again is None else again
            if row is None:
                return None
            kind = None if again is None else "correction"
            said = question_json(row, storage.frames(row["id"]), kind)
            if not storage.meta("settings", {}).get("show_agent", True):
                said.pop("agent", None)
            return said | {"waiting": storage.waiting(who)}

        found = await self._hub.write(claim)
        return Response(status_code=204) if found is None else JSONResponse(found)

    async def picture(self, request: Request) -> Response:
        who = await self.who(request)
        question, frame = request.path_params["id"], request.path_params["frame"]
        kind, data = await self._hub.write(lambda storage: storage.picture(who, question, frame))
        return Response(data, media_type=kind, headers={"cache-control": "private, max-age=3600"})

    async def events(self, request: Request) -> Response:
        who = await self.who(request)
        return StreamingResponse(self._hub.stream(who), media_type="text/event-stream")

    async def answer(self, request: Request) -> Response:
        """Keeps an answer; said to be kept after the commit and not before."""
        who = await self.who(request)
        sent = sent_of(await request.body())
        question, _ = text_of(sent, "question", 100), text_of(sent, "key", KEY)

        def keep(storage: Storage) -> Any:
            row = storage.db.execute("SELECT about FROM questions WHERE id = ?", (question,)).fetchone()
            if row is None:
                raise Refused(404, "There is no such question.")
            return storage.answer(who, answer_of(sent, json.loads(row["about"])))

        posted = await self._hub.write(keep)
        self._hub.change()
        return JSONResponse(posted.said, posted.status)

    async def skip(self, request: Request) -> Response:
        """Passes on a question: not now (`skip`), or the teacher does not know (`unknown`)."""
        who = await self.who(request)
        sent = sent_of(await request.body())
        question, why, note = text_of(sent, "question", 100), why_of(sent), text_of(sent, "note", NOTE, "")
        await self._hub.write(lambda storage: storage.pass_on(who, question, why, note))
        self._hub.change()
        return JSONResponse({"question": question, "why": why})

    async def undo(self, request: Request) -> Response:
        """The question of the last answer again; the next answer to it takes its place."""
        who = await self.who(request)
        await request.body()

        def reopen(storage: Storage) -> dict[str, Any]:
            row = storage.undo(who)
            return question_json(row, storage.frames(row["id"]), "correction")

        return JSONResponse(await self._hub.write(reopen))
