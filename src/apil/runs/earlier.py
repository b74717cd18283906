"""Answers of an earlier run, to start a new one with: paid answers outlive an architecture."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from apil.errors import ApilError
from apil.files import beside, read_json, write_json
from apil.learning.build import Parts, whole_episodes
from apil.learning.rows import ANSWERED, VALIDATION, RowFormat, Rows
from apil.learning.store import Shelf
from apil.runs.checkpoint import load_checkpoint
from apil.runs.folder import load_config
from apil.runs.journal import Prefix
from apil.runs.store_file import NAME as STORE
from apil.runs.store_file import Header, StoreFile, check_prefix, read_store
from apil.settings import RunSettings

NOTE = "earlier.json"
SCHEMA = 1
_BATCH = 2**16
"""Rows that are copied at a time."""


def header_of(config: RunSettings, parts: Parts, before: int = 0) -> Header:
    """What the store of a run says of itself."""
    task = parts.task_of(config)
    return Header(task.name, RowFormat.of(task), parts.members(config), whole_episodes(config), before)


@dataclass(frozen=True)
class Earlier:
    """The answers of an earlier run, in the form of a new one."""

    source: Path
    header: Header
    """Of the new store."""
    rows: Rows
    """As they are in the earlier store."""
    identities: tuple[int, ...]
    """What each identity of the earlier run is in the new one."""

    @staticmethod
    def of(source: Path, config: RunSettings, parts: Parts) -> Earlier:
        """The answers in a run folder for a new run; an error if they do not fit it."""
        if not config.learner.replay:
            raise ApilError("answers-from needs a store to put them into: give replay, for example 128.")
        before = load_config(source)
        if not before.learner.replay:
            raise ApilError(
                f"{source} keeps no store of answers: it was trained with --as-printed or replay 0; give another run."
            )
        found = load_checkpoint(source, before)
        if found is not None:
            check_prefix(source / STORE, found.files[STORE])
        old, rows = read_store(source)
        new = header_of(config, parts, len(rows))
        identities = _checked(source, old, new)
        _warn_of_options(source, before, config)
        if not len(rows):
            raise ApilError(f"{source} holds no answers yet: give another run.")
        return Earlier(source, new, rows, identities)

    @property
    def answers(self) -> int:
        """How many answers there are; the rows of whole episodes are more."""
        return int(np.count_nonzero(self.rows["flags"] & ANSWERED))

    def batches(self) -> Iterator[Rows]:
        """The rows for the new run, some at a time; an episode is never cut. Nothing is held out yet."""
        start = 0
        while start < len(self.rows):
            end = min(start + _BATCH, len(self.rows))
            while end < len(self.rows) and _same_episode(self.rows[end - 1], self.rows[end]):
                end += 1
            batch = np.array(self.rows[start:end])
            batch["identity"] = np.array(self.identities, np.uint32)[batch["identity"]]
            batch["flags"] &= 255 ^ VALIDATION
            self.header.layout.seal(batch)
            yield batch
            start = end

    def write(self, folder: Path, config: RunSettings) -> None:
        """Writes them as the store of a new run, and a note of where they come from."""
        layout = self.header.layout
        with beside(folder / STORE) as new:
            file = StoreFile(new, self.header, None)
            try:
                file.open()
                shelf = Shelf(layout, config.seed, config.learner.validation, whole=self.header.whole, room=file)
                for batch in self.batches():
                    shelf.add(batch)
                prefix = file.sync(shelf.rows)
            finally:
                file.close()
        note = {
            "schema": SCHEMA,
            "run": str(self.source),
            "rows": len(self.rows),
            "answers": self.answers,
            "bytes": prefix.bytes,
            "sha256": prefix.sha256,
        }
        write_json(folder / NOTE, note)


def _same_episode(row: np.void, following: np.void) -> bool:
    same = all(row[name] == following[name] for name in ("iteration", "episode"))
    return bool(same and row["step"] < following["step"])


def _checked(source: Path, old: Header, new: Header) -> tuple[int, ...]:
    """The new identities of the earlier teachers; an error where the answers are of no use to the new run."""
    for what, own, other in (
        ("of the task", old.task, new.task),
        ("with rows of", old.layout.to_json(), new.layout.to_json()),
        ("for a model that remembers", old.whole, new.whole),
    ):
        if own != other:
            raise ApilError(f"The answers in {source} are {what}: {own}; the run needs {other}. Give another run.")
    if old.teachers == new.teachers[: len(old.teachers)]:
        return tuple(range(len(old.teachers)))
    missing = [name for name in old.teachers if new.teachers.count(name) != 1 or old.teachers.count(name) != 1]
    if missing:
        raise ApilError(
            f"The answers in {source} are by {', '.join(old.teachers)}, and the run has {', '.join(new.teachers)}: "
            f"add {', '.join(dict.fromkeys(missing))} to --teacher, or give another run."
        )
    return tuple(new.teachers.index(name) for name in old.teachers)


def _warn_of_options(source: Path, before: RunSettings, now: RunSettings) -> None:
    """Tells of options of the task that differ: some make another network, others another task."""
    old, new = before.task.options, now.task.options
    differ = [f"{name} {old.get(name)!r}" for name in {**old, **new} if old.get(name) != new.get(name)]
    if differ:
        print(
            f"apil: warning: the answers in {source} were given with other options of the task ({', '.join(differ)}).",
            file=sys.stderr,
        )


def noted_prefix(folder: Path) -> Prefix | None:
    """What the store of a run was given to start with; None if nothing."""
    path = folder / NOTE
    if not path.exists():
        return None
    note = read_json(path)
    said = note if isinstance(note, dict) else {}
    prefix = Prefix.from_json({name: said.get(name) for name in ("bytes", "sha256")})
    if prefix is None or said.get("schema") != SCHEMA:
        raise ApilError(f"{path} does not say which answers the run began with: restore it or train again.")
    return prefix
