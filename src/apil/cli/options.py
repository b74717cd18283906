"""What can be typed, derived from the records of settings. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import MISSING, field, make_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import tyro

from apil.errors import ApilError
from apil.settings.record import Option, default_of, described, shown, spelled
from apil.settings.run import LEARNING, LEAVES
from apil.tasks import TASKS
from apil.tasks.options import options_of

Typed = tuple[str, Any, Any]
"""Name, type with its help, default: what `make_dataclass` takes."""


def from_record(record: Any) -> list[Typed]:
    fields = described(record).items()
    return [_option(name, info.annotation, default_of(info), info.description or "") for name, info in fields]


def run_settings(skip: Iterable[str]) -> list[Typed]:
    """The settings of a run as options; those of the query policy and the selector are typed as name=value."""
    leaves = {name: leaf for name, leaf in LEAVES.items() if name not in ("options", *skip)}
    made = {
        name: _option(name, leaf.annotation, LEARNING.get(name, leaf.default), leaf.help)
        for name, leaf in leaves.items()
    }
    for name, words in _PAIRS.items():
        if name in made:
            made[name] = _option(name, tuple[str, ...], (), words)
    return list(made.values())


_PAIRS = {
    "query_options": "Settings of the query policy as name=value, for example k=5 for `every`.",
    "select_options": "Settings of the selector as name=value, for example power=1 for `learned`.",
}
"""What is typed as name=value."""


def _option(name: str, annotation: Any, default: Any, words: str) -> Typed:
    return name, Annotated[annotation, tyro.conf.arg(help=" ".join(words.split()))], field(default=default)


def command(name: str, words: str, own: type, options: Iterable[Typed]) -> type:
    """The dataclass of a command: the fields of `own`, and options whose names it does not have."""
    taken = set(own.__dataclass_fields__)  # type: ignore[attr-defined]
    more = {option[0]: option for option in options if option[0] not in taken}
    required = sorted(more.values(), key=lambda option: option[2].default is not MISSING)
    made = make_dataclass(name, required, bases=(own,), frozen=True)
    made.__doc__ = words
    return made


def refuse_unknown(command: type, name: str, argv: Sequence[str]) -> None:
    """Refuses an option that the command does not have, here; another task may have it."""
    known = [*command.__dataclass_fields__, "help"]  # type: ignore[attr-defined]
    for word in argv:
        option = word.partition("=")[0]
        plain = option[2:].replace("-", "_")
        if not option.startswith("--") or plain in known or plain.removeprefix("no_") in known:
            continue
        for entry in TASKS:
            if plain in described(options_of(entry.name).arguments):
                raise ApilError(f"{option} is an option of the task {entry.name}, not of this one: leave it out.")
        near = get_close_matches(option, [f"--{spelled(own)}" for own in known], n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ApilError(f"apil {name} has no option {option[:60]}.{hint} See: apil {name} --help")


def refuse_odd_paths(command: Any) -> None:
    """Refuses a path that no file system has, or that cannot be printed."""
    for name, value in vars(command).items():
        if not isinstance(value, Path):
            continue
        if not str(value).isprintable() or len(str(value)) > 1000 or any(len(part) > 255 for part in value.parts):
            words = "give a path of at most 1,000 printable characters, and 255 for each name in it"
            raise ApilError(f"{spelled(name)} is {shown(str(value))}: {words}.")


def given(command: Any, argv: Sequence[str], skip: Iterable[str] = ()) -> dict[str, Any]:
    """The values that were typed, by name, except those of `skip`."""
    typed = {word[2:].partition("=")[0].replace("-", "_") for word in argv if word.startswith("--")}
    typed |= {name.removeprefix("no_") for name in typed}
    names = [name for name in type(command).__dataclass_fields__ if name in typed and name not in skip]
    values = {name: getattr(command, name) for name in names}
    return {name: pairs(value) if name in _PAIRS else value for name, value in values.items()}


def value_of(argv: Sequence[str], option: str, default: str) -> str:
    """The value of an option before anything is parsed: what else can be typed depends on it."""
    for place, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else (argv[place + 1] if place + 1 < len(argv) else default)
    return default


def pairs(words: Sequence[str]) -> dict[str, Option]:
    """Settings typed as name=value: true and false, numbers, and words."""
    options: dict[str, Option] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (name and equals and text):
            raise ApilError(f"'{word}' is not an option: write name=value, for example k=5.")
        options[name] = text == "true" if text in ("true", "false") else text
        for kind in (float, int):
            with suppress(ValueError):
                options[name] = kind(text)
    return options


def words_of(command: Any, argv: Sequence[str], *start: str, skip: Iterable[str] = ()) -> list[str]:
    """What to type for the same again: `start` and the options that were typed."""
    words = [*start]
    for name, value in given(command, argv, skip).items():
        if value is True or value is False:
            words.append(f"--{spelled(name)}" if value else f"--no-{spelled(name)}")
            continue
        if isinstance(value, dict):
            value = tuple(f"{own}={option}" for own, option in value.items())
        words += [f"--{spelled(name)}", *map(str, value if isinstance(value, tuple) else (value,))]
    return words
