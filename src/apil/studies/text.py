"""The texts of reports, and text that others wrote, such as labels in a study's file, made safe for them."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from typing import Any

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Control characters, line breaks, marks that turn the direction of writing, and halves of characters."""
_LIVE = re.compile(r"(?<=:)//|(?<=www)\.|@(?=[^\s@]*\.[a-z])|\](?=\()|[<`]", re.IGNORECASE)
"""Where Markdown starts a link, HTML or code."""


def printable(text: str) -> str:
    """The text with a replacement character for whatever must not reach a file."""
    return text if text.isprintable() else _UNPRINTABLE.sub("\ufffd", text)


def inert(text: str) -> str:
    """The text for Markdown: nothing in it becomes a link."""
    return _LIVE.sub(r"\\\g<0>", printable(text))


_NAMES = {
    name.lower(): name
    for name in (
        *("BC", "DAgger", "IntrUn", "ExtrUn", "BehvUn", "ModlUn", "ErrPred", "APIL", "SLIP"),
        *("SafeDAgger", "LazyDAgger", "EnsembleDAgger", "ThriftyDAgger", "RND"),
        *("Detm", "Rand", "TwoRand", "TwoDifDetm"),
    )
}
_NAMED = re.compile(rf"({'|'.join(_NAMES)})(?!\w)")


def spelled(name: str) -> str:
    """A query policy or a teacher as papers spell it; `intrun@0.2` is `IntrUn@0.2`, another name stays as it is."""
    return _NAMED.sub(lambda found: _NAMES[found[1]], name, count=1) if _NAMED.match(name) else name


def texts(file: str, package: str = "apil.studies") -> dict[str, Any]:
    """The tables of a TOML file that comes with a package."""
    return tomllib.loads(files(package).joinpath(file).read_text(encoding="utf-8"))
