"""The documentation names what exists: files, functions, records, settings, commands, and code that runs."""

from __future__ import annotations

import importlib
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from example_parts import EXAMPLES, imported, names_taken_back

from apil.cli import _parsed, main
from apil.cli.options import given
from apil.cli.train import _OWN
from apil.errors import ApilError
from apil.files import write_json
from apil.runs.resolve import resolve
from apil.settings import RunSettings
from small_numbers import SMALL

_ROOT = Path(__file__).parents[1]
_SOURCE = _ROOT / "src" / "apil"
_MAP = (_ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
_PAGES = sorted(
    [*_ROOT.glob("*.md"), *_ROOT.glob("docs/**/*.md"), *_ROOT.glob("benchmarks/*.md")], key=lambda path: path.as_posix()
)


def _spans(text: str) -> list[str]:
    """What stands between backticks, outside of code blocks."""
    without = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", without)]


def _module(path: str) -> ModuleType:
    return importlib.import_module("apil." + path.removesuffix(".py").replace("/", "."))


def _has(owner: Any, name: str) -> bool:
    """A function, class or constant of a module, or a method or field of a class."""
    return hasattr(owner, name) or name in getattr(owner, "__annotations__", {})


# The map.

_NAMED = sorted({tuple(span.split(":")) for span in _spans(_MAP) if re.fullmatch(r"[\w/]+\.py:[\w.]+", span)})
_FILES = sorted({span for span in _spans(_MAP) if re.fullmatch(r"[\w/]+\.py", span)} | {path for path, _ in _NAMED})
_RECORDS = sorted({span for span in _spans(_MAP) if re.fullmatch(r"[A-Z]\w*[a-z]\w*", span)})


@pytest.mark.parametrize(("path", "name"), _NAMED, ids=lambda part: part)
def test_every_function_of_the_map_exists(path: str, name: str) -> None:
    assert (_SOURCE / path).is_file()
    first, *rest = name.split(".")
    owner: Any = _module(path)
    assert _has(owner, first)
    if rest:
        (member,) = rest
        assert _has(getattr(owner, first), member)


def test_every_record_of_the_map_is_in_a_file_that_it_names() -> None:
    modules = [_module(path) for path in _FILES]
    assert _RECORDS
    assert [name for name in _RECORDS if not any(hasattr(module, name) for module in modules)] == []


@pytest.mark.parametrize(("algorithm", "lines"), [(1, 18), (2, 15)])
def test_every_line_of_the_algorithms_is_on_the_map(algorithm: int, lines: int) -> None:
    section = _MAP.split(f"## Alg {algorithm}, line by line")[1].split("\n## ")[0]
    found: list[int] = []
    for row in re.findall(r"^\| (\d[\d, to]*) \|", section, re.MULTILINE):
        for part in row.split(", "):
            first, _, last = part.partition(" to ")
            found += range(int(first), int(last or first) + 1)
    assert sorted(found) == list(range(1, lines + 1))


def test_the_rooms_are_drawn_in_the_order_of_their_imports() -> None:
    drawing = re.findall(r"^    (\w[\w |]*?)(?:  .*)?$", _MAP.split("## From a command")[0], re.MULTILINE)
    place = {room.strip(): line for line, rooms in enumerate(drawing) for room in rooms.split("|")}
    rooms = {path.stem for path in _SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - {"__init__", "__main__"} <= set(place)
    contracts = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [[room.strip() for room in layer.split("|")] for layer in contracts[0]["layers"]]
    drawn = [{place[room] for room in layer} for layer in layers]
    assert all(len(lines) == 1 for lines in drawn)
    assert [min(lines) for lines in drawn] == sorted(min(lines) for lines in drawn)


# All pages.


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.relative_to(_ROOT).as_posix())
def test_every_row_of_a_table_is_one_line(page: Path) -> None:
    """A page shows what stands on a line of its own as a row of its own."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    rows = [line.strip() for line in text.splitlines() if line.startswith("|")]
    assert [row for row in rows if not row.endswith("|")] == []


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.relative_to(_ROOT).as_posix())
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    wrong = [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if not _leads(page, target)]
    named = [span for span in _spans(text) if re.fullmatch(r"(src|docs|examples|tests|benchmarks)/[\w./-]+", span)]
    assert wrong + [path for path in named if not (_ROOT / path).exists()] == []


def _leads(page: Path, target: str) -> bool:
    """Whether a link of a page has its file, and its heading."""
    path, _, anchor = target.partition("#")
    if path.startswith(("http://", "https://")):
        return True
    file = page.parent / path if path else page
    if not anchor or not file.is_file():
        return file.exists()
    headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


_GROUPS = ("apil.plugins", "apil.query_policies")
"""Groups of entry points that are no packages."""


@pytest.mark.parametrize("page", [p for p in _PAGES if p.name != "CHANGELOG.md"], ids=lambda page: page.stem)
def test_names_of_apil_exist(page: Path) -> None:
    dotted = [re.match(r"apil(\.[a-zA-Z_]\w*)+", span) for span in _spans(page.read_text(encoding="utf-8"))]
    names = {found[0] for found in dotted if found} - set(_GROUPS)
    assert [name for name in sorted(names) if not _importable(name)] == []


def _importable(name: str) -> bool:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(owner, part):
                return False
            owner = getattr(owner, part)
        return True
    return False


# Code.


_FENCED = re.compile(
    r"^(?:<!-- (?P<not_run>not run: .+?) -->\n)?```(?P<kind>\w*)\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE
)
"""A block of code. A comment in front of it says why it is not run."""


def _fenced(page: Path, kind: str) -> list[re.Match[str]]:
    return [block for block in _FENCED.finditer(page.read_text(encoding="utf-8")) if block["kind"] == kind]


@pytest.mark.parametrize(
    "page", [page for page in _PAGES if _fenced(page, "python")], ids=lambda page: page.relative_to(_ROOT).as_posix()
)
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page are run in their order, each with what those before it have named."""
    script = tmp_path / "script.py"
    (tmp_path / "examples").symlink_to(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before, known = set(sys.modules), dict[str, Any]()
    with names_taken_back():
        for block in _fenced(page, "python"):
            code = block["code"]
            for what, small in SMALL.items():
                code = re.sub(what, small, code)
            if block["not_run"]:
                compile(code, str(page), "exec")
                continue
            script.write_text(code)
            ran = runpy.run_path(str(script), init_globals=known, run_name="__main__")
            known |= {name: value for name, value in ran.items() if not name.startswith("__")}
    for name in {path.stem for path in EXAMPLES.glob("*.py")} & (set(sys.modules) - before):
        del sys.modules[name]


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.relative_to(_ROOT).as_posix())
def test_other_blocks_are_sound(page: Path) -> None:
    kinds = {block["kind"] for block in _FENCED.finditer(page.read_text(encoding="utf-8"))}
    assert kinds <= {"python", "toml", "bash", "text"}, "say what a block is, so that it is checked"
    for block in _fenced(page, "toml"):
        tomllib.loads(block["code"])
    for block in _fenced(page, "bash"):
        subprocess.run(["bash", "-n"], input=block["code"], text=True, check=True)


# Commands.

_NO_COMMANDS = ("apil ...", "apil study ... --out DIR")
"""What stands for any command."""


def _commands(page: Path) -> tuple[set[str], list[list[str]]]:
    """The examples that APIL_PLUGINS names on a page, and the words behind `apil` of every command."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    plugins: set[str] = set()
    found = []
    in_blocks = "".join(block["code"] for block in _fenced(page, "bash")).replace("\\\n", " ").splitlines()
    for line in [*re.findall(r"^    (.*)$", text, re.MULTILINE), *_spans(text), *in_blocks]:
        typed = re.fullmatch(r"(?:APIL_PLUGINS=(\S+) )?(?:\.venv/bin/)?(apil .*?)(?:\s+#.*)?", line)
        if typed and typed[2] not in _NO_COMMANDS:
            paths = [name for name in (typed[1] or "").split(",") if name]
            plugins |= {name.removeprefix("examples/").removesuffix(".py") for name in paths}
            found.append(shlex.split(typed[2])[1:])
    return plugins, found


@pytest.mark.parametrize(
    "page",
    [page for page in _PAGES if page.name != "CHANGELOG.md"],
    ids=lambda page: page.relative_to(_ROOT).as_posix(),
)
def test_commands_can_be_typed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _write_run(tmp_path / "RUN", "r2r")
    plugins, commands = _commands(page)
    wrong = []
    with ExitStack() as stack:
        for plugin in plugins:
            stack.enter_context(imported(plugin))
        for words in commands:
            try:
                _try(words, tmp_path)
            except (ApilError, SystemExit) as error:
                if not (isinstance(error, SystemExit) and error.code == 0):
                    wrong.append(f"{' '.join(words)}: {error}")
    assert wrong == []


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.relative_to(_ROOT).as_posix())
def test_targets_and_extras_exist(page: Path) -> None:
    """What `make` and `pip` are asked for."""
    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"(?:^    |`)make ([\w.][\w./-]*)", text, re.MULTILINE))
    known = set(re.findall(r"^([\w./-]+):", (_ROOT / "Makefile").read_text(), re.MULTILINE)) | {".venv/ready"}
    extras = {name for names in re.findall(r"(?:apil|\.)\[([\w,]+)\]'", text) for name in names.split(",")}
    offered = set(tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    assert (targets - known, extras - offered) == (set(), set())


def _try(words: list[str], folder: Path) -> None:
    """Parses a command; the settings of a training that needs no data are checked as well."""
    if len(words) == 1 or (words[0] == "data" and len(words) == 2):  # the name of a command in a sentence
        words = [*words, "--help"]
    typed = _parsed(words)
    if words[0] != "train" or typed.resume is not None:
        return
    if typed.task != "r2r":
        resolve(typed.task, typed.teacher, typed.query, given(typed, words, _OWN), {})
    _write_run(folder / typed.out, typed.task)


def _write_run(folder: Path, task: str) -> None:
    """As much of a run as other commands look at before they open it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", RunSettings.of(task, "detm", "bc").to_json())


def _refused() -> list[tuple[str, str]]:
    table = (_ROOT / "docs" / "guide" / "settings.md").read_text().split("## What is refused")[1].split("\n## ")[0]
    return re.findall(r"^\| `(--[^`]+)` \| (.*) \|$", table, re.MULTILINE)


@pytest.mark.parametrize(("options", "answer"), _refused(), ids=lambda part: part[:40])
def test_refusals_are_as_the_guide_tells(
    options: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["train", *options.split()])
    assert (stopped.value.code, capsys.readouterr().err) == (2, f"apil: {answer}\n")
    assert not any(tmp_path.iterdir())
