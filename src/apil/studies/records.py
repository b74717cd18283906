"""The saved records of a study, read and checked. Tables, figures and report are made from these alone."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PlainValidator, TypeAdapter

from apil.errors import ApilError, plural
from apil.studies.extras import Extras, extras_of
from apil.studies.paper import Printed
from apil.studies.statistics import UNKNOWN, Estimate, Floats, from_json
from apil.studies.text import printable

TEACHERS = ("detm", "rand", "tworand", "twodifdetm")
"""The paper's teachers, in the order in which every table and figure shows them."""

QUERIES = ("bc", "dagger", "intrun", "extrun", "behvun", "modlun", "errpred", "apil", "random", "never")
"""The query policies, in the order in which every table and figure shows them."""

METRICS = ("query_rate", "success", "intrinsic", "extrinsic", "behavioral", "model", "total", "answers")
"""Columns of figures in `metrics.csv`."""
CURVES = "metrics.csv"
"""The file of the figures over training. It is large, and may be missing where a study is passed on."""
TEACHER_MODELS = "teachers.json"
"""The file of what agents hold about their teachers; it may be missing like the curves."""
_OBJECTIVE = ("query_on_progress", "no_progress")

Kind = TypeVar("Kind")
Figure = Annotated[Estimate, PlainValidator(from_json)]
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]
Array = Annotated[Floats, PlainValidator(lambda value: np.asarray(value, dtype=np.float64))]


@dataclass(frozen=True)
class Curves:
    """Figures logged over training, one entry a run and logged iteration."""

    columns: Mapping[str, NDArray[Any]]
    """Each [entries]: teacher, query and other labels; as numbers seed, iteration and the logged figures."""

    def names(self, label: str) -> list[str]:
        """The values that a label takes, in the order of tables and figures."""
        return in_order(self.columns[label].tolist())

    def where(self, **wanted: str) -> Curves:
        """The entries whose labels have the wanted values."""
        keep = np.logical_and.reduce([self.columns[label] == value for label, value in wanted.items()])
        return Curves({name: column[keep] for name, column in self.columns.items()})

    def over_training(self, figure: str) -> tuple[Floats, Floats]:
        """Iterations [points] and the figure [seeds, points]; NaN where a run has no entry."""
        iterations, point = np.unique(self.columns["iteration"], return_inverse=True)
        seeds, run = np.unique(self.columns["seed"], return_inverse=True)
        values = np.full((len(seeds), len(iterations)), np.nan)
        values[run, point] = self.columns[figure]
        return iterations, values


@dataclass(frozen=True)
class At:
    """What a rule reaches with a number of answers, over seeds."""

    answers: int
    """That each run could have, and all that asked to the end had."""
    answers_had: Figure
    success_alone: Figure
    success_greedy: Figure
    difference: Figure = UNKNOWN
    """Success alone minus that of the baseline with as many answers, seed by seed; unknown for the baseline itself."""

    @property
    def asked_fewer(self) -> bool:
        """Some runs stopped asking before."""
        return self.answers_had.low < self.answers or self.answers_had.mean < self.answers


@dataclass(frozen=True)
class CellResult:
    """One teacher and one query policy, over all seeds."""

    teacher: str
    query: str
    figures: Mapping[str, Figure]
    seeds: int = 0
    """How many runs the figures are means of; one has no interval."""
    splits: Mapping[str, Mapping[str, Figure]] = field(default_factory=dict)
    """Measures by split, where the task has splits: fractions, lengths in metres."""
    at: tuple[At, ...] = ()
    """By number of answers, in a study that compares rules at equal ones."""
    rule: str = ""
    """The query policy as registered, in such a study."""
    asking: str = "live"

    def figure(self, name: str) -> Estimate:
        """A figure by name; unknown when the study did not record it."""
        return self.figures.get(name, UNKNOWN)

    def measure(self, split: str, name: str) -> Estimate:
        """A measure of a split; unknown when the study did not record it."""
        return self.splits.get(split, {}).get(name, UNKNOWN)


@dataclass(frozen=True)
class Ceiling:
    """What a teacher reaches that is followed at every step."""

    teacher: str
    success: float
    """Share of the episodes."""
    final_distance: float
    """Metres to the goal at the end, mean over the episodes."""


class Look(NamedTuple):
    """What an agent could do at some moment of its training."""

    iteration: int
    answers: float
    """So far."""
    success: float
    """Alone, on the episodes that were looked at."""


@dataclass(frozen=True)
class RunResult:
    """One run of a study on a task with splits, for comparisons seed by seed."""

    teacher: str
    query: str
    seed: int
    answers: float
    """In the whole run."""
    splits: Mapping[str, Mapping[str, float]]
    """Measures by split."""
    looks: Annotated[
        tuple[Look, ...],
        BeforeValidator(lambda looks: [(each["iteration"], each["answers"], each["success_alone"]) for each in looks]),
    ] = ()
    """In the order of training."""


@dataclass(frozen=True)
class TeacherModel:
    """What one trained agent holds about its teachers."""

    teacher: str
    query: str
    seed: int
    members: tuple[str, ...]
    personas: Array
    """[K, persona size]"""
    persona_js: Number
    """Divergence between the behaviours learned for the members, bits; NaN for a single teacher."""
    mixture_js: Number
    """Divergence between the agent's mean policy and the committee's, bits."""
    identity_calibration_error: Number
    """Distance between the predicted and the true chance of each identity; NaN for a single teacher."""


@dataclass(frozen=True)
class ThresholdNote:
    """The threshold of a query policy, and how it was found."""

    value: Annotated[float, Field(alias="threshold")]
    how: str


@dataclass(frozen=True)
class Interactions:
    """What one rule used of one teacher, and its results, over seeds."""

    teacher: str
    query: str
    area_to: float
    """Interactions up to which the area is taken."""
    area: Figure
    """Mean success over these interactions: interquartile mean."""
    success_alone: Figure
    """Interquartile mean."""
    improvement: Figure
    """Probability of a higher success alone than the baseline's."""
    needed: Annotated[
        Mapping[float, tuple[Figure, float]],
        BeforeValidator(lambda entries: {entry["level"]: (entry, entry["reached"]) for entry in entries}),
    ]
    """By level of success: interactions until it was reached, and the share of the runs that did."""
    answers: Mapping[str, Figure]
    """By member of the committee."""
    cost: Mapping[str, Figure]
    """By member of the committee."""
    total_cost: Figure


@dataclass(frozen=True, repr=False)
class StudyRecords:
    """Everything that a study recorded."""

    folder: Path
    """Where its records, tables, figures and report are."""
    task: str
    """As registered."""
    label: str
    """What tables and figures call it: the task's name, or another where the data are not the paper's."""
    seeds: int
    iterations: int
    expectation: str
    """How the expectation over teacher identities was computed."""
    cells: tuple[CellResult, ...]
    metrics: Curves
    samples: Curves
    """Runs that differ only in the number of identity samples, label `samples`; there may be none."""
    objective: Curves
    """The two terms of the query objective of `apil`; there may be none."""
    expectations: Mapping[str, Mapping[str, float]]
    """Intrinsic and extrinsic uncertainty of a perfect copy, by teacher, bits."""
    estimates: Mapping[str, Mapping[str, float]]
    """What the Monte Carlo estimator shows for it on average; empty where the expectation is exact."""
    command: str
    """What was typed for the study; empty if it is not known."""
    models: tuple[TeacherModel, ...]
    thresholds: Mapping[str, ThresholdNote]
    interactions: tuple[Interactions, ...] = ()
    """Success for interactions and costs, of a study of your own; empty for the paper's."""
    unit: str = "bits"
    """Of uncertainties: bits, or the variance of actions scaled to -1 to 1, summed over their numbers."""
    baseline: str = ""
    """The rule that the others of a study of your own are compared with."""
    ceiling: tuple[Ceiling, ...] = ()
    """On the first split; empty where the task has no splits."""
    runs: tuple[RunResult, ...] = ()
    """Empty where the task has no splits."""
    printed: Printed = field(default_factory=dict)
    """Empty where the task or the data are not the paper's."""

    def __repr__(self) -> str:
        return (
            f"<Study of {self.label} in {self.folder}, taught by {', '.join(self.teachers)}, query policies "
            f"{', '.join(self.queries)}: {plural(self.seeds, 'seed')}, {plural(self.iterations, 'iteration')}>"
        )

    @property
    def splits(self) -> list[str]:
        """The splits that agents were evaluated on, the main one first; empty where the task has none."""
        return list(dict.fromkeys(split for cell in self.cells for split in cell.splits))

    @property
    def teachers(self) -> list[str]:
        """The teachers of the study, in the order of tables and figures."""
        return in_order(cell.teacher for cell in self.cells)

    @property
    def queries(self) -> list[str]:
        """The query policies of the study, in the order of tables and figures."""
        return in_order(cell.query for cell in self.cells)

    @property
    def points(self) -> list[int]:
        """The numbers of answers at which rules are compared; empty where they are not."""
        return sorted({at.answers for cell in self.cells for at in cell.at if at.answers})

    def cell(self, teacher: str, query: str) -> CellResult:
        """The cell of a teacher and a query policy; one without figures when the study has none."""
        found = (cell for cell in self.cells if (cell.teacher, cell.query) == (teacher, query))
        return next(found, CellResult(teacher, query, {}))


def in_order(names: Iterable[str]) -> list[str]:
    """Names without repeats: the known ones in their fixed order, then the others as they come."""
    given = list(dict.fromkeys(names))
    known = (*TEACHERS, *QUERIES)
    rank = {name: name if name in known else re.split("[@,]", name)[0] for name in given}  # random@0.1 beside random
    return sorted(given, key=lambda name: known.index(rank[name]) if rank[name] in known else len(known))


def read_study(folder: Path, extras: Extras | None = None) -> StudyRecords:
    """Read the records of a study folder. Only `summary.json` has to be there.

    Without `extras` those of its task count.
    """
    if not folder.is_dir():
        raise ApilError(f"No study folder '{folder}'. Give the folder that a study was written to.")
    if not (folder / "summary.json").is_file():
        raise ApilError(f"No 'summary.json' in '{folder}': it is not the folder of a finished study.")
    try:
        return _study(folder, extras)
    except ApilError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ApilError(
            f"The records in '{folder}' are not as expected: {' '.join(repr(error).split()):.200}. Run the study again."
        ) from error


def _study(folder: Path, extras: Extras | None) -> StudyRecords:
    summary, own, about_teachers, thresholds, evaluations, made = (
        _json(folder / f"{name}.json")
        for name in ("summary", "interactions", "teachers", "thresholds", "evaluations", "study")
    )
    extras = extras or extras_of(summary["task"])
    other_data = extras.other_data(summary)
    return StudyRecords(
        folder=folder,
        task=str(summary["task"]),
        label=other_data or str(summary["task"]),
        printed={} if other_data else extras.printed,
        seeds=int(summary["seeds"]),
        iterations=int(summary["iterations"]),
        expectation=str(summary["expectation"]),
        unit=str(summary.get("unit", "bits")),
        cells=cells_of(summary["cells"]),
        metrics=_curves(folder / CURVES, ("teacher", "query"), METRICS),
        samples=_curves(folder / "samples.csv", ("teacher", "query", "samples"), METRICS),
        objective=_curves(folder / "query_objective.csv", ("teacher", "query"), _OBJECTIVE),
        expectations={entry["teacher"]: entry for entry in about_teachers.get("expectations", [])},
        estimates={entry["teacher"]: entry for entry in about_teachers.get("estimates", [])},
        command=str(made.get("command", "")),
        models=_parsed(tuple[TeacherModel, ...], about_teachers.get("models", [])),
        thresholds=_parsed(dict[str, ThresholdNote], thresholds),
        ceiling=_parsed(tuple[Ceiling, ...], summary.get("teachers", [])),
        runs=_parsed(tuple[RunResult, ...], evaluations.get("runs", [])),
        interactions=_parsed(tuple[Interactions, ...], own.get("entries", [])),
        baseline=str(own.get("baseline", summary.get("baseline", ""))),
    )


def cells_of(entries: Iterable[Mapping[str, Any]]) -> tuple[CellResult, ...]:
    """The entries of `cells` in `summary.json`."""
    return _parsed(tuple[CellResult, ...], [_with_figures(entry) for entry in entries])


def of_cells_alone(folder: Path, label: str, seeds: int, baseline: str, cells: tuple[CellResult, ...]) -> StudyRecords:
    """Records of several tasks together, which have cells and nothing else."""
    none = Curves({})
    return StudyRecords(
        folder=folder,
        task=label,
        label=label,
        seeds=seeds,
        iterations=0,
        expectation="",
        cells=cells,
        metrics=none,
        samples=none,
        objective=none,
        expectations={},
        estimates={},
        command="",
        models=(),
        thresholds={},
        baseline=baseline,
    )


def _parsed(kind: type[Kind], value: Any) -> Kind:
    return TypeAdapter(kind).validate_python(value)


def _with_figures(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of `cells`, in which the figures stand beside the names."""
    figures = {name: value for name, value in entry.items() if isinstance(value, dict) and name != "splits"}
    return {**entry, "figures": figures}


def _json(path: Path) -> dict[str, Any]:
    """A JSON object; empty when the file is absent."""
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ApilError(f"'{path}' is not JSON: {error}. Run the study again.") from error
    if not isinstance(data, dict):
        raise ApilError(f"'{path}' holds a {type(data).__name__}, not an object. Run the study again.")
    cleaned: dict[str, Any] = _cleaned(data)
    return cleaned


def _cleaned(data: Any) -> Any:
    """JSON whose text can be shown."""
    if isinstance(data, dict):
        return {_cleaned(name): _cleaned(value) for name, value in data.items()}
    if isinstance(data, list):
        return [_cleaned(value) for value in data]
    return printable(data) if isinstance(data, str) else data


def _curves(path: Path, labels: Sequence[str], figures: Sequence[str]) -> Curves:
    """Without entries when the file is absent."""
    numbers = ("seed", "iteration", *figures)
    rows = []
    if path.is_file():
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = sorted({*labels, *numbers} - set(reader.fieldnames or ()))
            if missing:
                raise ApilError(f"'{path}' lacks the columns {', '.join(missing)}. Run the study again.")
            rows = list(reader)
    try:
        texts = {name: np.array([printable(row[name]) for row in rows], dtype=np.str_) for name in labels}
        return Curves({**texts, **{name: np.array([float(row[name]) for row in rows]) for name in numbers}})
    except (TypeError, ValueError) as error:
        raise ApilError(f"'{path}' has an entry that is not a number: {error}. Run the study again.") from error
