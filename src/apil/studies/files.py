"""A study of your own as a TOML file: tasks, teachers, query rules and seeds, read and checked."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from apil.config import SCHEMA, RunConfig
from apil.errors import ApilError, unknown_name
from apil.learning.build import committee_of, make_task, require_threshold
from apil.query import QUERY_POLICIES, needs_threshold
from apil.runs.calibration import Calibration, threshold_of
from apil.studies.plan import Cell

_KEYS = ("tasks", "teachers", "rules", "seeds", "episodes", "baseline", "reach", "area_to", "costs", "settings")
_RULE_KEYS = ("query", "label", "threshold", "budget", "options")
_SETTINGS = tuple(
    each.name
    for each in fields(RunConfig)
    if each.name not in ("task", "teacher", "query", "seed", "threshold", "budget", "query_options", "options")
)
"""Settings of a run that all runs of a study share."""


@dataclass(frozen=True)
class Rule:
    """A query policy as it takes part in a study."""

    label: str
    """Its name in tables and figures."""
    query: str
    threshold: float | None = None
    budget: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def how(self) -> str:
        """Where the gate of a run comes from, in one sentence."""
        if self.budget is not None:
            return "A budget, the share of training steps to ask on, in the place of a threshold."
        return "Set in the study's file." if self.threshold is not None else "As calibrated, or its default."


@dataclass(frozen=True)
class TaskEntry:
    """A task of a study."""

    name: str
    label: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class OwnStudy:
    """What a study file asks for."""

    source: Path
    """The file."""
    tasks: tuple[TaskEntry, ...]
    teachers: tuple[str, ...]
    rules: tuple[Rule, ...]
    settings: Mapping[str, Any]
    seeds: int = 5
    episodes: int = 1000
    """Of evaluation, for each run."""
    baseline: str = ""
    """The label of the rule that the others are compared with; the first one if not given."""
    reach: tuple[float, ...] = (0.5, 0.9)
    """Levels of success for which the interactions needed are told."""
    area_to: int | None = None
    """Interactions up to which the area under the curve is taken; those of the rule that asked most if not given."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """The price of an answer, by member of a committee; 1 for who is not named."""


def read_own_study(path: Path) -> OwnStudy:
    """The study that a file describes; mistakes are told with the file, the key and what is allowed."""
    if not path.is_file():
        raise ApilError(f"There is no study file {path}.")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ApilError(f"{path} is not TOML: {error}.") from error
    with _naming(path):
        return _study(path, values)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Puts the file in front of what is wrong in it."""
    try:
        yield
    except ApilError as error:
        raise ApilError(f"{path}: {error}") from error


def _study(path: Path, values: dict[str, Any]) -> OwnStudy:
    _known(values, _KEYS, "key")
    for key in ("tasks", "teachers", "rules"):
        if not isinstance(values.get(key), list) or not values[key]:
            raise ApilError(f"'{key}' is {values.get(key)!r:.60}: give a list with at least one entry.")
    rules = tuple(_rule(entry, place) for place, entry in enumerate(values["rules"], 1))
    labels = [rule.label for rule in rules]
    for label in labels:
        if labels.count(label) > 1:
            raise ApilError(f"Two rules are called '{label}': give each a 'label' of its own.")
    baseline = values.get("baseline", labels[0])
    if baseline not in labels:
        raise unknown_name("baseline", str(baseline), labels)
    settings = {name: _setting(name, value) for name, value in _table(values, "settings").items()}
    plain = {name: _whole(values, name) for name in ("seeds", "episodes", "area_to") if name in values}
    return OwnStudy(
        source=path,
        tasks=tuple(_task(entry, place) for place, entry in enumerate(values["tasks"], 1)),
        teachers=tuple(dict.fromkeys(_text(entry, "teachers") for entry in values["teachers"])),
        rules=rules,
        settings=settings,
        baseline=baseline,
        reach=_levels(values.get("reach", [0.5, 0.9])),
        costs={name: _cost(name, value) for name, value in _table(values, "costs").items()},
        **plain,
    )


def _setting(name: str, value: Any) -> Any:
    """A setting of all runs, as `RunConfig` takes it."""
    if name not in _SETTINGS:
        raise unknown_name("key of [settings]", name, _SETTINGS)
    try:
        config = RunConfig.from_json({"schema": SCHEMA, "task": "", "teacher": "", "query": "", name: value})
    except ApilError as error:
        told = f"'{name}' is {value!r:.60}: not a value of this setting" if "config" in str(error) else str(error)
        raise ApilError(f"[settings]: {told}") from error
    return getattr(config, name)


def _known(table: Mapping[str, Any], allowed: Iterable[str], what: str) -> None:
    for name in table:
        if name not in allowed:
            raise unknown_name(what, name, allowed)


def _table(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = values.get(name, {})
    if not isinstance(found, dict):
        raise ApilError(f"'{name}' is {found!r:.60}: give a table, [{name}].")
    return found


def _rule(entry: Any, place: int) -> Rule:
    where = f"rule {place}"
    if isinstance(entry, str):
        entry = {"query": entry}
    if not isinstance(entry, dict) or not isinstance(entry.get("query"), str):
        raise ApilError(f"{where} is {entry!r:.60}: give the name of a query policy, or a table with 'query'.")
    _known(entry, _RULE_KEYS, f"key of {where}")
    query = QUERY_POLICIES.check(entry["query"])
    budget, threshold = (_number(entry, name, where) for name in ("budget", "threshold"))
    if threshold is not None and not needs_threshold(query):
        raise ApilError(f"{where}: '{query}' has no threshold, leave it out.")
    label = entry.get("label", query if budget is None else f"{query}@{budget:g}")
    return Rule(_text(label, f"label of {where}"), query, threshold, budget, _table(entry, "options"))


def _task(entry: Any, place: int) -> TaskEntry:
    if isinstance(entry, str):
        entry = {"name": entry}
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ApilError(f"task {place} is {entry!r:.60}: give the name of a task, or a table with 'name'.")
    _known(entry, ("name", "label", "options"), f"key of task {place}")
    label = _text(entry.get("label", entry["name"]), f"label of task {place}")
    return TaskEntry(entry["name"], label, _table(entry, "options"))


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value or "/" in value:
        raise ApilError(f"{where}: {value!r:.60} is not a name.")
    return value


def _number(entry: Mapping[str, Any], name: str, where: str) -> float | None:
    value = entry.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ApilError(f"{name} of {where} is {value!r:.60}: give a number.")
    return None if value is None else float(value)


def _whole(values: Mapping[str, Any], name: str) -> int:
    value = values[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ApilError(f"'{name}' is {value!r:.60}: give a whole number from 1 up.")
    return value


def _cost(member: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ApilError(f"The cost of '{member}' is {value!r:.60}: give a number from 0 up.")
    return float(value)


def _levels(values: Any) -> tuple[float, ...]:
    good = isinstance(values, list) and all(
        isinstance(v, int | float) and not isinstance(v, bool) and 0 < v <= 1 for v in values
    )
    if not good:
        raise ApilError(f"'reach' is {values!r:.60}: give a list of shares above 0, up to 1.")
    return tuple(float(value) for value in values)


def own_plan(study: OwnStudy, task: TaskEntry, calibration: Calibration) -> list[Cell]:
    """All runs of one task of a study."""
    with _naming(study.source):
        base = RunConfig(task=task.name, teacher=study.teachers[0], query="never", options=dict(task.options))
        made = make_task(base)
        base = replace(base, **{"batch": made.batch, "epsilon": made.success_distance, **study.settings})
        for teacher in study.teachers:
            committee_of(replace(base, teacher=teacher))
        gated = [(rule, _gated(base, rule, calibration)) for rule in study.rules]
        return [
            Cell(replace(config, teacher=teacher, seed=seed), label=rule.label)
            for teacher, (rule, config), seed in product(study.teachers, gated, range(study.seeds))
        ]


def _gated(base: RunConfig, rule: Rule, calibration: Calibration) -> RunConfig:
    """The settings of the runs of a rule."""
    threshold = rule.threshold
    if threshold is None and rule.budget is None:
        threshold = threshold_of(calibration, base.task, rule.query)
    require_threshold(base.task, rule.query, threshold, rule.budget)
    options = dict(rule.options)
    return replace(base, query=rule.query, threshold=threshold, budget=rule.budget, query_options=options)
