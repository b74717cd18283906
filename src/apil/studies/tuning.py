"""A search for settings as data: what is searched, on which seeds, and how good a choice of settings is."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from apil.errors import ApilError, unknown_name
from apil.learning.trainer import Trainer
from apil.runs.calibration import load_calibration
from apil.settings.record import Count, Few, Says, Size, described, record, shown
from apil.studies.files import SHARED, StudyFile, naming, own_plan, read_values
from apil.studies.kind import kind_of
from apil.studies.plan import Cell, stacks

RUNGS = (1 / 9, 1 / 3, 1.0)
"""Shares of a training after which it is measured. The best third of the trials advances from each to the next."""
REDUCTION = 3

Report = Callable[[int, float], bool]
"""Takes a rung and the score there; returns whether to give up the trial."""
Values = Mapping[str, Any]
"""Settings by name, as a trial has them."""


@record
class TuneOptions:
    """How settings are searched: the table [tune] of a file."""

    trials: Count = 20
    """Choices of settings that are tried."""
    seeds: Few = 2
    """Runs of each rule with each teacher on each task, for each trial."""
    first_seed: Annotated[int, Ge(0), Le(1_000_000), Says("give a whole number from 0 to 1,000,000")] = 100_000
    """Of these. They must not be among the seeds that the study reports."""
    episodes: Size = 200
    """Of evaluation, for each run at each rung."""
    measure: Literal["success_alone", "success_greedy"] = "success_alone"
    """The figure to raise, as a mean over all runs of a trial."""
    search_seed: Annotated[int, Ge(0), Le(1_000_000), Says("give a whole number from 0 to 1,000,000")] = 0
    """Of the search itself."""


@dataclass(frozen=True)
class Span:
    """Numbers from `low` to `high`, whole ones if both are."""

    low: float
    high: float
    log: bool = False
    """Drawn evenly in the logarithm."""

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)


@dataclass(frozen=True)
class Search:
    """What a file asks for."""

    study: StudyFile
    options: TuneOptions
    space: Mapping[str, Span | tuple[Any, ...]]
    """Settings by name: a span of numbers, or choices."""
    source: Path
    written: Mapping[str, Any]
    """The keys of the study, as they are in the file."""

    def cells(self, values: Values) -> list[Cell]:
        """The runs of a trial."""
        tried = replace(
            self.study,
            settings={**self.study.settings, **values},
            seeds=self.options.seeds,
            first_seed=self.options.first_seed,
        )
        return [cell for task in tried.tasks for cell in own_plan(tried, task, load_calibration(None), self.source)]

    def score(self, values: Values, report: Report) -> float:
        """Trains the runs of a trial and measures them at every rung; the last score."""
        made = stacks(self.cells(values), workers=1)
        score = 0.0
        with ExitStack() as opened:
            trainers = [Trainer([cell.config for cell in stack]) for stack in made]
            for trainer in trainers:
                opened.callback(trainer.close)
            for rung, share in enumerate(RUNGS, start=1):
                measured = [own for trainer in trainers for own in self._measured(trainer, share)]
                score = sum(measured) / len(measured)
                if report(rung, score):
                    break
        return score

    def _measured(self, trainer: Trainer, share: float) -> list[float]:
        """The measure of each run of a stack, after a share of its training."""
        budgets = [config.query.answer_budget for config in trainer.configs]
        known = [budget for budget in budgets if budget is not None]
        all_of_it = sum(known) / len(known) if len(known) == len(budgets) else trainer.configs[0].iterations
        # What follows the last answer belongs to the last rung.
        while not trainer.done and (share == 1.0 or trainer.progress < share * all_of_it):
            trainer.step()
        kind = kind_of(trainer.configs[0].task.name)
        if trainer.done:
            found = kind.evaluate_alone(trainer.trained_agents(), self.options.episodes)
        else:
            with trainer.averaged() as agents:
                found = kind.evaluate_alone(agents, self.options.episodes)
        return [float(own[self.options.measure]) for own in found]


def read_search(path: Path) -> Search:
    """The search that a file describes: a study file with the tables [tune] and [search]."""
    if not path.is_file():
        raise ApilError(f"There is no file {path}.")
    values = read_values(path)
    with naming(path):
        tune, space = values.pop("tune", {}), values.pop("search", {})
        if not isinstance(tune, dict) or not isinstance(space, dict) or not space:
            raise ApilError("A search has a table [search] with a setting or more, and may have a table [tune].")
        for name in tune:
            if name not in described(TuneOptions):
                raise unknown_name("key of [tune]", name, described(TuneOptions))
        for name in space:
            if name not in SHARED:
                raise unknown_name("setting in [search]", name, SHARED)
        study, options = StudyFile(**values), TuneOptions(**tune)
        _check_seeds(study, options)
        found = Search(study, options, {name: _part(name, part) for name, part in space.items()}, path, values)
    for end in (0, -1):  # what no run can have is refused before the first is trained
        found.cells({name: _end(part, end) for name, part in found.space.items()})
    return found


def _check_seeds(study: StudyFile, options: TuneOptions) -> None:
    tried = range(options.first_seed, options.first_seed + options.seeds)
    reported = study.run_seeds
    if set(tried) & set(reported):
        raise ApilError(
            f"[tune] tries seeds {tried[0]} to {tried[-1]}, and the study reports {reported[0]} to {reported[-1]}: "
            "what is chosen on reported seeds looks better than it is. Give [tune] another first_seed."
        )


def _part(name: str, part: Any) -> Span | tuple[Any, ...]:
    allowed = "give a list of choices, or { low = ..., high = ..., log = true }"
    if isinstance(part, list) and len(part) > 1:
        return tuple(part)
    if isinstance(part, dict) and {"low", "high"} <= set(part) <= {"low", "high", "log"}:
        low, high, log = part["low"], part["high"], part.get("log", False)
        numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high))
        if numbers and low < high and isinstance(log, bool) and (low > 0 or not log):
            return Span(low, high, log)
    raise ApilError(f"[search] {name} is {shown(part)}: {allowed}, low below high, and above 0 with log.")


def _end(part: Span | tuple[Any, ...], end: int) -> Any:
    return part[end] if isinstance(part, tuple) else (part.low, part.high)[end]


def as_toml(values: Mapping[str, Any]) -> str:
    """A study as TOML: keys first, then tables."""
    plain = {name: value for name, value in values.items() if not isinstance(value, Mapping)}
    lines = [f"{name} = {_inline(value)}" for name, value in plain.items()]
    for name, table in values.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{_key(name)}]", *(f"{_key(key)} = {_inline(value)}" for key, value in table.items())]
    text = "\n".join(lines) + "\n"
    assert tomllib.loads(text) == values
    return text


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_inline(own)}" for key, own in value.items()) + " }"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return json.dumps(value)


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else json.dumps(name)
