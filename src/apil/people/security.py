"""What every request has to pass: Host and Origin, the size of its body, its rate; and the headers of every answer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from apil.people.storage import Refused

BODY = 16 * 1024
"""Bytes of a request's body at most; an answer with a note of 2,000 characters fits."""
_TOO_LARGE = f"The body has more than {BODY} bytes."
RATE, BURST = 100.0, 300.0
"""Requests a second that one client may make in the long run, and at once."""
ATTEMPTS, ATTEMPT_BURST = 0.5, 20.0
"""The same of links that are tried and not valid."""
_CLIENTS = 10_000
"""Clients whose rate is remembered."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
    (b"cache-control", b"no-store"),
)


class Buckets:
    """Token buckets: `rate` a second in the long run, `burst` at once, for each client."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, client: str) -> bool:
        """Whether a client may make one more request now, which is then counted."""
        return self._allow(client, 1.0)

    def has(self, client: str) -> bool:
        """Whether a client may make one more request now."""
        return self._allow(client, 0.0)

    def _allow(self, client: str, cost: float) -> bool:
        now = self._clock()
        left, then = self._left.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - then) * self._rate)
        self._left[client] = (left - cost if left >= 1.0 else left, now)
        while len(self._left) > _CLIENTS:  # the one that was silent for longest
            del self._left[next(iter(self._left))]
        return left >= 1.0


class Guarded:
    """An application behind the checks; nothing that fails one reaches it."""

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        """`origins` are those under which the server is reached, for example http://127.0.0.1:8000."""
        self._app = app
        self._origins = frozenset(origin.lower() for origin in origins)
        self._hosts = frozenset(origin.partition("://")[2] for origin in self._origins)
        self._rates, self._attempts = Buckets(RATE, BURST), Buckets(ATTEMPTS, ATTEMPT_BURST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refusal(scope, headers)
        if refused is not None:
            await _refuse(send, *refused)
            return
        left = BODY

        async def limited() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise Refused(413, _TOO_LARGE)
            return message

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] == 403 and _is_link(scope):
                    self._attempts.take(_client(scope))
                given = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in HEADERS if pair[0] not in given)]
            await send(message)

        await self._app(scope, limited, dressed)

    def _refusal(self, scope: Scope, headers: dict[bytes, str]) -> tuple[int, str] | None:
        """Status and reason, if a request is refused before it is looked at."""
        if headers.get(b"host", "").lower() not in self._hosts:
            return 403, "This server is not reached under that name."
        origin = headers.get(b"origin")
        if origin is not None and origin.lower() not in self._origins:
            return 403, "Requests from other sites are refused."
        unsafe = scope["method"] not in ("GET", "HEAD")
        if unsafe and headers.get(b"sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return 403, "Requests from other sites are refused."
        length = headers.get(b"content-length", "0")
        if not length.isdigit() or int(length) > BODY:
            return 413, _TOO_LARGE
        if unsafe and headers.get(b"content-type", "").partition(";")[0].strip().lower() != "application/json":
            return 415, "The body has to be JSON: send content-type application/json."
        if _is_link(scope) and not self._attempts.has(_client(scope)):
            return 429, "Too many links were tried: wait a minute."
        if not self._rates.take(_client(scope) + headers.get(b"cookie", "")[:200]):
            return 429, "Too many requests: wait a second."
        return None


def _is_link(scope: Scope) -> bool:
    return bool(scope["path"].startswith(("/t/", "/o/")))


def _client(scope: Scope) -> str:
    return str(scope["client"][0]) if scope.get("client") else ""


async def _refuse(send: Send, status: int, why: str) -> None:
    body = json.dumps({"error": why}).encode()
    headers: Iterable[tuple[bytes, bytes]] = (
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *HEADERS,
    )
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})
