"""The trainer's side of the channel to the server: calls that survive its end, since they start it again."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from apil.errors import ApilError
from apil.files import read_json, write_bytes

CHANNEL, LINKS, LOG = "people.json", "links.json", "people.log"
"""Where a server says how its trainer reaches it, where the links are, and what a server had to complain about."""
_START = 30.0
"""Seconds in which a server has to start."""
_TRIES = 20
"""Times that a call is made, each with a server that answers."""
_CALL = 60.0
"""Seconds that a call may take."""


class Channel:
    """Calls to the server of a folder. Every call may be repeated: nothing is done twice."""

    def __init__(self, folder: Path, host: str, port: int, address: str) -> None:
        self._folder, self._host, self._port, self._address = folder, host, port, address
        self._idle: list[tuple[int, http.client.HTTPConnection]] = []
        """Open connections that nobody uses, with their ports."""
        self._over = False
        """No more calls are expected: connections are closed rather than kept."""
        self._starting = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._known: dict[str, Any] = {}

    @property
    def address(self) -> str:
        """Where people reach the server."""
        return str(self._known["address"])

    def call(self, name: str, sent: dict[str, Any]) -> dict[str, Any]:
        """Sends JSON and returns what came back; starts the server where there is none."""
        body = json.dumps(sent).encode()
        for _ in range(_TRIES):
            known = self._known
            try:
                if known:
                    return self._request(known, name, body)
            except (OSError, http.client.HTTPException, ValueError):
                pass
            self._revive(known)
        raise ApilError(f"The server of {self._folder} does not answer: see {self._folder / LOG}, then resume.")

    def _request(self, known: dict[str, Any], name: str, body: bytes) -> dict[str, Any]:
        connection = self._connection(known["port"])
        headers = {"authorization": f"Bearer {known['token']}", "content-type": "application/json"}
        try:
            connection.request("POST", f"/{name}", body, headers)
            response = connection.getresponse()
            found = json.loads(response.read())
            if response.status == 401:  # another server has this port now
                raise ConnectionError
        except BaseException:
            connection.close()
            raise
        self._idle.append((known["port"], connection))
        if self._over:
            self._hang_up()
        if response.status != 200:
            raise ApilError(f"The server refused {name} ({response.status}): {found.get('error', found)}")
        assert isinstance(found, dict)
        return found

    def _hang_up(self) -> None:
        """Closes the connections that nobody uses."""
        while self._idle:
            with suppress(IndexError):  # another thread may have taken the last one
                self._idle.pop()[1].close()

    def _connection(self, port: int) -> http.client.HTTPConnection:
        """One that is open, or a new one."""
        while self._idle:
            with suppress(IndexError):  # another thread may have taken the last one
                own, connection = self._idle.pop()
                if own == port:
                    return connection
                connection.close()
        return http.client.HTTPConnection("127.0.0.1", port, timeout=_CALL)

    def _revive(self, failed: dict[str, Any]) -> None:
        """Finds the server that is there, or starts one."""
        with self._starting:
            if self._known is not failed:
                return
            until = time.monotonic() + _START
            while time.monotonic() < until:
                if self._attach(failed):
                    return
                if self._process is None or self._process.poll() is not None:
                    self._check_exit()
                    self._start()
                time.sleep(0.05)
        raise ApilError(f"The server of {self._folder} did not start: see {self._folder / LOG}.")

    def _attach(self, failed: dict[str, Any]) -> bool:
        try:
            found = read_json(self._folder / CHANNEL)
            if found == failed or not _alive(int(found["pid"])):
                return False
            with closing(http.client.HTTPConnection("127.0.0.1", int(found["port"]), timeout=5)) as connection:
                connection.request("POST", "/nothing", b"{}", {"content-type": "application/json"})
                connection.getresponse().read()
        except (ApilError, OSError, http.client.HTTPException, KeyError, TypeError, ValueError):
            return False
        self._known = found
        self._port = int(found["public"])
        return True

    def _start(self) -> None:
        words = [sys.executable, "-m", "apil.people.server", str(self._folder), "--host", self._host]
        words += ["--port", str(self._port), *(["--address", self._address] if self._address else [])]
        with (self._folder / LOG).open("ab") as log:
            # In a session of its own: Ctrl-C and the end of the terminal are not for it.
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _check_exit(self) -> None:
        """An error if the server refused to start; a server that was killed is started again."""
        if self._process is not None and self._process.returncode == 2:
            said = (self._folder / LOG).read_text(errors="replace").strip().splitlines()
            raise ApilError((said or ["The server did not start."])[-1].removeprefix("apil: "))

    def wait(self) -> None:
        """Waits for the end of a server that was started here."""
        self._over = True
        self._hang_up()
        if self._process is not None:
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.terminate()
                self._process.wait()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def write_private(path: Path, value: Any) -> None:
    """Writes JSON that nobody but the owner of the file may read."""
    before = os.umask(0o077)
    try:
        write_bytes(path, (json.dumps(value, indent=2) + "\n").encode())
    finally:
        os.umask(before)
