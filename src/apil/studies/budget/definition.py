"""The benchmark as a folder of TOML files: `study.toml` says how rules are compared, every other file is a task."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from apil.errors import ApilError, unknown_name
from apil.query import QUERY_POLICIES
from apil.registry import PLUGINS, import_plugins
from apil.settings.record import Count, Few, FromList, Options, Says, Size, Text, nested, record
from apil.studies.files import Label, Rule, read_record

SHARED = "study.toml"
"""The file of a benchmark that is not a task."""
Level = Literal["low", "middle", "high"]
LEVELS: tuple[Level, ...] = ("low", "middle", "high")
NEVER, TOP, BASELINE = "never", "dagger", "random"
"""Rules that every comparison needs: the bottom of the scale, its top, and what the others are compared with."""
CONTROLS = (BASELINE, "random-slow", "random-review", "one-an-episode")
"""Rules that place their questions by chance."""
QUICK_SEEDS = 3


@record
class Seeds:
    """Consecutive seeds."""

    first: Annotated[int, Ge(0), Le(1_000_000), Says("give a whole number from 0 to 1,000,000")]
    count: Few

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.first + self.count))


SeedRange = Annotated[Seeds, nested(Seeds), Says("give a table with first and count")]


@record
class Budgets:
    """Numbers of answers at which rules are compared."""

    low: Count
    middle: Count
    high: Count

    def __post_init__(self) -> None:
        if not self.low < self.middle < self.high:
            raise ApilError(f"the budgets are {self.low}, {self.middle} and {self.high}: give them in ascending order.")

    def of(self, level: Level) -> int:
        return int(getattr(self, level))


@record
class TaskFile:
    """A task of the benchmark; its label is the name of its file."""

    task: Text
    """See `apil list`."""
    teacher: Text
    """Who answers: a committee, or members joined by '+'."""
    budgets: Annotated[Budgets, nested(Budgets), Says("give a table with low, middle and high")]
    full: Count
    """The answers with which DAgger is the top of the scale."""
    distance: Text
    """What the distance to the goal is, in a few words."""
    plugin: Text = ""
    """A .py file beside this one, or a module, that registers the task and its teachers."""
    use: Literal["choosing", "reporting"] = "reporting"
    """What the task is for: choosing rules and settings, or the report."""
    options: Options = field(default_factory=dict, hash=False)
    """Of the task."""
    settings: Annotated[Mapping[Text, Any], Says("give a table")] = field(default_factory=dict, hash=False)
    """Settings of all its runs, by their typed names."""
    choosing: SeedRange | None = None
    """Those of `study.toml` if not given."""
    reporting: SeedRange | None = None


_Rules = Annotated[tuple[Annotated[Rule, nested(Rule, "query")], ...], FromList, Says("give a list of rules")]


@record
class Shared:
    """`study.toml`."""

    rules: _Rules
    """With the controls."""
    winner: Label
    """The label of the rule that the report is about."""
    choosing: SeedRange
    """Seeds for choosing rules and settings."""
    reporting: SeedRange
    """Seeds for the report, run once."""
    episodes: Size = 200
    """Of evaluation, for each run."""
    plugin: Text = ""
    """A .py file beside this one, or a module, that registers rules."""

    def __post_init__(self) -> None:
        labels = [rule.label for rule in self.rules]
        for needed in (NEVER, TOP, BASELINE):
            if needed not in labels:
                raise ApilError(f"rules lacks '{needed}', which every comparison needs: add it.")
        for label in labels:
            if labels.count(label) > 1:
                raise ApilError(f"Two rules are called '{label}': give each a 'label' of its own.")
        if self.winner not in labels:
            raise unknown_name("winner", self.winner, labels)
        if set(self.choosing) & set(self.reporting):
            raise ApilError("choosing and reporting share seeds: a report on seeds that chose a rule shows nothing.")


@dataclass(frozen=True)
class BudgetTask:
    """A task as it takes part."""

    label: str
    file: TaskFile
    path: Path
    seeds: tuple[int, ...]
    levels: tuple[Level, ...]


@dataclass(frozen=True)
class Benchmark:
    """What to compare."""

    folder: Path
    shared: Shared
    tasks: tuple[BudgetTask, ...]
    rules: tuple[Rule, ...]

    def rule(self, label: str) -> Rule:
        return next(rule for rule in self.rules if rule.label == label)


def read_benchmark(
    folder: Path,
    tasks: Sequence[str] = (),
    rules: Sequence[str] = (),
    *,
    levels: Sequence[Level] = (),
    quick: bool = False,
    choosing: bool = False,
) -> Benchmark:
    """Reads and checks the folder, and imports the plug-ins that it names.

    `tasks` and `rules` are the labels of those that take part, all that there are if none is given; a rule may also be
    any query policy. What every comparison needs takes part in any case. A benchmark for `choosing` has other seeds,
    and tasks of its own unless some are named. A `quick` one has three seeds and, without `levels`, the middle budget.
    """
    if not (folder / SHARED).is_file():
        raise ApilError(f"There is no {folder / SHARED}: run this in a checkout of apil, or give --folder.")
    shared = read_record(folder / SHARED, Shared)
    paths = {path.stem: path for path in sorted(folder.glob("*.toml")) if path.name != SHARED}
    for label in tasks:
        if label not in paths:
            raise unknown_name(f"task of {folder}", label, paths)
    files = {label: read_record(paths[label], TaskFile) for label in tasks or paths}
    wanted = "choosing" if choosing else "reporting"
    files = {label: file for label, file in files.items() if tasks or file.use == wanted}
    if not files:
        raise ApilError(f"{folder} has no task for {wanted}: add one with use = '{wanted}', or give --tasks.")
    import_beside(folder, shared.plugin, *(file.plugin for file in files.values()))
    wanted_levels = levels or (("middle",) if quick else LEVELS)
    ordered = tuple(level for level in LEVELS if level in wanted_levels)
    made = []
    for label, file in files.items():
        seeds = tuple(getattr(file, wanted) or getattr(shared, wanted))
        made.append(BudgetTask(label, file, paths[label], seeds[: QUICK_SEEDS if quick else None], ordered))
    return Benchmark(folder, shared, tuple(made), _rules(shared, rules))


def _rules(shared: Shared, named: Sequence[str]) -> tuple[Rule, ...]:
    known = {rule.label: rule for rule in shared.rules}
    for label in named:
        if label not in known:
            if label not in QUERY_POLICIES.names():
                raise unknown_name("rule", label, [*known, *QUERY_POLICIES.names()])
            known[label] = Rule(query=label)
    wanted = {NEVER, TOP, BASELINE, *named} if named else set(known)
    return tuple(rule for label, rule in known.items() if label in wanted)


def import_beside(folder: Path, *plugins: str) -> None:
    """Imports plug-ins here, and by the environment variable in worker processes."""
    paths = [str(folder / plugin) if plugin.endswith(".py") else plugin for plugin in dict.fromkeys(plugins) if plugin]
    for path in paths:
        if path.endswith(".py") and not Path(path).is_file():
            raise ApilError(f"There is no {path}, which a file of {folder} names as its plugin: restore it.")
    known = [part for part in os.environ.get(PLUGINS, "").split(",") if part]
    os.environ[PLUGINS] = ",".join(dict.fromkeys([*known, *paths]))
    import_plugins()
