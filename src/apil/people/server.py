"""The server: a process of its own, which is the one writer of `people.sqlite`.

    python -m apil.people.server FOLDER --host 127.0.0.1 --port 0 --address http://127.0.0.1:8000

It outlives a killed trainer for a while, to take in answers that people are about to give.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import socket
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import uvicorn
from filelock import FileLock, Timeout
from starlette.applications import Starlette
from starlette.types import ASGIApp

from apil.errors import ApilError
from apil.people.api import TeacherApi
from apil.people.channel import CHANNEL, write_private
from apil.people.hub import Hub
from apil.people.internal import TrainerApi
from apil.people.owner import OwnerApi
from apil.people.pages import page_routes
from apil.people.security import Guarded
from apil.people.storage import Storage

LOCK = ".people.lock"
LINGER = 60.0
"""Seconds that a server stays after its trainer has gone."""


def origins_of(host: str, port: int, address: str) -> set[str]:
    """The origins under which the server is reached."""
    found = {address.rstrip("/")}
    if host in ("127.0.0.1", "localhost", "::1"):
        found |= {f"http://{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
    else:
        found.add(f"http://{host}:{port}")
    return found


def public_app(hub: Hub, run: str, origins: set[str]) -> ASGIApp:
    """The pages and the interface for teachers and the owner, behind all checks."""
    secure = all(origin.startswith("https://") for origin in origins)
    teachers = TeacherApi(hub, run, secure)
    owner = OwnerApi(hub, teachers)
    return Guarded(Starlette(routes=[*teachers.routes(), *owner.routes(), *page_routes()]), origins)


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens on a port; any free one if it is 0."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named: asyncio then sends at once what would else wait 40 ms for more.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        raise ApilError(f"Cannot listen on {host}, port {port}: {error.strerror}. Choose another --port.") from error
    return sock


class _Quiet(uvicorn.Server):
    """Signals are for whoever runs the server."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


async def serve(folder: Path, host: str, port: int, address: str, linger: float) -> None:
    """Serves until the trainer ends it, or has been gone for `linger` seconds."""
    storage = Storage(folder)
    run = storage.meta("run") or secrets.token_hex(4)
    if storage.meta("run") is None:
        storage.set_meta("run", run)
    public, inner = bound(host, port), bound("127.0.0.1", 0)
    port = public.getsockname()[1]
    address = address or f"http://{'127.0.0.1' if host == '::1' else host}:{port}"
    hub, token = Hub(storage), secrets.token_urlsafe(32)
    apps = ((public_app(hub, run, origins_of(host, port, address)), public), (TrainerApi(hub, token).app(), inner))
    servers = [_Quiet(_config(app)) for app, _ in apps]
    hub.start()
    tasks = [asyncio.create_task(s.serve([sock])) for s, (_, sock) in zip(servers, apps, strict=True)]
    while not all(server.started for server in servers):
        await asyncio.sleep(0.01)
    channel = {"pid": os.getpid(), "port": inner.getsockname()[1], "token": token, "address": address, "public": port}
    write_private(folder / CHANNEL, channel)
    while not hub.stopping.is_set() and time.monotonic() - hub.heard < linger:
        try:
            async with asyncio.timeout(1.0):
                await hub.stopping.wait()
        except TimeoutError:
            continue
    hub.stopping.set()
    await asyncio.sleep(0.2)  # streams say their last word
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*tasks)
    await hub.close()
    (folder / CHANNEL).unlink(missing_ok=True)


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=30,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Serves the people who teach a run.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--address", default="")
    parser.add_argument("--linger", type=float, default=LINGER)
    typed = parser.parse_args()
    os.umask(0o077)  # notes and times of people are for the owner of the run alone
    try:
        with FileLock(typed.folder / LOCK, blocking=False):
            asyncio.run(serve(typed.folder, typed.host, typed.port, typed.address, typed.linger))
    except Timeout:
        print(f"apil: Another server is running in {typed.folder}.", file=sys.stderr)
        sys.exit(3)
    except ApilError as error:
        print(f"apil: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
