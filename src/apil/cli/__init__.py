"""The command line. Parsing imports nothing heavy; each command imports what it needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from functools import reduce
from io import StringIO
from operator import or_
from typing import Annotated, Any

import tyro

from apil.cli import calibrate, evaluate, other, study, train
from apil.cli.options import refuse_unknown
from apil.errors import ApilError
from apil.tasks import TASKS

_WORDS = "Train an agent from several teachers who disagree, and ask them only when asking helps."
_DERIVED: dict[str, Any] = {"train": train, "evaluate": evaluate, "study": study, "calibrate": calibrate}
"""Commands whose options depend on what else is typed."""
_FIXED: dict[str, tuple[type, Callable[[Any], None]]] = {
    "replay": (other.Replay, other.replay),
    "export": (other.Export, other.export),
    "doctor": (other.Doctor, other.doctor),
    "list": (other.List, other.show_list),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of `apil`."""
    words = list(sys.argv[1:] if argv is None else argv)
    command: Any = None
    try:
        command = _parsed(words)
        if words[0] in _DERIVED:
            _DERIVED[words[0]].run(command, words)
        elif words[0] == "data":
            command.run()
        else:
            _FIXED[words[0]][1](command)
    except ApilError as error:
        print(f"apil: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        # Whoever read the output has seen enough; Python would complain again when it closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, MemoryError) as error:
        print(f"apil: {str(error) or 'out of memory'}. Check space, memory and permissions.", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        same = "what is finished is kept, and the same command goes on from there."
        resumed = words[:1] == ["train"] and command is not None
        on = f"resume with: apil train --resume {command.resume or command.out}" if resumed else same
        print(f"apil: stopped at once; {on}", file=sys.stderr)
        sys.exit(130)


def _parsed(words: Sequence[str]) -> Any:
    """The command that was typed."""
    from apil import __version__

    first = words[0] if words else ""
    if first == "--version":
        print(f"apil {__version__}")
        sys.exit(0)
    kinds = {name: module.options(words[1:] if name == first else ()) for name, module in _DERIVED.items()}
    kinds |= {name: kind for name, (kind, _) in _FIXED.items()}
    if first in kinds:
        refuse_unknown(kinds[first], first, words[1:])
    data = {name: kind for entry in TASKS for name, kind in (TASKS.facet(entry.name, "commands") or {}).items()}
    if data:
        about = tyro.conf.subcommand("data", description="Prepare the data of a task.")
        kinds["data"] = Annotated[_either(data), about]
    complaint = StringIO()
    try:
        with redirect_stderr(complaint):
            return tyro.cli(_either(kinds), prog="apil", description=_WORDS, args=list(words))
    except SystemExit as stop:
        if stop.code == 2:
            raise ApilError(_one_line(complaint.getvalue(), first if first in kinds else "")) from None
        raise


def _one_line(box: str, command: str) -> str:
    """What tyro says is wrong, without the box around it and its title."""
    lines = [line.strip(_FRAME) for line in box.splitlines() if not line.startswith("\u256d")]
    rules = [place for place, line in enumerate(lines) if not line.strip("-")]
    start = 0 if box.startswith("\u256d") else rules[0] + 1
    end = next((place for place in rules if place > start), len(lines))
    return f"{' '.join(' '.join(lines[start:end]).split())} See: {' '.join(('apil', command)).strip()} --help"


_FRAME = " \u2500\u2502\u256d\u256e\u2570\u256f"


def _either(kinds: Mapping[str, Any]) -> Any:
    """One of several subcommands, by name."""
    named = [kind if name == "data" else Annotated[kind, tyro.conf.subcommand(name)] for name, kind in kinds.items()]
    return reduce(or_, named)
