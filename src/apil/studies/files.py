"""A study as a TOML file: tasks, teachers, query rules and seeds, read and checked."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from annotated_types import Ge, Le
from pydantic import AfterValidator

from apil.errors import ApilError, unknown_name
from apil.learning.build import check_options, committee_of, require_threshold
from apil.query import QUERY_POLICIES, asking_of, asks_on_share, check_asking, needs_threshold, share_of, takes_budget
from apil.runs.calibration import Calibration, threshold_of
from apil.runs.resolve import resolve
from apil.settings import QuerySettings, RunSettings
from apil.settings.record import Count, Distance, Few, FromList, Options, Says, Share, Size, Text, nested, record
from apil.settings.run import ENDLESS, LEAVES, SHARE
from apil.studies.plan import Cell

_REACH = (0.5, 0.9)
_OF_A_RULE = ("task", "teacher", "query", "seed", "threshold", "budget", "query_options", "options")
SHARED = tuple(name for name in LEAVES if name not in _OF_A_RULE)
"""Settings that all runs of a study share, by their typed names."""


def _one_folder(text: str) -> str:
    if not text or any(mark in text for mark in "/\\:") or text.startswith("."):
        raise ValueError
    return text


Label = Annotated[Text, AfterValidator(_one_folder), Says("give a name that can be the name of a folder")]


@record
class Rule:
    """A query policy as it takes part in a study."""

    query: Text
    label: Label = ""
    """Its name in tables and figures; its own, with the budget, if not given."""
    threshold: Distance | None = None
    budget: Share | None = None
    asking: Literal["live", "review"] | None = None
    """That of the shared settings if not given."""
    answer_budget: Count | None = None
    """That of the shared settings if not given; the most of the study's `answers` that the rule is compared at."""
    options: Options = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        QUERY_POLICIES.check(self.query)
        check_asking(self.query, self.asking)
        if self.threshold is not None and not needs_threshold(self.query):
            raise ApilError(f"'{self.query}' has no threshold: leave it out.")
        if self.answer_budget is not None and self.query == "never":
            raise ApilError("'never' asks nobody and has no answer_budget: leave it out.")
        if not self.label:
            own = self.query if self.budget is None else f"{self.query}@{self.budget:g}"
            object.__setattr__(self, "label", own if self.asking != "review" else f"{own}, review")

    def asking_of(self, shared: str) -> str:
        """When it puts its questions; `shared` is what the settings of all runs say."""
        return self.asking or asking_of(self.query) or shared

    def how(self, gate: QuerySettings) -> str:
        """Where the gate of a run comes from, in one sentence."""
        if gate.budget is not None:
            return "A budget, the share of training steps to ask on, in the place of a threshold."
        return "Set in the study's file." if self.threshold is not None else "As calibrated, or its default."


@record
class TaskEntry:
    """A task of a study."""

    name: Text
    label: Label = ""
    """Its name in the report, and of its folder; its own if not given."""
    options: Options = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", _one_folder(self.name))


_Rules = Annotated[tuple[Annotated[Rule, nested(Rule, "query")], ...], FromList, Says("give a list of rules")]
_Tasks = Annotated[tuple[Annotated[TaskEntry, nested(TaskEntry, "name")], ...], FromList, Says("give a list of tasks")]
_Names = Annotated[tuple[Label, ...], FromList, Says("give a list of names")]


@record
class StudyFile:
    """What a study file asks for."""

    tasks: _Tasks
    teachers: _Names
    rules: _Rules
    settings: Annotated[Mapping[Text, Any], Says("give a table")] = field(default_factory=dict, hash=False)
    """Settings of a run that all runs share, by their typed names."""
    as_printed: bool = False
    """Runs learn as the paper prints it: each answer once, its sizes and its rate."""
    answers: Annotated[tuple[Count, ...], FromList, Says("give a list of whole numbers from 1 up")] = ()
    """Numbers of answers at which rules are compared, ascending: each rule has a run for each of them, which asks
    exactly that many and learns from them to its end."""
    seeds: Few = 5
    first_seed: Annotated[int, Ge(0), Le(1_000_000), Says("give a whole number from 0 to 1,000,000")] = 0
    episodes: Size = 1000
    """Of evaluation, for each run."""
    baseline: Text = ""
    """The label of the rule that the others are compared with; the first one if not given."""
    reach: Annotated[tuple[Share, ...], FromList, Says("give a list of shares above 0, at most 1")] = _REACH
    """Levels of success for which the interactions needed are reported."""
    area_to: Count | None = None
    """Interactions up to which the area under the curve is taken; those of the rule that asked most if not given."""
    costs: Annotated[Mapping[Text, Distance], Says("give each member a finite price from 0 up")] = field(
        default_factory=dict, hash=False
    )
    """The price of an answer, by member of a committee; 1 for who is not named."""

    def __post_init__(self) -> None:
        for key in ("tasks", "teachers", "rules"):
            if not getattr(self, key):
                raise ApilError(f"'{key}' is empty: give a list with at least one entry.")
        for what, labels in (("rules", [r.label for r in self.rules]), ("tasks", [t.label for t in self.tasks])):
            twice = [label for label in labels if labels.count(label) > 1]
            if twice:
                raise ApilError(f"Two {what} are called '{twice[0]}': give each a 'label' of its own.")
        for teacher in self.teachers:
            if self.teachers.count(teacher) > 1:
                raise ApilError(f"The teacher '{teacher}' is named twice: leave one out.")
        labels = [rule.label for rule in self.rules]
        if self.baseline and self.baseline not in labels:
            raise unknown_name("baseline", self.baseline, labels)
        object.__setattr__(self, "baseline", self.baseline or labels[0])
        for name in self.settings:
            if name not in SHARED:
                raise unknown_name("key of [settings]", name, SHARED)
        if self.answers:
            self._check_answers()

    def _check_answers(self) -> None:
        if list(self.answers) != sorted(set(self.answers)):
            raise ApilError(f"answers is {list(self.answers)}: give the numbers in ascending order, each once.")
        if "answer_budget" in self.settings:
            raise ApilError("answers gives every run its budget of answers: leave answer_budget out of [settings].")
        if self.area_to is not None or self.reach != _REACH or self.costs:
            raise ApilError("reach, area_to and costs do not go with answers: leave them out.")
        for rule in self.rules:
            if rule.answer_budget is not None and rule.answer_budget < self.answers[0]:
                allowed = f"give at least {self.answers[0]}, the first of answers"
                raise ApilError(f"The rule '{rule.label}' has an answer_budget of {rule.answer_budget}: {allowed}.")

    @property
    def run_seeds(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)

    def points(self, rule: Rule) -> list[int | None]:
        """The numbers of answers that a rule has runs for; 0 where it asks nobody, None where the study has none."""
        if not self.answers:
            return [None]
        most = rule.answer_budget or self.answers[-1]
        return [0] if rule.query == "never" else [point for point in self.answers if point <= most]


Kind = TypeVar("Kind")


def read_study_file(path: Path) -> StudyFile:
    """The study that a file describes; errors name the file, the key and what is allowed."""
    if not path.is_file():
        raise ApilError(f"There is no study file {path}.")
    return read_record(path, StudyFile)


def read_record(path: Path, kind: type[Kind]) -> Kind:
    """A record from a TOML file."""
    values = read_values(path)
    with naming(path):
        return kind(**values)


def read_values(path: Path) -> dict[str, Any]:
    """What a TOML file holds."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApilError(f"{path} is not TOML: {str(error).splitlines()[0]}.") from error


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Puts the file in front of what is wrong in it."""
    try:
        yield
    except ApilError as error:
        raise ApilError(f"{path}: {error}") from error


def own_plan(
    study: StudyFile, task: TaskEntry, calibration: Calibration, source: Path, beside: Sequence[str] = ()
) -> list[Cell]:
    """The runs of a study on one of its tasks. `beside` are query policies of other runs with the same settings, some
    of which may be theirs alone."""
    with naming(source):
        settings = {name: value for name, value in study.settings.items() if name != "answer_budget"}
        rules = [*(rule.query for rule in study.rules), *beside]
        base = resolve(
            task.name,
            study.teachers[0],
            "never",
            {**task.options, **settings},
            calibration,
            rules,
            as_printed=study.as_printed,
        ).settings
        for teacher in study.teachers:
            committee_of(base.changed(teacher=teacher))
        gated = [
            (rule, point, _gated(base, rule, calibration, study, point))
            for rule in study.rules
            for point in study.points(rule)
        ]
        return [
            Cell(run.changed(teacher=teacher, seed=seed), label=rule.label, point=point)
            for teacher, (rule, point, run), seed in product(study.teachers, gated, study.run_seeds)
        ]


def finished_part(study: StudyFile, finished: Mapping[str, Sequence[Cell]]) -> tuple[StudyFile, dict[str, list[Cell]]]:
    """The part of a study that can be compared while the rest is trained: tasks of which there are finished runs, by
    their labels, rules that are finished with every teacher, and the seeds that all of these have."""
    tasks = [task for task in study.tasks if finished[task.label]]
    seeds: dict[str, set[int]] = {}
    for rule in study.rules:
        wanted = product([task.label for task in tasks], study.teachers, study.points(rule))
        have = [
            {c.config.seed for c in finished[label] if (c.query, c.config.teachers.name, c.point) == (rule.label, *own)}
            for label, *own in wanted
        ]
        if have and set.intersection(*have):
            seeds[rule.label] = set.intersection(*have)
    common = set.intersection(*seeds.values()) if seeds else set()
    if not common or study.baseline not in seeds:
        raise ApilError(
            f"Too little is finished to compare rules with '{study.baseline}': wait, or leave --so-far out."
        )
    rules = [rule for rule in study.rules if rule.label in seeds]
    kept = {
        task.label: [c for c in finished[task.label] if c.query in seeds and c.config.seed in common] for task in tasks
    }
    return replace(study, tasks=tuple(tasks), rules=tuple(rules), seeds=len(common)), kept


def _gated(base: RunSettings, rule: Rule, calibration: Calibration, study: StudyFile, point: int | None) -> RunSettings:
    answers = point or rule.answer_budget or study.settings.get("answer_budget")
    changes: dict[str, Any] = {"asking": rule.asking_of(base.query.asking)}
    if answers is not None and "iterations" not in study.settings:
        changes["iterations"] = ENDLESS
    if rule.query == "never":
        if answers is not None or point is not None:  # there is nothing to learn from, however long it goes on
            changes["iterations"] = base.log_every
        answers = None
    threshold, share = rule.threshold, rule.budget
    if threshold is None and share is None:
        if takes_budget(rule.query) and (answers is not None or asks_on_share(rule.query)):
            share = SHARE if answers is None else share_of(rule.query, answers)
        else:
            threshold = threshold_of(calibration, base.task.name, rule.query)
    require_threshold(base.task.name, rule.query, threshold, share)
    gate = {"threshold": threshold, "budget": share, "answer_budget": answers, "query_options": dict(rule.options)}
    run = base.changed(query=rule.query, **gate, **changes)
    check_options(run.query)
    return run
