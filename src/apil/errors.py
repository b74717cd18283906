"""Errors that say what was given, what is allowed and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ApilError(ValueError):
    """Bad input. The message is one line: the value, what was expected, the remedy.

    The command line prints it without a traceback and exits with code 2.
    """


class AccessError(ApilError):
    """The system refuses a file, or it is a link out of its folder. What is in it may be good, and must stay."""


class UnknownNameError(ApilError):
    """A name that nothing is registered under."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that is not registered: the nearest match, then every known name."""
    names = sorted(known)
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    known_ones = f"Known: {', '.join(names)}." if names else "There are none."
    return UnknownNameError(f"Unknown {kind} '{name[:60]}'.{hint} {known_ones}")


def in_one_line(error: BaseException) -> str:
    """The type of an error and the first line of its message."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"


def one_line(text: str) -> str:
    """A text for the terminal: line breaks and what cannot be printed are escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def plural(count: int, thing: str) -> str:
    """A number of things: "1 node", "2 nodes"."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"
