"""Names for parts: what `apil list`, `apil train` and `apil study` know.

A part is registered as its factory, or as "module:attribute", so that listing imports nothing heavy. Parts of other
packages come in when a name is first looked for: by entry points of a kind's group, each a part; by those of the group
apil.plugins, each a module that registers parts when it is imported; and by the environment variable APIL_PLUGINS with
the names of such modules or paths of .py files, separated by commas. Worker processes inherit the variable.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from apil.errors import ApilError, in_one_line, unknown_name

PLUGINS = "APIL_PLUGINS"
Target = str | Callable[..., Any]


@dataclass(frozen=True)
class Entry:
    name: str
    summary: str
    """One line for `apil list`."""
    target: Target
    """The factory, or "module:attribute" of it."""
    own: bool = False
    """Registered from outside apil."""
    traits: Mapping[str, Any] = field(default_factory=dict)
    """What is known of the part without loading it; the factory's attributes of these names where it is not given."""


class Registry:
    """Parts of one kind by name, in the order of registration; those that come with apil first."""

    def __init__(self, kind: str, group: str | None = None) -> None:
        """`group` is that of the entry points of this kind; a part there is "module:attribute" of its factory."""
        self.kind, self._group = kind, group
        self._entries: dict[str, Entry] = {}

    def register(self, name: str, target: Target, summary: str, *, own: bool = False, **traits: Any) -> None:
        """Adds a part. Names are unique; the same factory, imported again, counts as the same part."""
        if not name or any(mark in name for mark in "+,= \t\n"):
            raise ApilError(f"The {self.kind} name '{name}' cannot be typed: use letters, digits, '-' and '_'.")
        if not callable(target) and not (isinstance(target, str) and target.count(":") == 1):
            part = f"The {self.kind} '{name}' is registered with {target!r:.60}"
            raise ApilError(f"{part}: give a factory, or 'module:attribute'.")
        if name in self._entries and _place(self._entries[name].target) != _place(target):
            raise ApilError(f"The {self.kind} '{name}' is registered already: choose another name.")
        self._entries[name] = Entry(name, summary, target, own, traits)

    def forget(self, name: str) -> None:
        if not self.entry(name).own:
            raise ApilError(f"The {self.kind} '{name}' comes with apil and stays.")
        del self._entries[name]

    def __iter__(self) -> Iterator[Entry]:
        self._load_plugins()
        return iter(tuple(self._entries.values()))

    def names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self)

    def entry(self, name: str) -> Entry:
        """Returns the entry of a name. An unknown name raises an error with the nearest match and the known names."""
        if name not in self._entries:
            self._load_plugins()
        if name not in self._entries:
            raise unknown_name(self.kind, name, self._entries)
        return self._entries[name]

    def check(self, name: str) -> str:
        """Returns the name if it is known; otherwise raises an error with the nearest match and the known names."""
        return self.entry(name).name

    def load(self, name: str) -> Any:
        return self._resolved(name, self.entry(name).target)

    def facet(self, name: str, facet: str) -> Any:
        """A part that comes with this one, registered as itself or as "module:attribute"; None where there is none."""
        return self._resolved(name, self.entry(name).traits.get(facet))

    def _resolved(self, name: str, target: Any) -> Any:
        if not isinstance(target, str):
            return target
        try:
            return resolve_name(target)
        except (ImportError, AttributeError, ValueError) as error:
            if not self.entry(name).own:
                raise
            why = in_one_line(error)
            raise ApilError(f"The {self.kind} '{name}' cannot be loaded from '{target}': {why}.") from error

    def trait(self, name: str, trait: str, default: Any) -> Any:
        """Returns a trait of a part: the registered one, else the attribute of its factory, else the default."""
        entry = self.entry(name)
        if trait in entry.traits:
            return entry.traits[trait]
        return getattr(self.load(name), trait, default) if entry.own else default

    def _load_plugins(self) -> None:
        if self._group is None:
            return
        points, self._group = entry_points(group=self._group), None  # first: a plugin may look names up itself
        for point in points:
            package = point.dist.name if point.dist is not None else "another package"
            self.register(point.name, point.value, f"of {package} ({point.value})", own=True)
        import_plugins()


_imported: set[str] = set()


def import_plugins() -> None:
    """Imports the modules that APIL_PLUGINS and the entry points of apil.plugins name, each once."""
    named = {part.strip(): PLUGINS for part in os.environ.get(PLUGINS, "").split(",") if part.strip()}
    for point in entry_points(group="apil.plugins"):
        named.setdefault(point.value, f"The entry point {point.name} of apil.plugins")
    for plugin, source in named.items():
        if plugin in _imported:
            continue
        _imported.add(plugin)
        try:
            _import(plugin)
        except ApilError:
            raise
        except Exception as error:
            raise ApilError(f"{source} names '{plugin}', which cannot be imported: {in_one_line(error)}.") from error


def _import(plugin: str) -> None:
    if not plugin.endswith(".py"):
        importlib.import_module(plugin)
        return
    path = Path(plugin).resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    if str(path.parent) not in sys.path:  # as for a script: a plug-in may import its neighbours
        sys.path.append(str(path.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)


def _place(target: Target) -> Any:
    """Where a factory is written, to know it again: a script is imported once more in every worker process."""
    if isinstance(target, str):
        return target
    module = sys.modules.get(getattr(target, "__module__", ""))
    code = getattr(target, "__code__", None) or getattr(target, "__qualname__", target)
    return getattr(module, "__file__", None), code
