"""Strategies for odd command lines, study files, run folders and compiled data, drawn from the records of settings."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt
from fuzz_judge import SMALL, TINY, Case, Change, Made, typed
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from apil.agent.spec import AgentSpec
from apil.cli import calibrate, evaluate, other, study, train
from apil.errors import ApilError
from apil.files import read_json
from apil.query import QUERY_POLICIES, needs_threshold, takes_budget
from apil.r2r.options import InstructionSizes
from apil.runs.checkpoint import files_of, save_checkpoint
from apil.runs.journal import Prefix
from apil.settings import ModelSettings, QuerySettings, RunSettings
from apil.settings.record import arguments_of, described
from apil.settings.run import LEAVES
from apil.studies.files import Rule, StudyFile, TaskEntry
from apil.tasks import TASKS
from apil.teachers import TEACHERS

Any_ = st.SearchStrategy[Any]

_SLOW = ("iterations", "episodes", "seeds", "other_seeds", "houses", "workers", "maps", "draw")
"""Settings whose largest values are allowed and take long: of those that are allowed only small ones are drawn."""
_TEXTS = (
    "",
    " ",
    "x",
    "-1",
    "0",
    "1e12",
    "1000000000000",
    "inf",
    "-inf",
    "nan",
    "1e308",
    "1e400",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "1" * 5000,
    "a" * 4001,
    "None",
    "null",
    "true",
    "[1, 2]",
    "{}",
    "+",
    "first+",
    "first+last",
    "+".join(["first"] * 40),
    "grid",
    "apil",
    "estimate",
    "$\\frac{$",
    "$x^$_",
    "<script>alert(1)</script>",
    "{{ 7 }}",
    "a/b",
    "..",
    ".",
    "con:",
    "a\nb",
    "a\x1b[31mb",
    "\u202eabc",
    "\udcff",
    "ü" * 200,
    "%s%n",
    "--",
    "-",
    "=",
    "k=5",
    "k=",
    "=5",
    "k=0",
    "k=-1",
    "k=x",
    "k=1e30",
    "k=99999999999999999999",
    "tau=x",
    "tau=nan",
    "gym:CartPole-v1",
)
_PATHS = (
    "",
    ".",
    "..",
    "/",
    "/dev/null",
    "/dev/null/x",
    "/proc/nowhere",
    "a/b/c",
    "a" * 300,
    "a" * 4000,
    "b/" * 2000,
    "a\nb",
    "\udcff",
    "run",
    "run/config.json",
    "file.json",
    "folder",
    "x.gif",
    "x.mp4",
    "-",
    "~",
)
_NOT_FINITE = (float("nan"), float("inf"), float("-inf"))
_ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 10**12, 2**63, -(2**63) - 1, 10**400, 0.0, -0.0, 0.5, -1.0, 1e-320, 1e308,
    *_NOT_FINITE, *_TEXTS, [], [1, 2], {}, {"a": 1},
)  # fmt: skip
_ODD_VALUES: Any_ = st.one_of(st.sampled_from(_ODD), st.integers(), st.text(max_size=6))
_PLAIN: dict[Any, Sequence[Any]] = {
    bool: (True, False),
    int: (-3, 0, 1, 2, 3),
    float: (0.0, 0.25, 0.5, 1.0, -1.0, 1e30),
    str: _TEXTS,
    Path: _PATHS,
    type(None): (None,),
}


def values(annotation: Any, small: bool = False) -> Any_:
    """One of `samples`, those inside more often."""
    return st.sampled_from(samples(annotation, small))


def samples(annotation: Any, small: bool = False) -> list[Any]:
    """Values of a type with bounds: inside, at the edges and just outside; `small` leaves out the largest inside."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _numbers(parts[0], parts[1:], small) if parts[0] in (int, float) else samples(parts[0], small)
    if origin is Literal:
        return list(parts)
    if origin in (Union, UnionType):
        return [value for part in parts for value in samples(part, small)]
    if origin is tuple:
        inside = samples(parts[0], small)
        return [[], *([value] for value in inside), *([value, other_] for value, other_ in pairwise(inside))]
    if origin is not None and issubclass(origin, Mapping):
        return [{}, *({name: value} for value in samples(parts[1]) for name in ("k", "tau", "x"))]
    return list(_PLAIN.get(annotation, _ODD))


def _numbers(kind: type, marks: Sequence[Any], small: bool) -> list[Any]:
    low: Any = next((mark.ge for mark in marks if isinstance(mark, Ge)), None)
    above: Any = next((mark.gt for mark in marks if isinstance(mark, Gt)), None)
    high: Any = next((mark.le for mark in marks if isinstance(mark, Le)), None)
    below: Any = next((mark.lt for mark in marks if isinstance(mark, Lt)), None)
    edges: list[Any] = [bound for bound in (low, above, below) if bound is not None]
    edges += [] if high is None else [2 * high] if small else [high, 2 * high]
    if kind is int:
        first = max(0, 0 if low is None else int(low))
        inside: list[Any] = [value for value in range(first, first + 4) if high is None or value <= high]
        return [*inside * 3, *map(int, edges), first - 1]
    inside = [value for value in (0.0, 0.1, 0.5, 0.9, 1.0, 1.5, 3.0) if _within(value, low, above, high, below)]
    return [*inside * 2, *map(float, edges), -1e-9, 1e-300, *_NOT_FINITE]


def _within(value: float, low: Any, above: Any, high: Any, below: Any) -> bool:
    return not (
        (low is not None and value < low)
        or (above is not None and value <= above)
        or (high is not None and value > high)
        or (below is not None and value >= below)
    )


# Command lines


@dataclass(frozen=True)
class Put:
    """A file with some content."""

    name: str
    content: str | bytes

    def apply(self, place: Path, made: Made) -> None:
        """Writes it."""
        (place / self.name).parent.mkdir(parents=True, exist_ok=True)
        data = self.content.encode("utf-8", "surrogatepass") if isinstance(self.content, str) else self.content
        (place / self.name).write_bytes(data)


@dataclass(frozen=True)
class Copied:
    """A run folder, as it was written."""

    what: Literal["grid", "r2r", "houses"]

    def apply(self, place: Path, made: Made) -> None:
        """Copies it to `run`."""
        shutil.copytree(getattr(made, self.what), place / "run")


def _options_of(command: Any) -> dict[str, Any]:
    """The options of a command with their types."""
    hints = get_type_hints(command, include_extras=True)
    return {field.name: hints[field.name] for field in fields(command) if field.name != "run"}


def _word(value: Any) -> str:
    return str(value)


@st.composite
def _typed_options(draw: st.DrawFn, command: Any, base: dict[str, str], skip: Sequence[str] = ()) -> list[str]:
    """The base, and a few options with values of their types or with anything."""
    known = {name: annotation for name, annotation in _options_of(command).items() if name not in skip}
    words: dict[str, list[str]] = {name: [value] for name, value in base.items()}
    names = draw(st.lists(st.sampled_from(sorted(known)), max_size=3, unique=True)) if known else []
    for name in names:
        small, path = name in _SLOW, name in ("out", "folder") or _is_path(known[name])
        value = draw(st.sampled_from(_PATHS) if path else values(known[name], small))
        words[name] = [_word(part) for part in value] if isinstance(value, list) else [_word(value)]
        if not path and draw(st.integers(0, 9)) == 0:
            words[name] = [
                draw(st.one_of(st.sampled_from(_TEXTS), st.text(st.characters(exclude_characters="\0"), max_size=5)))
            ]
        if known[name] is bool or get_args(known[name])[:1] == (bool,):
            words[name] = draw(st.sampled_from([[], ["True"], ["x"]]))
    line = [word for name, typed_ in words.items() for word in (f"--{name.replace('_', '-')}", *typed_)]
    return [*line, *draw(st.lists(st.sampled_from(_TEXTS), max_size=1))] if draw(st.integers(0, 30)) == 0 else line


def _is_path(annotation: Any) -> bool:
    return annotation is Path or any(_is_path(part) for part in get_args(annotation))


def _often(good: Any_, odd: Any_, times: int = 6) -> Any_:
    """Odd once in so many times."""
    return st.integers(1, times).flatmap(lambda luck: odd if luck == times else good)


_TEACHER = _often(
    st.sampled_from([*TEACHERS.names(), "first+last", "uniform+first+last", "last"]), st.sampled_from(_TEXTS)
)
_QUERY = _often(st.sampled_from(QUERY_POLICIES.names()), st.sampled_from(_TEXTS))
_CALIBRATIONS: Any_ = st.one_of(
    _ODD_VALUES.map(lambda value: {"grid": {"intrun": {"threshold": value, "how": "odd"}}}),
    _ODD_VALUES.map(lambda value: {"grid": {"intrun": {"threshold": 0.1, "how": value}}}),
    _ODD_VALUES.map(lambda value: {"grid": {"intrun": value}}),
    _ODD_VALUES.map(lambda value: {"grid": value}),
    _ODD_VALUES,
)


_OPEN = ("every", "thriftydagger", "safedagger", "lazydagger", "ensembledagger", "rnd")
"""Query policies with options of their own."""


@st.composite
def _train(draw: st.DrawFn) -> Case:
    task = draw(_often(st.sampled_from(["grid", "grid", "maze", "r2r"]), st.sampled_from(_TEXTS), 20))
    base = {"task": task, "out": "new", **TINY}
    if task == "r2r":
        base |= {"data": "run", **SMALL}
    if draw(st.booleans()):
        base["teacher"] = draw(_TEACHER)
    if draw(st.booleans()):
        base["query"] = draw(_QUERY)
        if draw(st.booleans()):
            base["threshold"] = "0.1"
    options = _options_of(arguments_of(QUERY_POLICIES.load(base["query"]), 1)) if base.get("query") in _OPEN else {}
    if options:
        name = draw(st.sampled_from(sorted(options)))
        base["query_options"] = f"{name}={draw(values(options[name]))}"
    changes: list[Change] = [Copied("houses" if task == "r2r" else "grid")]
    if draw(st.integers(0, 5)) == 0:
        changes.append(Put("file.json", json.dumps(draw(_CALIBRATIONS))))
        base |= {"calibration": "file.json", "query": draw(st.sampled_from(["intrun", "apil", "random"]))}
    known = train.options(["--task", task]) if task in TASKS.names() else train.options([])
    line = ["train", *draw(_typed_options(known, base, ("resume", "task")))]
    out = line[line.index("--out") + 1]
    return Case(tuple(line), tuple(changes), ("evaluate", out, "--episodes", "1"))


_EMPTY_FOLDER = Put("folder/.lock", "")
_FIXED = {"replay": other.Replay, "export": other.Export, "doctor": other.Doctor, "list": other.List}


@st.composite
def _other(draw: st.DrawFn) -> Case:
    """Commands other than `train`."""
    name = draw(
        st.sampled_from(
            ["evaluate", "evaluate-r2r", "replay", "export", "doctor", "list", "resume", "study", "calibrate"]
        )
    )
    changes: tuple[Change, ...] = (Copied("r2r" if name == "evaluate-r2r" else "grid"), _EMPTY_FOLDER)
    where = draw(_often(st.just("run"), st.sampled_from(_PATHS)))
    if name.startswith("evaluate"):
        own = import_module("apil.r2r.evaluation").R2REvaluationArguments if "r2r" in name else None
        known = own or evaluate.options([])
        line = ["evaluate", where, *draw(_typed_options(known, {"episodes": "2"}))]
    elif name == "resume":
        line = ["train", "--resume", where, *draw(_typed_options(train.options([]), {}, ("resume", "out")))]
        return Case(tuple(line), changes, ("evaluate", where, "--episodes", "1"))
    elif name == "study":
        base = {"out": "new", "seeds": "1", "episodes": "2", "workers": "1", "teachers": "detm", "queries": "never"}
        task = draw(_often(st.just("grid"), st.sampled_from(_TEXTS)))
        line = ["study", task, *draw(_typed_options(study.options([]), {**base, **TINY}, ("task", "workers")))]
    elif name == "calibrate":
        base = {"out": "new.json", "seeds": "1", "query": "intrun"}
        line = ["calibrate", *draw(_typed_options(calibrate.options([]), {**base, **TINY}))]
    else:
        base = {"replay": {"episodes": "1"}, "export": {"out": "new", "episodes": "2"}}.get(name, {})
        line = [name, *([where] if base else []), *draw(_typed_options(_FIXED[name], base))]
    return Case(tuple(line), changes)


@st.composite
def _data(draw: st.DrawFn) -> Case:
    """`apil data`."""
    name = draw(st.sampled_from(["show", "houses", "r2r"]))
    kind = TASKS.facet("r2r", "commands")[name]
    base = {"show": {}, "houses": {"houses": "2", "out": "new"}, "r2r": {"from": "run", "out": "new"}}[name]
    where = draw(_often(st.just(["run"]), st.sampled_from(_PATHS).map(lambda path: [path]))) if name == "show" else []
    line = ["data", name, *where, *draw(_typed_options(kind, base, ("data", "source")))]
    return Case(tuple(line), (Copied("houses"), _EMPTY_FOLDER))


_GARBAGE: Any_ = st.lists(
    st.one_of(
        st.sampled_from(["train", "study", "data", "evaluate", "--help", "--version", "--task", "maze", "--seed", "3"]),
        st.sampled_from(_TEXTS),
        st.text(st.characters(exclude_characters="\0"), max_size=6),
    ),
    max_size=5,
).map(lambda words: Case(tuple(word for word in words if word != "study")))

COMMAND_LINES: st.SearchStrategy[Case] = st.integers(0, 19).flatmap(
    lambda luck: _GARBAGE if luck == 0 else _data() if luck < 3 else _other() if luck < 8 else _train()
)


# Study files


def toml(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(str(name))} = {toml(inside)}" for name, inside in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return '"none"' if value is None else repr(value)


_ODD_TOML: Any_ = st.one_of(
    _ODD_VALUES,
    st.sampled_from([datetime.date(2020, 1, 2), datetime.time(1, 2), datetime.datetime(2020, 1, 2, 3), ["a", ["b"]]]),
    st.sampled_from(["a\0b", "\x7f", "a" * 300]),
)


@st.composite
def _table(draw: st.DrawFn, record: Any, base: dict[str, Any]) -> dict[str, Any]:
    """A table of a study file: the base, and now and then a key with a value of its type, or with anything."""
    table = dict(base)
    names = draw(st.lists(st.sampled_from(sorted(described(record))), max_size=1))
    for name in names:
        info = described(record)[name]
        annotation = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
        table[name] = draw(_often(values(annotation, name in _SLOW), _ODD_TOML))
    if draw(st.integers(0, 15)) == 0:
        table[draw(st.sampled_from(_TEXTS))] = draw(_ODD_TOML)
    return table


@st.composite
def _study_file(draw: st.DrawFn) -> str:
    queries = draw(st.lists(st.sampled_from(QUERY_POLICIES.names()), min_size=1, max_size=2))
    rules: list[Any] = []
    for query in queries:
        gates = [{"threshold": 0.1}] * needs_threshold(query) + [{"budget": 0.5}] * takes_budget(query)
        rule: dict[str, Any] = {"query": query, **(draw(st.sampled_from(gates)) if gates else {})}
        if draw(st.booleans()):
            rule["label"] = draw(st.one_of(st.sampled_from(_TEXTS), st.text(max_size=5)))
        plain: bool = len(rule) == 1 and draw(st.booleans())
        rules.append(query if plain else draw(_table(Rule, rule)))
    task = draw(_often(st.just("grid"), _table(TaskEntry, {"name": "maze", "options": {"size": 3, "walls": 0}})))
    shared = {name: int(value) for name, value in TINY.items()}
    for name in draw(st.lists(st.sampled_from(sorted(LEAVES)), max_size=1)):
        if draw(st.booleans()):
            shared[name] = draw(_often(values(LEAVES[name].annotation, name in _SLOW), _ODD_TOML))
    members = draw(st.lists(_often(st.sampled_from(["detm", "rand", "first+last"]), _TEACHER), min_size=1, max_size=2))
    base = {"tasks": [task], "teachers": members, "rules": rules, "settings": shared, "seeds": 1, "episodes": 2}
    whole = draw(_table(StudyFile, base)) if draw(st.integers(0, 2)) == 0 else base
    if draw(st.integers(0, 5)) == 0:
        whole["costs"] = {"first": draw(_ODD_TOML)}
    if draw(st.integers(0, 15)) == 0:
        del whole[draw(st.sampled_from(sorted(base)))]
    return "\n".join(f"{toml(name)} = {toml(value)}" for name, value in whole.items())


@st.composite
def _study_case(draw: st.DrawFn) -> Case:
    text = draw(_study_file())
    if draw(st.integers(0, 9)) == 0:
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(st.one_of(st.text(max_size=3), st.sampled_from(["\n[[", "\0", '"""', "[a]\n" * 3])))
    return Case(("study", "odd.toml", "--out", "new", "--workers", "1"), (Put("odd.toml", text),))


STUDY_FILES: st.SearchStrategy[Case] = _study_case()


# Run folders


def _with_value(values_: dict[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """The same with another value at a place inside."""
    inside = values_.get(path[0]) if len(path) > 1 else None
    return {
        **values_,
        path[0]: _with_value(inside if isinstance(inside, dict) else {}, path[1:], value) if len(path) > 1 else value,
    }


@dataclass(frozen=True)
class Json:
    """Another value in a JSON file; `sealed` makes the checkpoints fit a changed config, where it is one at all."""

    name: str
    path: tuple[str, ...]
    value: Any
    sealed: bool

    def apply(self, place: Path, made: Made) -> None:
        """Changes it."""
        file = place / "run" / self.name
        file.write_text(json.dumps(_with_value(read_json(file), self.path, self.value)))
        if self.sealed:
            _reseal(place / "run", {}, {})


@dataclass(frozen=True)
class Forged:
    """A changed tensor in a checkpoint whose checksums fit it."""

    number: int
    how: str
    at: int
    value: float

    def apply(self, place: Path, made: Made) -> None:
        """Changes it."""
        path = _newest(place / "run")
        tensors = load_file(path)
        name = sorted(tensors)[self.number % len(tensors)]
        changed = reshaped(tensors.pop(name), self.how, self.at, self.value)
        new = {} if changed is None else {name + "x" if self.how == "rename" else name: changed}
        _reseal(place / "run", {**tensors, **new}, {})


@dataclass(frozen=True)
class Note:
    """Another value in the JSON beside a checkpoint; `sealed` with a checksum that fits."""

    name: str
    value: Any
    sealed: bool

    def apply(self, place: Path, made: Made) -> None:
        """Changes it."""
        if self.sealed and self.name == "iteration" and type(self.value) is int:
            _reseal(place / "run", {}, {"iteration": self.value})
            return
        path = _newest(place / "run").with_suffix(".json")
        note = read_json(path)
        path.write_text(json.dumps({**note, self.name: self.value}))


@dataclass(frozen=True)
class Rows:
    """More rows in a file of rows; `sealed` ones are rows that the checkpoint builds on."""

    name: str
    row: Any
    sealed: bool

    def apply(self, place: Path, made: Made) -> None:
        """Appends them."""
        with (place / "run" / self.name).open("a", encoding="utf-8", errors="surrogatepass") as file:
            file.write(self.row if isinstance(self.row, str) else json.dumps(self.row))
            file.write("\n")
        if self.sealed:
            _reseal(place / "run", {}, {})


@dataclass(frozen=True)
class Bytes:
    """Some bytes of a file overwritten or cut."""

    number: int
    at: int
    patch: bytes
    cut: bool

    def apply(self, place: Path, made: Made) -> None:
        """Changes them."""
        found = sorted(path for path in (place / "run").rglob("*") if path.is_file() and not path.name.startswith("."))
        path = found[self.number % len(found)]
        content = path.read_bytes()
        at = self.at % (len(content) + 1)
        path.write_bytes(content[:at] + self.patch + (b"" if self.cut else content[at + len(self.patch) :]))


def _newest(run: Path) -> Path:
    return max(run.glob("checkpoint-*.safetensors"))


def _reseal(run: Path, tensors: dict[str, torch.Tensor], more: dict[str, Any]) -> None:
    """Writes the newest checkpoint again, so that its checksums fit what is in the folder now."""
    try:
        settings = RunSettings.from_json(read_json(run / "config.json"))
    except ApilError:
        return
    path = _newest(run)
    old = read_json(path.with_suffix(".json"))
    state = tensors or load_file(path)
    stand_in: Any = SimpleNamespace(
        iteration=more.get("iteration", old["iteration"]), configs=[settings], state=lambda number: state
    )
    files = {}
    for name in files_of(settings):
        content = (run / name).read_bytes() if (run / name).exists() else b""
        files[name] = Prefix(len(content), sha256(content).hexdigest())
    path.unlink()
    path.with_suffix(".json").unlink()
    try:
        save_checkpoint(run, stand_in, 0, files)
    except ApilError:
        return


_HOW = (
    "value", "value", "value", "all", "all", "front", "back", "short", "narrow", "flat", "empty", "scalar",
    "transposed",
    "double", "half", "float", "int8", "int16", "int32", "int64", "uint8", "bool", "drop", "rename",
)  # fmt: skip
_KINDS = {
    "double": torch.float64,
    "half": torch.float16,
    "float": torch.float32,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
_NUMBERS = (
    0.0,
    -1.0,
    -2.0,
    1.0,
    5.0,
    127.0,
    1e4,
    1e9,
    1e18,
    -1e18,
    1e38,
    -1e38,
    float("nan"),
    float("inf"),
    float("-inf"),
    1e-300,
)


def reshaped(table: torch.Tensor, how: str, at: int, value: float) -> torch.Tensor | None:
    """A table with another number, shape or type; None if it is dropped."""
    new = table.clone()
    if how == "drop":
        return None
    if how in ("value", "all"):
        number = value if table.is_floating_point() else _whole(value, table.dtype)
        if new.numel():
            flat = new.view(-1)
            flat[(at % len(flat)) if how == "value" else slice(None)] = number
        return new
    if how in _KINDS:
        return new.to(_KINDS[how])
    shapes = {
        "front": lambda: new.unsqueeze(0),
        "back": lambda: new.unsqueeze(-1),
        "short": lambda: new[:-1] if new.dim() else new,
        "narrow": lambda: new[..., :-1] if new.dim() else new,
        "flat": lambda: new.flatten(),
        "empty": lambda: new.flatten()[:0],
        "scalar": lambda: new.flatten()[0] if new.numel() else new,
        "transposed": lambda: new.transpose(0, -1) if new.dim() else new,
        "rename": lambda: new,
    }
    return shapes[how]().contiguous()


def _whole(value: float, kind: torch.dtype) -> int:
    if kind == torch.bool:
        return int(bool(value))
    info = torch.iinfo(kind)
    known = int(np.clip(0 if value != value else value, -(2.0**62), 2.0**62))
    return min(max(known, info.min), info.max)


_PLACES = [((leaf.group, leaf.field) if leaf.group else (leaf.field,), name) for name, leaf in LEAVES.items()]
_ODD_PLACES = [
    ("schema",),
    ("model",),
    ("odd",),
    ("task", "odd"),
    ("task", "options", "size"),
    ("query", "options", "k"),
]
_NESTED = {"model": ModelSettings, "query": QuerySettings, "own": InstructionSizes}
_ANSWER = {"iteration": 2, "episode": 0, "step": 0, "identity": 0, "action": 0, "distance": 1.0, "query": "apil"}


@st.composite
def _config_change(draw: st.DrawFn) -> Json:
    path: tuple[str, ...]
    path, name = draw(st.sampled_from(_PLACES))
    value = draw(_often(values(LEAVES[name].annotation, name in _SLOW), _ODD_VALUES))
    if draw(st.integers(0, 5)) == 0:
        path, value = draw(st.sampled_from(_ODD_PLACES)), draw(_ODD_VALUES)
    return Json("config.json", path, value, draw(st.booleans()))


@st.composite
def _agent_change(draw: st.DrawFn) -> Json:
    places: list[tuple[str, ...]] = [(name,) for name in described(AgentSpec)]
    places += [(group, name) for group in ("model", "query", "own") for name in described(_NESTED[group])]
    return Json("agent.json", draw(st.sampled_from(places)), draw(_ODD_VALUES), False)


_FORGED: Any_ = st.builds(
    Forged, st.integers(0, 200), st.sampled_from(_HOW), st.integers(0, 10_000), st.sampled_from(_NUMBERS)
)
_NOTES: Any_ = st.builds(
    Note,
    st.sampled_from(["schema", "iteration", "config", "files", "sha256", "odd"]),
    st.one_of(_ODD_VALUES, st.integers(0, 5)),
    st.booleans(),
)
_ROWS: Any_ = st.one_of(
    st.builds(
        lambda name, value, sealed: Rows("answers.jsonl", {**_ANSWER, name: value}, sealed),
        st.sampled_from(sorted(_ANSWER)),
        st.one_of(_ODD_VALUES, st.integers(0, 4)),
        st.booleans(),
    ),
    st.builds(
        Rows, st.sampled_from(["answers.jsonl", "metrics.jsonl"]), st.one_of(_ODD_VALUES, st.text()), st.booleans()
    ),
)
_BYTES: Any_ = st.builds(Bytes, st.integers(0, 50), st.integers(0, 100_000), st.binary(max_size=4), st.booleans())


@st.composite
def _run_case(draw: st.DrawFn) -> Case:
    what: Any = draw(st.sampled_from(["grid", "grid", "grid", "r2r"]))
    one = st.one_of(_config_change(), _config_change(), _FORGED, _FORGED, _NOTES, _ROWS, _BYTES, _agent_change())
    # The checksums that some of them make are of what is there then: what damages a file comes last.
    order = (Json, Forged, Rows, Note, Bytes)
    changes = sorted(draw(st.lists(one, min_size=1, max_size=2, unique_by=type)), key=lambda c: order.index(type(c)))
    measure = ("evaluate", "run", "--episodes", "2")
    lines = [
        measure,
        ("apil.load", "run"),
        ("replay", "run"),
        ("train", "--resume", "run"),
        ("train", "--resume", "run", "--iterations", "4"),
    ]
    line = draw(
        st.sampled_from([*lines, ("export", "run", "--out", "new", "--episodes", "2")] if what == "grid" else lines)
    )
    return Case(line, (Copied(what), *changes), measure if "--iterations" in line else ())


RUN_FOLDERS: st.SearchStrategy[Case] = _run_case()


# Compiled data


@dataclass(frozen=True)
class Table:
    """A changed table of the compiled data."""

    number: int
    how: str
    at: int
    value: float

    def apply(self, place: Path, made: Made) -> None:
        """Changes it."""
        file = place / "run" / "r2r.safetensors"
        about, tensors = _compiled(file)
        name = sorted(tensors)[self.number % len(tensors)]
        changed = reshaped(tensors.pop(name), self.how, self.at, self.value)
        if changed is not None:
            tensors[name + "x" if self.how == "rename" else name] = changed
        save_file(tensors, file, about)


@dataclass(frozen=True)
class About:
    """Another value in the header of the compiled data."""

    name: str
    how: str
    value: Any

    def apply(self, place: Path, made: Made) -> None:
        """Changes it."""
        file = place / "run" / "r2r.safetensors"
        about, tensors = _compiled(file)
        known = json.loads(about["r2r"])
        old = known.get(self.name)
        if self.how == "one" and isinstance(old, list) and old:
            known[self.name] = [*old[:-1], self.value]
        elif self.how == "short" and isinstance(old, list):
            known[self.name] = old[:-1]
        elif self.how == "drop":
            known.pop(self.name, None)
        elif isinstance(old, dict) and self.how == "one":
            known[self.name] = {**old, next(iter(old), "x"): self.value}
        else:
            known[self.name] = self.value
        save_file(tensors, file, {"r2r": json.dumps(known)})


def _compiled(file: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Without the checksum, as an older apil wrote them: what is wrong in a table is looked for."""
    with safe_open(file, framework="pt") as opened:
        known = json.loads(opened.metadata()["r2r"])
        known.pop("tables", None)
        return {"r2r": json.dumps(known)}, {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118


@dataclass(frozen=True)
class Extras:
    """Tables that only some data have: what a language model read, and image features."""

    def apply(self, place: Path, made: Made) -> None:
        """Adds them."""
        file = place / "run" / "r2r.safetensors"
        about, tensors = _compiled(file)
        known = json.loads(about["r2r"])
        lengths = torch.cat([tensors[f"{split}/tokens_length"] for split in known["names"]])
        rows = int(lengths.sum())
        tensors |= {
            "read_rows": (torch.arange(rows * 4).view(rows, 4) % 256 - 128).to(torch.int8),
            "read_scale": torch.tensor([0.1, 0.2, 0.0, 0.1]),
            "read_start": lengths.cumsum(0) - lengths,
            "read_mirrored": torch.where(torch.arange(len(lengths)) % 2 == 0, lengths.cumsum(0) - lengths, -1),
            "images": torch.ones(len(known["viewpoints"]), 8, 3, dtype=torch.float16),
        }
        save_file(tensors, file, {"r2r": json.dumps({**known, "features": [*known["features"], "images", "readings"]})})


_HEADER = (
    "schema",
    "scans",
    "viewpoints",
    "features",
    "vocabulary",
    "room_names",
    "excluded",
    "unread",
    "names",
    "sha256",
    "tables",
)
_TABLES: Any_ = st.builds(
    Table, st.integers(0, 200), st.sampled_from(_HOW), st.integers(0, 10_000_000), st.sampled_from(_NUMBERS)
)
_ABOUTS: Any_ = st.builds(
    About, st.sampled_from(_HEADER), st.sampled_from(["all", "one", "short", "drop"]), _ODD_VALUES
)


@dataclass(frozen=True)
class CompiledBytes(Bytes):
    """Some bytes of the compiled file overwritten or cut."""

    def apply(self, place: Path, made: Made) -> None:
        """Changes them."""
        path = place / "run" / "r2r.safetensors"
        content = path.read_bytes()
        at = self.at % (len(content) + 1)
        path.write_bytes(content[:at] + self.patch + (b"" if self.cut else content[at + len(self.patch) :]))


_HEADER_BYTES: Any_ = st.builds(
    CompiledBytes,
    st.just(0),
    st.one_of(st.integers(0, 12), st.integers(0, 4000), st.integers(0, 10_000_000)),
    st.binary(max_size=4),
    st.booleans(),
)


@st.composite
def _data_case(draw: st.DrawFn) -> Case:
    change = draw(st.one_of(_TABLES, _TABLES, _TABLES, _ABOUTS, _HEADER_BYTES))
    changes = [Extras(), change] if draw(st.integers(0, 3)) == 0 else [change]
    base = {"task": "r2r", "data": "run", "out": "new", **TINY, **SMALL}
    features = draw(st.sampled_from(["geometry", "captions", "objects", "rooms", "captions,objects,rooms"]))
    seed = str(draw(st.integers(0, 5)))
    learn = (
        "train",
        *typed({**base, "features": features, "seed": seed, "query": draw(st.sampled_from(["apil", "bc"]))}),
    )
    line = draw(st.sampled_from([("data", "show", "run"), learn, learn]))
    split = draw(st.sampled_from(["val_unseen", "val_seen", "train"]))
    measure = ("evaluate", "new", "--episodes", "3", "--split", split)
    then = draw(st.sampled_from([measure, (*measure, "--draw", "1"), ("replay", "new")]))
    return Case(line, (Copied("houses"), *changes), then if line[0] == "train" else ())


COMPILED_DATA: st.SearchStrategy[Case] = _data_case()

KINDS: dict[str, st.SearchStrategy[Case]] = {
    "command lines": COMMAND_LINES,
    "study files": STUDY_FILES,
    "run folders": RUN_FOLDERS,
    "compiled data": COMPILED_DATA,
}
