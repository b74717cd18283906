"""The comparison as a folder of TOML files: `study.toml` says what is compared, every other file is a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from apil.errors import ApilError, unknown_name
from apil.runs.calibration import load_calibration
from apil.select import SELECTORS
from apil.settings.record import Count, FromList, Options, Says, Share, Size, Text, nested, record
from apil.studies.budget.definition import SHARED, SeedRange, import_beside
from apil.studies.files import Label, Rule, StudyFile, TaskEntry, own_plan, read_record
from apil.studies.plan import Cell

QUICK_SEEDS = 3


@record
class Entry:
    """A selector as it takes part."""

    select: Text = "environment"
    label: Label = ""
    """Its name in tables and figures; its own if not given."""
    acting: Literal["as-answered", "by-skill"] = "as-answered"
    weights: Annotated[tuple[float, ...] | None, FromList, Says("give a probability for each member")] = None
    """Of the teachers, for `environment`."""
    options: Options = field(default_factory=dict, hash=False)
    answers: Share = 1.0
    """Of those that a task has, rounded down."""

    def __post_init__(self) -> None:
        SELECTORS.check(self.select)
        if not self.label:
            object.__setattr__(self, "label", self.select)


@record
class WhomTask:
    """A task; its label is the name of its file."""

    task: Text
    teacher: Text
    answers: Count
    """Of every run."""
    sparing: Share = 1.0
    """Of the answers, for the selector that the study names as `sparing`, rounded down."""
    plugin: Text = ""
    """A .py file beside this one, or a module, that registers the teachers."""
    options: Options = field(default_factory=dict, hash=False)
    """Of the task."""
    chosen: Options = field(default_factory=dict, hash=False)
    """Of the task where something is chosen: other walls, for example. The same if not given."""
    settings: Annotated[Mapping[Text, Any], Says("give a table")] = field(default_factory=dict, hash=False)
    """Of all its runs, by their typed names."""


_Entries = Annotated[tuple[Annotated[Entry, nested(Entry, "select")], ...], FromList, Says("give a list of selectors")]


@record
class Shared:
    """`study.toml`."""

    selectors: _Entries
    top: Label
    """The label of the one that always asks the best teacher."""
    winner: Label
    """The label of the one that the report is about."""
    choosing: SeedRange
    """Seeds for choosing settings."""
    reporting: SeedRange
    """Seeds for the report, run once."""
    sparing: Label = ""
    """The label of the winner with fewer answers, which is held against the top at a part of its cost; if there is
    none, the winner is, as it was when it had cost as much."""
    query: Text = "random"
    """Of all runs."""
    level: Share = 0.9
    """The success alone to which the cost is reported."""
    looks: Size = 200
    """Episodes of a look at success alone, in training."""
    episodes: Size = 500
    """Of evaluation at the end."""

    def __post_init__(self) -> None:
        labels = [entry.label for entry in self.selectors]
        for label in labels:
            if labels.count(label) > 1:
                raise ApilError(f"Two selectors are called '{label}': give each a 'label' of its own.")
        for name in (self.top, self.winner, self.sparing):
            if name and name not in labels:
                raise unknown_name("selector", name, labels)
        if set(self.choosing) & set(self.reporting):
            raise ApilError("choosing and reporting share seeds: a report on seeds that chose settings shows nothing.")


@dataclass(frozen=True)
class Planned:
    """A run of the comparison."""

    task: str
    selector: str
    cell: Cell


@dataclass(frozen=True)
class Comparing:
    """What to compare."""

    shared: Shared
    tasks: Mapping[str, WhomTask]
    seeds: tuple[int, ...]
    runs: tuple[Planned, ...]


def read_comparison(
    folder: Path, tasks: Sequence[str] = (), *, quick: bool = False, choosing: bool = False
) -> Comparing:
    """Reads and checks the folder, imports the plug-ins that it names, and plans the runs.

    `tasks` are the labels of those that take part, all if none is given. One for `choosing` has other seeds and, where
    a task says so, other options. A `quick` one has three seeds.
    """
    if not (folder / SHARED).is_file():
        raise ApilError(f"There is no {folder / SHARED}: run this in a checkout of apil, or give --folder.")
    shared = read_record(folder / SHARED, Shared)
    paths = {path.stem: path for path in sorted(folder.glob("*.toml")) if path.name != SHARED}
    for label in tasks:
        if label not in paths:
            raise unknown_name(f"task of {folder}", label, paths)
    files = {label: read_record(paths[label], WhomTask) for label in tasks or paths}
    if not files:
        raise ApilError(f"{folder} describes no task: add a file.")
    import_beside(folder, *(file.plugin for file in files.values()))
    seeds = tuple(shared.choosing if choosing else shared.reporting)[: QUICK_SEEDS if quick else None]
    runs = [
        Planned(label, entry.label, cell)
        for label, file in files.items()
        for entry, cell in _cells(shared, file, label, seeds, paths[label], choosing)
    ]
    return Comparing(shared, files, seeds, tuple(runs))


def _cells(
    shared: Shared, file: WhomTask, label: str, seeds: tuple[int, ...], path: Path, choosing: bool
) -> list[tuple[Entry, Cell]]:
    options = {**file.options, **(file.chosen if choosing else {})}
    entry = TaskEntry(name=file.task, label=label, options=options)
    study = StudyFile(
        tasks=(entry,),
        teachers=(file.teacher,),
        rules=(Rule(query=shared.query),),
        settings={"answers": False, "looks": shared.looks, **file.settings},
        answers=(file.answers,),
        seeds=len(seeds),
        first_seed=seeds[0],
        episodes=shared.episodes,
    )
    base = own_plan(study, entry, load_calibration(None), path)
    made = []
    for own in shared.selectors:
        share = own.answers * (file.sparing if own.label == shared.sparing else 1.0)
        whom: dict[str, Any] = {
            "select": own.select,
            "acting": own.acting,
            "select_options": dict(own.options),
            "weights": own.weights,
            "answer_budget": max(1, int(share * file.answers)),
        }
        made += [(own, Cell(cell.config.changed(**whom), label=own.label, point=cell.point)) for cell in base]
    return made
