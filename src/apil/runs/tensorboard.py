"""The metrics of a run for TensorBoard: what metrics.jsonl has, in the run's folder tensorboard/."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from apil.errors import ApilError
from apil.files import make_folder, refuse_link, remove, writing
from apil.learning.metrics import PARTS
from apil.runs.view import Row, RowFile

FOLDER = "tensorboard"
_EVENTS = "events.out.tfevents.*"
_LOOK_SECONDS = 1.0


class EventWriter:
    """Writes rows of metrics as events. A resumed run writes all of them again: its old events are replaced."""

    def __init__(self, folder: Path) -> None:
        """`folder` of the run, which may not be there yet."""
        try:
            from tensorboard.summary.writer import event_file_writer  # noqa: F401
        except ImportError as error:
            raise ApilError(
                "TensorBoard needs the package tensorboard: pip install 'apil[tensorboard]', or leave the option out. "
                "The same figures are in metrics.jsonl."
            ) from error
        self._folder, self._rows = folder / FOLDER, RowFile(folder / "metrics.jsonl")
        self._written, self._looked = 0, 0.0
        self._writer: Any = None

    def __call__(self) -> None:
        """Writes the rows that are new, unless it did a moment ago; to be called after every iteration."""
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked = time.monotonic()
            self._write_new()

    def _write_new(self) -> None:
        if self._writer is None:
            self._open()
        rows = self._rows.read()
        for row in rows[self._written :]:
            self._writer.add_event(_event(row))
        self._written = len(rows)

    def _open(self) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        refuse_link(self._folder)
        make_folder(self._folder)
        for path in self._folder.glob(_EVENTS):
            remove(path)
        with writing(self._folder):
            self._writer = EventFileWriter(str(self._folder), flush_secs=2)

    def close(self) -> None:
        """Writes what is left, if the run was begun."""
        if self._writer is not None:
            self._write_new()
            self._writer.close()


@contextmanager
def events(folder: Path, *, wanted: bool) -> Iterator[Callable[[], None]]:
    """What writes for TensorBoard after an iteration: if it is `wanted`, or the run has such a folder already."""
    if not wanted and not (folder / FOLDER).is_dir():
        yield lambda: None
        return
    with closing(EventWriter(folder)) as writer:
        yield writer


def _event(row: Row) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    numbers = {name: value for name, value in row.items() if type(value) in (int, float) and name != "iteration"}
    values = [Summary.Value(tag=tag(name), simple_value=value) for name, value in numbers.items()]
    looks = row.get("looks") or []
    values += [Summary.Value(tag=tag("success_alone"), simple_value=look["success"]) for look in looks[-1:]]
    return Event(step=row["iteration"], wall_time=time.time(), summary=Summary(value=values))


def tag(name: str) -> str:
    """The name of a metric with the group that TensorBoard shows it in."""
    if name in PARTS:
        return f"uncertainty/{name}"
    if name.startswith("success"):
        return f"success/{name}"
    return f"loss/{name}" if name.endswith("_loss") else f"asking/{name}"
