"""The command line. Parsing imports nothing heavy; each command imports what it needs."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from functools import reduce
from io import StringIO, TextIOWrapper
from operator import or_
from typing import Annotated, Any

import tyro

from apil.cli import answers, calibrate, evaluate, other, study, teach, train, tune, watch
from apil.cli.options import refuse_odd_paths, refuse_unknown
from apil.errors import ApilError, one_line
from apil.memory import lacks_memory
from apil.studies.workers import start_early
from apil.tasks import TASKS

_WORDS = "Train an agent from several teachers who disagree, and ask them only when asking helps."
_DERIVED: dict[str, Any] = {
    "train": train,
    "teach": teach,
    "evaluate": evaluate,
    "study": study,
    "calibrate": calibrate,
}
"""Commands whose options depend on what else is typed."""
_FIXED: dict[str, tuple[type, Callable[[Any], None]]] = {
    "answers": (answers.Answers, answers.answers),
    "watch": (watch.Watch, watch.watch),
    "compare": (watch.Compare, watch.compare),
    "replay": (other.Replay, other.replay),
    "export": (other.Export, other.export),
    "report": (other.Report, other.report),
    "tune": (tune.Tune, tune.tune),
    "doctor": (other.Doctor, other.doctor),
    "list": (other.List, other.show_list),
}


def main(argv: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if argv is None else argv)
    command: Any = None
    code = 0
    if isinstance(sys.stdout, TextIOWrapper):  # as stderr is: a name that cannot be encoded is no failure
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        command = _parsed(words)
        refuse_odd_paths(command)
        if argv is None and getattr(command, "workers", 1) > 1:  # this process is for the command alone
            start_early()
        code = _run(command, words)
    except ApilError as error:
        print(f"apil: {one_line(str(error))}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        # Whoever read the output has seen enough; Python would complain again when it closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"apil: {one_line(str(error)[:300])}. Check space, memory and permissions.", file=sys.stderr)
        sys.exit(2)
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        print("apil: Memory is not enough for this: use smaller sizes, or fewer --workers.", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        same = "stopped; the same command resumes from the finished runs and the last checkpoints."
        resumed = words[:1] in (["train"], ["teach"]) and command is not None and _began(command)
        how = f"apil {words[0]} --resume {command.resume or command.out}" if resumed else ""
        on = f"stopped at once; resume with: {how}" if resumed else same
        if words[:1] in (["train"], ["teach"]) and not resumed:
            on = "stopped; nothing was written yet, and the same command starts the run."
        if words[:1] == ["tune"]:
            on = "stopped; nothing was written, and the same command searches again from the start."
        print(f"apil: {on}", file=sys.stderr)
        code = 130
    if argv is None:
        gc.freeze()  # the process ends: it need not look for cycles in all that it has imported, which takes a second
    if code:
        sys.exit(code)


def _run(command: Any, words: Sequence[str]) -> int:
    """Runs a command; returns its exit code. Only apil itself ends the program."""
    try:
        if words[0] in _DERIVED:
            return _DERIVED[words[0]].run(command, words) or 0
        if words[0] == "data":
            command.run()
        else:
            _FIXED[words[0]][1](command)
        return 0
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich ends the program where nobody reads any more
            raise error.__context__ from None
        raise ApilError(
            f"Something that `apil {words[0]}` runs called sys.exit({error.code!r}): fix the task, the teacher or the "
            "plug-in that does."
        ) from error


def _began(command: Any) -> bool:
    """Whether there is a run to resume."""
    return bool(((command.resume or command.out) / "config.json").exists())


def _parsed(words: Sequence[str]) -> Any:
    from apil import __version__

    first = words[0] if words else ""
    if first == "--version":
        print(f"apil {__version__}")
        sys.exit(0)
    kinds = {name: module.options(words[1:] if name == first else ()) for name, module in _DERIVED.items()}
    kinds |= {name: kind for name, (kind, _) in _FIXED.items()}
    data: dict[str, Any] = {}
    if first in kinds:
        refuse_unknown(kinds[first], first, words[1:])
    else:  # they are of no use to other commands, and belong to plug-ins
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
    lines = [
        line.strip(" \u2500\u2502\u256d\u256e\u2570\u256f")
        for line in box.splitlines()
        if not line.startswith("\u256d")
    ]
    rules = [place for place, line in enumerate(lines) if not line.strip("-")]
    start = 0 if box.startswith("\u256d") else rules[0] + 1
    end = next((place for place in rules if place > start), len(lines))
    words = re.sub(r"^Error parsing [^-]\S*: ", "", " ".join(" ".join(lines[start:end]).split()))
    return f"{words} See: {' '.join(('apil', command)).strip()} --help"


def _either(kinds: Mapping[str, Any]) -> Any:
    named = [kind if name == "data" else Annotated[kind, tyro.conf.subcommand(name)] for name, kind in kinds.items()]
    return reduce(or_, named)
