"""Names for parts: what `apil list`, `apil train` and `apil study` know.

An entry names its target as "module:attribute", so that listing imports nothing heavy.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from apil.errors import ApilError, unknown_name


@dataclass(frozen=True)
class Entry:
    """A registered part."""

    name: str
    summary: str
    """One line for `apil list`."""
    target: str
    """"module:attribute" of the factory."""


class Registry:
    """Parts of one kind by name, in the order of registration."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Entry] = {}

    def register(self, name: str, target: str, summary: str) -> None:
        """Adds a part; a name can be taken once."""
        if name in self._entries:
            raise ApilError(f"The {self.kind} '{name}' is registered already: choose another name.")
        self._entries[name] = Entry(name, summary, target)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def names(self) -> tuple[str, ...]:
        """All names, in the order of registration."""
        return tuple(self._entries)

    def check(self, name: str) -> str:
        """The name itself if it is known; otherwise an error with the nearest match and the known ones."""
        if name not in self._entries:
            raise unknown_name(self.kind, name, self._entries)
        return name

    def load(self, name: str) -> Any:
        """The factory behind a name."""
        module, attribute = self._entries[self.check(name)].target.split(":")
        return getattr(importlib.import_module(module), attribute)
