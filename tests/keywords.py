"""Writes the keywords of `apil.train`: python tests/keywords.py > src/apil/settings/keywords.py

A type checker cannot read keywords off the records of settings, so they are written out; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

from apil.settings.run import LEAVES

_HEAD = '''"""The settings of a run as typed keywords of `apil.train`. Made by tests/keywords.py; do not edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from apil.settings.record import Option


class RunKeywords(TypedDict, total=False):
    """Every setting of a run but its task, teacher and query policy; see `apil train --help`."""

'''


def keywords() -> str:
    """The source of `keywords.py`."""
    lines = [f"    {name}: {_type(leaf.annotation)}" for name, leaf in LEAVES.items() if name not in _POSITIONAL]
    return _HEAD + "\n".join(lines) + "\n"


_POSITIONAL = ("task", "teacher", "query")


def _type(annotation: Any) -> str:
    """An annotation without what pydantic reads."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(parts[0])
    if origin is Literal:
        return f"Literal[{', '.join(f'{part!r}' for part in parts)}]".replace("'", '"')
    if origin is tuple:
        return f"tuple[{_type(parts[0])}, ...]"
    if origin is Mapping:
        return "Mapping[str, Option]"
    if parts:
        return " | ".join(_type(part) for part in parts)
    return "None" if annotation is type(None) else str(annotation.__name__)


if __name__ == "__main__":
    print(keywords(), end="")
