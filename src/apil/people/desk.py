"""The desk of a run: its questions wait here for people, and their answers come back, whatever is killed meanwhile."""

from __future__ import annotations

import base64
import json
import math
import os
import secrets
import signal
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np
import torch
from torch import Tensor

from apil.errors import ApilError
from apil.files import read_json
from apil.people.channel import LINKS, Channel, write_private
from apil.people.distances import Said
from apil.teachers.protocol import Kept

Distances = Literal["task", "said", "none"]


@dataclass(frozen=True)
class DeskSettings:
    """How people are asked."""

    lease: float = 60.0
    """Seconds for which a question waits for the teacher it was meant for, and for an answer of who looks at it; then
    it goes to another."""
    overlap: int = 1
    """How many teachers are asked the same question, to see how they agree; the others as a review."""
    show_agent: bool = True
    """Show what the agent would do by itself and how sure it is; this biases teachers."""
    distances: Distances = "task"
    """Where d(s) comes from: the task, words of the teachers (closer, same, farther, done), or nowhere."""
    frames: int = 6
    """How many of the last states are shown as a short animation."""
    patience: float | None = None
    """Seconds after which the agent continues without an answer; no limit if not given."""
    host: str = "127.0.0.1"
    """Where the server listens; loopback unless the network is meant to reach it."""
    port: int = 0
    """Any free one if 0; the same again on resume."""
    address: str = ""
    """The address under which teachers reach the server, for example behind a proxy: https://teach.example.org."""

    def __post_init__(self) -> None:
        wild = self.host in ("0.0.0.0", "::", "") and not self.address
        for wrong, words in (
            (not self.lease > 0, f"lease is {self.lease:g}: give seconds above 0"),
            (self.overlap < 1, f"overlap is {self.overlap}: give a number of teachers from 1 up"),
            (self.frames < 1, f"frames is {self.frames}: give a number from 1 up"),
            (
                self.distances not in ("task", "said", "none"),
                f"distances is '{self.distances}': give task, said or none",
            ),
            (self.patience is not None and not self.patience > 0, f"patience is {self.patience}: give seconds above 0"),
            (not 0 <= self.port < 65536, f"port is {self.port}: give one from 0 to 65535"),
            (wild, f"host is {self.host}, which is no address: give --address too, under which teachers reach it"),
        ):
            if wrong:
                raise ApilError(f"{words}.")


@dataclass
class Ticket:
    """A question that a walk waits for."""

    id: str
    done: threading.Event = field(default_factory=threading.Event)
    outcome: Mapping[str, Any] | None = None
    """The answer that counts; None as long as there is none."""


def check_packages() -> None:
    """Raises an error that names the extra if the server's packages are missing."""
    for package in ("starlette", "uvicorn"):
        if find_spec(package) is None:
            raise ApilError(f"{package} is not installed: pip install -c constraints.txt 'apil[people]'.")


class Desk:
    """A desk with a server of its own. Implements `apil.teachers.protocol.Desk`."""

    def __init__(self, names: Sequence[str], settings: DeskSettings) -> None:
        self.names, self.settings = tuple(names), settings
        self.frames = settings.frames
        self.version = self.first_walk = self.reviews = 0
        self.links: dict[str, Any] = {}
        """The address of the owner and of each teacher, once it is open."""
        self.announce: Callable[[Desk], None] = _print_links
        self._identity = {name: place for place, name in enumerate(names)}
        self._tickets: dict[str, Ticket] = {}
        self._early: dict[str, Mapping[str, Any]] = {}
        self._lock = threading.Lock()
        self._take: Callable[[Kept | None], None] | None = None
        self._grant: Callable[[int], int] = lambda copies: copies
        self._waiting: list[Kept | None] = []
        self._channel: Channel | None = None
        self._ended = threading.Event()
        self._interrupted = False
        self.task: Any = None

    def seat(self, members: Sequence[str]) -> None:
        """The members of the team that the people are in, in the order of their identities."""
        self._identity = {name: place for place, name in enumerate(members)}

    @property
    def is_open(self) -> bool:
        return self._channel is not None and not self._interrupted

    # Opening and closing

    def open(self, folder: Path | None, task: Any) -> None:
        """Starts the server, or finds the one that a killed training has left, and makes the links."""
        check_packages()
        self.folder = Path(tempfile.mkdtemp(prefix="apil-people-")) if folder is None else folder.resolve()
        self.task, self._said = task, Said(task.horizon)
        self._interrupted = False
        self._ended.clear()
        settings = self.settings
        port = settings.port or _port_of(self.folder)
        self._channel = Channel(self.folder, settings.host, port, settings.address)
        about = {"task": task.name, "horizon": task.horizon, "teachers": len(self.names)}
        found = self._channel.call("hello", {"settings": asdict(settings), "about": about})
        self.epoch, self.first_walk, self.reviews = found["epoch"], found["first_walk"], found["reviews"]
        self._make_links()
        threading.Thread(target=self._listen, args=(found["seq"],), name="desk", daemon=True).start()
        self.announce(self)

    def _make_links(self) -> None:
        path = self.folder / LINKS
        known: dict[str, Any] = read_json(path) if path.exists() else {"owner": "", "teachers": {}}
        lost = [name for name in self.names if name not in known["teachers"]] + ([] if known["owner"] else [""])
        tokens = self._call("links", {"teachers": list(self.names), "renew": lost})["tokens"]
        address = self._the_channel.address
        old = {name: _moved(link, address) for name, link in known["teachers"].items()}
        new = {name: f"{address}/t/{token}" for name, token in tokens.items() if name}
        owner = f"{address}/o/{tokens['']}" if "" in tokens else _moved(known["owner"], address)
        self.links = {"owner": owner, "teachers": {name: (old | new)[name] for name in self.names}}
        write_private(path, self.links)

    def close(self) -> None:
        """Ends the server; what was asked and not answered is asked again when training is resumed."""
        if self._channel is None:
            return
        with self._lock:
            self._interrupted = True
            tickets = list(self._tickets.values())
        self._give_up(tickets)
        self._ended.set()
        self._call("end", {})
        self._channel.wait()
        self._channel = None

    def interrupt(self) -> None:
        """Withdraws what is open: nobody waits any longer. An answer that is kept already still comes."""
        with self._lock:
            self._interrupted = True
            tickets = list(self._tickets.values())
        if tickets:
            # In a thread: a signal may have come in the middle of a call to the server.
            threading.Thread(target=self._give_up, args=(tickets,), name="withdraw", daemon=True).start()

    def _give_up(self, tickets: Sequence[Ticket]) -> None:
        withdrawn = self._call("withdraw", {"questions": [ticket.id for ticket in tickets]})["withdrawn"]
        for ticket in tickets:
            if ticket.id in withdrawn:
                self._settle(ticket.id, None)

    @property
    def _the_channel(self) -> Channel:
        assert self._channel is not None, "the desk is open"
        return self._channel

    def _call(self, name: str, sent: dict[str, Any]) -> dict[str, Any]:
        return self._the_channel.call(name, sent)

    # Asking

    def ask(self, questions: Sequence[dict[str, Any]]) -> list[Ticket]:
        """Puts questions; each comes back by its ticket."""
        sent, tickets = [], []
        for question in questions:
            ticket = Ticket(secrets.token_hex(12))
            copies = self._grant(min(self.settings.overlap, len(self.names)) - 1)
            sent.append({**question, "id": ticket.id, "epoch": self.epoch, "version": self.version, "copies": copies})
            tickets.append(ticket)
        taken = self._call("ask", {"questions": sent})["taken"]
        with self._lock:
            for ticket, found in zip(tickets, taken, strict=True):
                ticket.id = found["id"]
                outcome = found["outcome"] or self._early.pop(ticket.id, None)
                if outcome is not None:
                    _resolve(ticket, outcome)
                else:
                    self._tickets[ticket.id] = ticket
        if self._interrupted:
            self._give_up([ticket for ticket in tickets if not ticket.done.is_set()])
        return tickets

    def wait(self, ticket: Ticket) -> Mapping[str, Any] | None:
        """The answer to a question; None where it stays without one."""
        if not ticket.done.wait(self.settings.patience):
            self._give_up([ticket])
            ticket.done.wait()
        return ticket.outcome

    def _settle(self, question: str, outcome: Mapping[str, Any] | None) -> None:
        with self._lock:
            ticket = self._tickets.pop(question, None)
            if ticket is not None:
                _resolve(ticket, outcome)
            elif outcome is not None:
                self._early[question] = outcome

    def _listen(self, after: int) -> None:
        """Hears of outcomes until the desk is closed."""
        while not self._ended.is_set():
            try:
                found = self._call("poll", {"after": after})
            except (ApilError, AssertionError) as error:
                if not self._ended.is_set():
                    print(f"apil: {error}", file=sys.stderr)
                return
            for outcome in found["outcomes"]:
                after = outcome["seq"]
                self._hear(outcome)
            if found["stop"] and not self._interrupted:
                os.kill(os.getpid(), signal.SIGINT)
                self._ended.wait(1.0)

    def _hear(self, outcome: Mapping[str, Any]) -> None:
        if outcome["kind"] == "live" and outcome["flag"] != "correction":
            self._settle(outcome["question"], outcome)
            return
        kept = None if outcome["teacher"] is None else self.kept(outcome)
        with self._lock:
            if self._take is None:
                self._waiting.append(kept)
                return
        self._take(kept)

    # What the trainer learns from

    def kept(self, row: Mapping[str, Any]) -> Kept:
        """An answer as the trainer has it."""
        kind: Any = "correction" if row.get("flag") == "correction" else row["kind"]
        return Kept(
            row["question"],
            kind,
            *(row["walk"], row["episode"], row["step"], row["version"]),
            torch.from_numpy(np.frombuffer(_inflated(row["features"]), np.float32).copy()),
            torch.from_numpy(np.frombuffer(_inflated(row["valid"]), np.bool_).copy()),
            self._identity[row["teacher"]],
            self.action(row),
            self.distance(row, math.nan if row["distance_known"] is None else row["distance_known"]),
        )

    def identity(self, outcome: Mapping[str, Any]) -> int:
        return self._identity[outcome["teacher"]]

    def action(self, outcome: Mapping[str, Any]) -> Tensor:
        """[] long or [n] float, within the bounds of the task."""
        action = torch.tensor(json.loads(outcome["action"]))
        box = self.task.box
        return action if box is None else action.float().clamp(box.low, box.high)

    def distance(self, outcome: Mapping[str, Any], known: float) -> float:
        """d(s) of an answer; `known` is what the task says."""
        if outcome["distance"] is not None:
            return float(outcome["distance"])
        if outcome["said"] is not None or self.settings.distances == "said":
            place = (outcome["walk"], outcome["episode"], outcome["step"])
            return self._said.at(*place, outcome["said"])
        return known if self.settings.distances == "task" else math.nan

    def counted(self) -> list[Kept]:
        return [self.kept(row) for row in self._call("counted", {})["answers"]]

    def listen(self, take: Callable[[Kept | None], None], grant: Callable[[int], int] | None = None) -> None:
        with self._lock:
            self._take, waiting, self._waiting = take, self._waiting, []
            self._grant = grant or self._grant
        for kept in waiting:
            take(kept)

    def final(self, iteration: int, distance: Tensor) -> Tensor:
        if self.settings.distances != "said" or self.task is None:
            return distance
        last_words = [self._said.last(iteration, episode) for episode in range(distance.shape[1])]
        last = torch.tensor(last_words).nan_to_num(float(self.task.horizon)).expand_as(distance)
        return torch.where(distance <= self.task.success_distance, distance, last)

    def report(self, status: Mapping[str, Any], point: Mapping[str, Any] | None = None) -> None:
        """How far training is, for the owner's page."""
        self._call("status", {"status": dict(status), "point": point})


def packed(values: Tensor) -> str:
    """A tensor for a question: its bytes, compressed, as text."""
    return base64.b64encode(zlib.compress(values.contiguous().numpy().tobytes(), 1)).decode()


def _inflated(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def _resolve(ticket: Ticket, outcome: Mapping[str, Any] | None) -> None:
    ticket.outcome = None if outcome is None or outcome["teacher"] is None else outcome
    ticket.done.set()


def _port_of(folder: Path) -> int:
    """The port of the links that were sent before; 0 if there are none."""
    path = folder / LINKS
    return (urlsplit(read_json(path)["owner"]).port or 0) if path.exists() else 0


def _moved(link: str, address: str) -> str:
    """The same link where the server is now."""
    return f"{address}{urlsplit(link).path}"


def _print_links(desk: Desk) -> None:
    width = max(map(len, desk.names))
    print("Send each teacher their own link; nobody else should have it.")
    for name, link in desk.links["teachers"].items():
        print(f"  {name:<{width}}  {link}")
    print(f"How it goes, for you alone:\n  {desk.links['owner']}", flush=True)
