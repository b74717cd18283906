"""The engine `ray`: stacks as tasks of a Ray cluster. Imported only where it is asked for.

A task is given the files of its runs, trains them in a folder of its own, and sends every checkpoint as it is made: to
the folder of the study, through a mailbox beside the process that started it, or to shared storage. A task whose worker
or node is lost starts again from what was sent. What Ray pickles is functions of apil and records of settings.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from apil.errors import ApilError, in_one_line, plural
from apil.registry import PLUGINS
from apil.runs.environment import changed_software, environment
from apil.runs.writer import Due
from apil.settings import RunSettings
from apil.studies.engines import Engine, Open, Tell, Work, attempt
from apil.studies.events import Change, Event, Mailbox, Post
from apil.studies.mirror import Mirror, Storage, apply, read_files
from apil.studies.plan import Cell

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when Ray is imported: no telemetry
# Where this process starts Ray: by default Ray's workers have niceness 15, and beside other work they hardly run.
os.environ.setdefault("RAY_worker_niceness", "0")

try:
    import ray
    from ray.exceptions import OutOfMemoryError, RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as missing:
    raise ApilError("The engine 'ray' needs Ray: pip install 'apil[ray]', or use --engine local.") from missing

_MB = 1024 * 1024
_PROCESS, _RUN = 500 * _MB, 4 * _MB
"""Memory of a worker and of each run of a stack, before one of the task was measured (docs/guide/cluster.md)."""
_MARGIN = 1.2
"""What is asked for, by what was measured."""
_LOSSES = 3
"""So often in a row may a stack lose its worker without a checkpoint in between."""
_KNOCK = 10.0
"""Seconds for a cluster to take a connection."""
_PAUSE = 0.5
"""Seconds between two reports of a worker, at least."""


@dataclass(frozen=True)
class Order:
    """A stack as it is sent to a worker."""

    job: int
    attempt: int
    cells: Sequence[dict[str, Any]]
    episodes: int
    due: Due
    alone: bool
    software: dict[str, Any] | None
    """The driver's `environment`; None to run with any other."""
    plugins: str
    """The driver's APIL_PLUGINS."""
    files: Sequence[Change]
    """Of the runs, where they are not in shared storage."""
    storage: str | None


Run = Callable[[Order, Any], tuple[Event, int]]
"""Runs a stack for a mailbox; returns how it ended, and the most memory it took, in bytes."""


# The worker's side.


def run_order(order: Order, mailbox: Any) -> tuple[Event, int]:
    """Runs a stack on a worker; returns how it ended, and the most memory it took, in bytes."""
    os.environ[PLUGINS] = order.plugins
    _forget_peak()
    other = changed_software(order.software, environment()) if order.software is not None else ""
    if other:
        why = f"{ray.util.get_node_ip_address()} has other software than where the study was started ({other})"
        return Event(order.job, "failed", why=f"{why}: install the same, or mix them with --keep-old."), 0
    cells = [_cell(values) for values in order.cells]
    with TemporaryDirectory(prefix="apil-") as scratch:
        link = _Link(order, mailbox, Path(scratch), [cell.folder for cell in cells])
        work = Work(Path(scratch), order.episodes, link.due, order.alone)
        ended = attempt(work, order.job, cells, link.tell, link.stop)
        link.send()
    return ended, _peak()


class _Link:
    """Sends what a stack makes: files after every save, progress twice a second."""

    def __init__(self, order: Order, mailbox: Any, root: Path, folders: Sequence[str]) -> None:
        self._order, self._mailbox, self._root = order, mailbox, root
        self._storage = Storage(order.storage) if order.storage is not None else None
        files = order.files if self._storage is None else self._storage.read(folders)
        self._mirror = Mirror(root, folders, files)
        self._saved = self._stop = False
        self._units, self._reported = 0, 0.0
        self._reply: Any = None

    def due(self, iterations: int, since: float, took: float) -> bool:
        """Asked after every iteration. What was due then is saved by now, and is sent."""
        if self._saved:
            self.send()
        self._saved = self._order.due(iterations, since, took)
        self._report()
        return self._saved

    def tell(self, event: Event) -> None:
        if event.kind == "did":
            self._units += event.units
        else:
            self._post(event)

    def stop(self) -> bool:
        return self._stop

    def send(self) -> None:
        """Sends the files that have changed; returns when they are there."""
        self._saved = False
        changes = self._mirror.changes()
        if self._storage is not None:
            self._storage.write(self._root, changes)
            changes = []
        self._report(changes)
        self._hear()

    def _report(self, changes: Sequence[Change] = ()) -> None:
        now = time.monotonic()
        if not changes and now < self._reported + _PAUSE:
            return
        units, self._units, self._reported = self._units, 0, now
        self._post(Event(self._order.job, "did", units), changes)

    def _post(self, event: Event, changes: Sequence[Change] = ()) -> None:
        self._hear()
        self._reply = self._mailbox.post.remote(Post(self._order.job, self._order.attempt, event, changes))

    def _hear(self) -> None:
        """Waits until the last post has arrived."""
        if self._reply is not None:
            self._stop = ray.get(self._reply) or self._stop
            self._reply = None


def _forget_peak() -> None:
    """A worker runs many stacks: the peak of the next is its own. Only Linux can."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _peak() -> int:
    """The most memory this process has had, in bytes; 0 where that is not known."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def _values(cell: Cell) -> dict[str, Any]:
    return {"config": cell.config.to_json(), "samples": cell.samples, "label": cell.label, "point": cell.point}


def _cell(values: dict[str, Any]) -> Cell:
    return Cell(**{**values, "config": RunSettings.from_json(values["config"])})


# The driver's side.


@dataclass
class _Task:
    """A stack that Ray has."""

    order: Order
    cells: Sequence[Cell]
    memory: int
    losses: int = 0
    """In a row, without a checkpoint in between."""

    @property
    def folders(self) -> list[str]:
        return [cell.folder for cell in self.cells]


@dataclass
class RayEngine:
    """Runs stacks as Ray tasks of one core each."""

    work: Work
    slots: int
    stopped: Sequence[int]
    storage: Storage | None
    software: dict[str, Any] | None
    mailbox: Any
    remote: Any
    """What a worker does with an order, as a remote function of Ray."""
    tasks: dict[Any, _Task] = field(default_factory=dict)
    """By the reference of what they will return."""
    peaks: dict[str, int] = field(default_factory=dict)
    """The most memory that a stack of a task has taken, in bytes."""
    stopping: bool = False

    def submit(self, job: int, cells: Sequence[Cell]) -> None:
        work = self.work
        given = (work.episodes, work.due, work.alone, self.software, os.environ.get(PLUGINS, ""))
        storage = None if self.storage is None else self.storage.path
        order = Order(job, 0, [_values(cell) for cell in cells], *given, (), storage)
        guess = _PROCESS + _RUN * len(cells)
        memory = int(_MARGIN * self.peaks.get(cells[0].config.task.name, guess))
        self._start(_Task(order, cells, memory))

    def _start(self, task: _Task) -> None:
        files = read_files(self.work.runs, task.folders) if self.storage is None else ()
        order = replace(task.order, files=files)
        self.tasks[self.remote.options(num_cpus=1, memory=task.memory).remote(order, self.mailbox)] = task

    def wait(self, tell: Tell) -> None:
        if self.stopped and not self.stopping:
            self.stopping = True
            self.mailbox.stop.remote()
        try:
            ended, _ = ray.wait(list(self.tasks), timeout=_PAUSE)
            # A task posts before it ends, so all of its posts are taken here.
            posts = ray.get(self.mailbox.take.remote())
        except RayError as error:
            raise ApilError(
                f"Ray is gone ({in_one_line(error)}): once it is back, the same command resumes."
            ) from error
        for post in posts:
            self._hear(post, tell)
        for reference in ended:
            self._end(self.tasks.pop(reference), reference, tell)

    def _hear(self, post: Post, tell: Tell) -> None:
        for task in self.tasks.values():
            if (task.order.job, task.order.attempt) == (post.job, post.attempt):
                apply(self.work.runs, post.changes)
                task.losses = 0 if post.changes else task.losses
                if post.event is not None:
                    tell(post.event)

    def _end(self, task: _Task, reference: Any, tell: Tell) -> None:
        job = task.order.job
        try:
            event, peak = ray.get(reference)
        except RayTaskError as error:  # our own code, outside of what `attempt` guards
            tell(Event(job, "failed", why=in_one_line(error.cause or error), log=str(error)))
            return
        except RayError as error:
            self._lose(task, error, tell)
            return
        name = task.cells[0].config.task.name
        self.peaks[name] = max(self.peaks.get(name, 0), peak)
        if self.storage is not None and event.kind == "ended":
            apply(self.work.runs, self.storage.read(task.folders))
            self.storage.drop(task.folders)
        tell(event)

    def _lose(self, task: _Task, error: RayError, tell: Tell) -> None:
        """Starts a stack again whose worker or node is gone."""
        why = in_one_line(error)
        if self.stopping:
            tell(Event(task.order.job, "stopped"))
        elif task.losses + 1 >= _LOSSES:
            tell(Event(task.order.job, "failed", why=f"Its worker was lost {_LOSSES} times ({why}).", log=str(error)))
        else:
            tell(Event(task.order.job, "lost", why=why))
            memory = task.memory * (2 if isinstance(error, OutOfMemoryError) else 1)
            again = replace(task.order, attempt=task.order.attempt + 1)
            self._start(_Task(again, task.cells, memory, task.losses + 1))


@dataclass(frozen=True)
class Connection:
    """To a Ray cluster."""

    cores: int
    about: str
    """In one line, for the terminal."""


@contextmanager
def connected(address: str | None, workers: int | None) -> Iterator[Connection]:
    """Connects to a cluster; without an address, and without RAY_ADDRESS, it starts Ray on this machine alone."""
    if ray.is_initialized():
        yield _connection("")
        return
    address = address or os.environ.get("RAY_ADDRESS")
    try:
        _knock(address or "")
        if address is None:
            own: dict[str, Any] = {"address": "local", "num_cpus": workers, "_node_ip_address": "127.0.0.1"}
        else:
            own = {"address": address}
        context = ray.init(**own, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # where a node does not start in time, Ray raises no class of its own
        remedy = "see `ray status`, give --ray-address auto or HOST:PORT, or leave it out to start Ray here"
        raise ApilError(
            f"Cannot connect to Ray at {address or 'this machine'} ({in_one_line(error)}): {remedy}."
        ) from error
    try:
        yield _connection(getattr(context, "dashboard_url", None) or "")
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raises an error where nothing listens at HOST:PORT: Ray would wait for it without end."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "://" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK).close()


def _connection(dashboard: str) -> Connection:
    nodes = sum(node["Alive"] for node in ray.nodes())
    cores = int(ray.cluster_resources().get("CPU", 0))
    shown = f", dashboard http://{dashboard}" if dashboard else ""
    return Connection(max(1, cores), f"Ray {ray.__version__}: {plural(nodes, 'node')}, {plural(cores, 'core')}{shown}")


def on_ray(storage: str | None = None, any_software: bool = False, run: Run = run_order) -> Open:
    """Opens the engine in the cluster that this process is connected to; `run` is what workers do."""

    @contextmanager
    def opened(work: Work, workers: int, stopped: Sequence[int]) -> Iterator[Engine]:
        # The mailbox stays where this process is: it is lost with no other node. A soft wish may put it elsewhere.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        mailbox = ray.remote(num_cpus=0, scheduling_strategy=here)(Mailbox).remote()
        software = None if any_software else environment()
        place = Storage(storage) if storage else None
        remote = ray.remote(max_retries=0)(run)
        # No stack waits in Ray's own queue: for those that do it starts processes beyond the cores, and ends warm ones.
        engine = RayEngine(work, workers, stopped, place, software, mailbox, remote)
        try:
            yield engine
        finally:
            for task in engine.tasks:
                ray.cancel(task, force=True)
            ray.kill(mailbox)

    return opened
