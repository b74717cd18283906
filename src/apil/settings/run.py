"""The settings of a run: nested records, from which the command line, files, keywords and stacks are derived.

A setting is added by one field here. Each has one name wherever it is typed: as an option of the command line, in
TOML, as a keyword. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le

from apil.errors import ApilError, unknown_name
from apil.settings.record import (
    Above,
    Count,
    Distance,
    FromList,
    Options,
    Rate,
    Says,
    Seed,
    Share,
    Size,
    Text,
    Whole,
    default_of,
    described,
    record,
    shown,
)

SCHEMA = 4
"""Of run folders; raised with the first new setting after a release, which an older apil could not read."""

_Votes = Annotated[int, Ge(1), Le(10_000), Says("give a whole number from 1 to 10,000")]
Expectation = Literal["monte-carlo", "exact"]


class Typed(str):
    """The name under which a setting is typed, where it is not that of its field."""

    __slots__ = ()


class PerRun:
    """Marks a setting that may differ between the runs of a stack. All others must be equal."""


@record
class TaskSettings:
    """The task."""

    name: Annotated[Text, Typed("task")]
    """See `apil list`."""
    options: Annotated[Options, Typed("options")] = field(default_factory=dict, hash=False)
    """Settings of the task itself, by name."""


@record
class TeacherSettings:
    """Who answers."""

    name: Annotated[Text, Typed("teacher"), PerRun]
    """A name from `apil list`, or members joined by '+', for example first+last+uniform."""
    weights: Annotated[tuple[float, ...] | None, FromList, PerRun, Says("give a probability for each member")] = None
    """Probability of each member of the committee; equal if not given."""
    selection: Annotated[Literal["episode", "query"] | None, PerRun] = None
    """Whether a member is drawn for each episode or for each query; the committee's own rule if not given."""
    deadline: Annotated[Above | None, Typed("teacher_deadline")] = None
    """Seconds a teacher has for one batch of answers; no limit if not given."""
    on_error: Annotated[Literal["stop", "skip"], Typed("on_teacher_error")] = "stop"
    """When a teacher fails, hangs or gives an invalid answer: stop the run, or skip the question."""


@record
class WhomSettings:
    """Whom to ask, and whom to act like."""

    name: Annotated[Text, Typed("select"), PerRun] = "environment"
    """Which available teacher is asked; see `apil list`. `environment` leaves it to the teachers, as in the paper."""
    switch_cost: Annotated[Distance, PerRun] = 0.0
    """Cost of asking another teacher than the one who answered last in an episode."""
    acting: Annotated[Literal["as-answered", "by-skill"], PerRun] = "as-answered"
    """Whom the agent acts like: each teacher as often as it answers in such states (the paper's way), or the skilled
    ones, from whom it then learns most."""
    options: Annotated[Options, Typed("select_options"), PerRun] = field(default_factory=dict, hash=False)
    """Settings of the selector itself, by name."""


@record
class QuerySettings:
    """When to ask."""

    name: Annotated[Text, Typed("query"), PerRun]
    """See `apil list`."""
    threshold: Annotated[Distance | None, PerRun] = None
    """The rule's threshold, or the probability of `random`; the calibrated one if not given."""
    budget: Annotated[Share | None, PerRun] = None
    """The share of steps to ask on, for example 0.1, in place of a threshold."""
    answer_budget: Annotated[Count | None, PerRun] = None
    """The total number of answers. When they are spent, learning continues until the loss on held-out answers no longer
    improves; then the run ends."""
    stop: Annotated[Literal["never", "when-flat"], PerRun] = "never"
    """When to stop asking before the budget is spent: `when-flat` stops once doubling the answers is expected to bring
    less than two points of success alone, estimated from looks. Learning then continues as after a spent budget."""
    patience: Annotated[Count | None, PerRun] = None
    """Answers for which the outlook must stay flat before `when-flat` stops. Default: 0, as two flat looks in a row are
    needed anyway."""
    asking: Literal["live", "review"] = "live"
    """A live question is put while the agent waits, and the answer is executed. A review lets the agent finish the
    episode alone and then asks about states of it; no answer is executed."""
    sigma: Annotated[float, Gt(1), Le(1e6), Says("progress needs a factor above 1, at most 1e6")] = 2.0
    """APIL: progress means that the distance shrinks by this factor."""
    epsilon: Distance = 0.0
    """APIL: a final distance up to this is a good end; the task's own if not given."""
    gap: Distance | Literal["estimate"] = 0.0
    """APIL: d*_T, the final distance of an agent that always follows the teachers, subtracted from every distance;
    `estimate` takes the mean over the training episodes in which they were followed at every step."""
    options: Annotated[Options, Typed("query_options"), PerRun] = field(default_factory=dict, hash=False)
    """Settings of the rule itself, by name."""

    def __post_init__(self) -> None:
        if self.name in ("random", "random-review", "errpred") and self.threshold is not None and self.threshold > 1:
            raise ApilError(f"threshold is {self.threshold:g}: for {self.name} it is a probability, from 0 to 1.")
        if self.budget is not None and self.threshold is not None:
            raise ApilError("A query policy has a threshold or a budget, not both: leave one out.")
        if self.answer_budget is not None and self.name == "never":
            raise ApilError("answer-budget does not go with the query policy 'never', which asks nobody: leave it out.")
        if self.stop == "when-flat" and self.name == "never":
            raise ApilError("stop when-flat does not go with the query policy 'never', which asks nobody.")
        if self.patience is not None and self.stop != "when-flat":
            raise ApilError(
                f"patience is {self.patience} and nothing stops early: give stop when-flat, or leave it out."
            )


@record
class ModelSettings:
    """What is learned; the defaults are the sizes of the paper's appendix for GRID."""

    encode: Annotated[int, Ge(0), Le(1_000_000), Says("give a whole number from 0 to 1,000,000")] = 0
    """Units of a layer that encodes the state before dropout, learned with the policy; 0 for none. A task with an
    encoder of its own has that instead."""
    standardise: bool = False
    """Scale every feature to mean 0 and variance 1, estimated from the observations so far."""

    hidden: Size = 100
    """Width of the hidden layer of every network."""
    persona: Size = 50
    """Length of a persona vector."""
    dropout: Rate = 0.2
    """Dropout rate at the input of the policy."""
    models: _Votes = 10
    """N2: the number of dropout masks, the models of the ensemble."""
    expectation: Annotated[Expectation, PerRun] = "exact"
    """How the expectation over identities is taken: a sum over all teachers, or the paper's samples."""
    samples: Annotated[_Votes, PerRun] = 5
    """N1: identities drawn for each model under monte-carlo."""

    @property
    def drawn(self) -> int:
        """N1, or 0 for the exact expectation over identities."""
        return self.samples if self.expectation == "monte-carlo" else 0


@record
class LearnerSettings:
    """How it is learned."""

    batch: Size = 1
    """Episodes in an iteration; the task's own number if not given."""
    learning_rate: Annotated[float, Gt(0), Le(1e38), Says("give a number above 0")] = 1e-3
    """Learning rate of every part."""
    optimizer: Literal["adam", "muon"] = "adam"
    """Optimiser of the policy: Adam (Kingma and Ba 2015), or Muon (Jordan et al. 2024) for its weight matrices."""
    warmup: Whole = 0
    """Linear warm-up steps, then constant."""
    clip: Distance = 0.0
    """The policy's gradient is clipped to this norm; 0 for no clipping."""
    average: Rate = 0.0
    """Decay of the moving average of the weights, which is used in evaluation; 0 for none."""
    updates: Annotated[int, Ge(1), Le(10_000), Says("give a whole number from 1 to 10,000")] = 1
    """Gradient steps per iteration, on batches from the store of answers; 1 without replay."""
    replay: Size | Literal[0] = 0
    """Answers in a batch from the store (episodes, for models that remember); 0 keeps no store and learns once from
    the fresh episodes, as the paper prints it."""
    recent: Rate = 0.0
    """The share of a batch that is drawn from the newest answers, as many as a batch has; the rest is uniform,
    and so is all of it in iterations that bring no answer."""
    capacity: Count = 1_000_000
    """Number of newest answers that are learned from; all answers are kept on disk."""
    window: Whole = 0
    """How many of the newest training episodes query policies learn from, with as many steps as the model makes from
    the store; 0 for one step from the fresh episodes."""
    validation: Rate = 0.0
    """The share of the answers that is held out, to detect overfitting."""

    def __post_init__(self) -> None:
        if not self.replay and (self.updates > 1 or self.recent or self.window or self.validation):
            raise ApilError(
                "updates, recent, window and validation need a store of answers: give replay, for example 128."
            )


@record
class RunSettings:
    """Everything that determines a run. The same settings on the same machine give the same bytes."""

    task: TaskSettings
    teachers: TeacherSettings
    query: QuerySettings
    whom: WhomSettings = field(default_factory=WhomSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    learner: LearnerSettings = field(default_factory=LearnerSettings)
    seed: Annotated[Seed, PerRun] = 0
    """Seeds all randomness of the run."""
    iterations: Count = 1000
    """Batches of episodes. Can be raised with --resume."""
    log_every: Count = 20
    """Iterations between two rows of metrics."""
    save_every: Annotated[Count, PerRun] = 200
    """Iterations between two checkpoints."""
    looks: Annotated[int, Ge(0), Le(100_000), Says("give a whole number from 0 to 100,000")] = 0
    """Episodes of a look at success alone, which asks nobody and changes nothing; looks are taken at 10, 14, 20, 28, 40
    answers and so on. They say what more answers would bring. 0 takes none; `when-flat` takes 50 unless given."""
    walks: Annotated[int, Ge(0), Le(1000), Says("give a whole number from 0 to 1,000")] = 0
    """Episodes in flight at once, for slow teachers: each waits for its own answer, the others and learning continue.
    0 steps a batch together and waits for all of its answers."""
    answers: bool = True
    """Write every question and answer to answers.jsonl; a resumed run never asks them again."""

    def __post_init__(self) -> None:
        if self.query.stop == "when-flat" and not self.looks:
            raise ApilError(
                "stop when-flat goes by looks at success alone, and looks is 0: give looks, for example 50."
            )

    @staticmethod
    def of(task: str, teacher: str, query: str, **settings: Any) -> RunSettings:
        """The settings of a run by their typed names; what is not given has its default."""
        return _nested({"task": task, "teacher": teacher, "query": query, **settings})

    def changed(self, **settings: Any) -> RunSettings:
        """A checked copy with other values, by their typed names."""
        groups: dict[str, dict[str, Any]] = {}
        for name, value in settings.items():
            leaf = leaf_of(name)
            groups.setdefault(leaf.group, {})[leaf.field] = value
        own = groups.pop("", {})
        return replace(self, **{group: replace(getattr(self, group), **new) for group, new in groups.items()}, **own)

    def value(self, name: str) -> Any:
        """A setting by its typed name."""
        leaf = leaf_of(name)
        return getattr(getattr(self, leaf.group) if leaf.group else self, leaf.field)

    def flat(self) -> dict[str, Any]:
        """All settings by their typed names."""
        return {name: self.value(name) for name in LEAVES}

    def shape(self) -> tuple[Any, ...]:
        """What runs of one stack have in common."""
        return tuple(_frozen(self.value(name)) for name, leaf in LEAVES.items() if not leaf.per_run)

    def to_json(self) -> dict[str, Any]:
        """Plain nested values for a JSON file."""
        groups = {
            part.name: {own.name: getattr(getattr(self, part.name), own.name) for own in fields(_GROUPS[part.name])}
            if part.name in _GROUPS
            else getattr(self, part.name)
            for part in fields(RunSettings)
        }
        return {"schema": SCHEMA, **groups}

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> RunSettings:
        """The settings back from `to_json`, or from the flat form of schema 1."""
        values = dict(values)
        schema = values.pop("schema", None)
        if type(schema) is not int or not 1 <= schema <= SCHEMA:
            newer = type(schema) is int and schema > SCHEMA
            remedy = f"a newer apil (schema {schema}): upgrade apil" if newer else "something else: use another folder"
            raise ApilError(f"The run's config was written by {remedy}.")
        try:
            return _nested(values if schema == 1 else _flattened(values))
        except ApilError as error:
            raise ApilError(f"Not a run's config: {error} Restore it or use another folder.") from None

    def identity(self) -> dict[str, Any]:
        """What names a run in folders and checkpoints: the flat form of schema 1, so that older ones stay valid.

        A setting that schema 1 did not have is left out where it has its default.
        """
        known = self.flat()
        unset = [name for name in _SINCE_SCHEMA_1 if known[name] == LEAVES[name].default]
        return {"schema": 1, **{name: value for name, value in known.items() if name not in unset}}


LEARNING: dict[str, Any] = {
    "batch": 4,
    "updates": 10,
    "replay": 128,
    "window": 16,
    "validation": 0.1,
    "encode": 64,
    "standardise": True,
    "hidden": 128,
    "log_every": 10,
}
"""The defaults, in place of the paper's settings: answers are learned from many times, and the state is scaled and
encoded before dropout. docs/guide/learning.md says how they were chosen."""
SHARE = 0.025
"""The default share of steps to ask on, for runs with a budget of answers and no other rate."""
ENDLESS = 1_000_000
"""The limit on iterations of a run that ends by its budget of answers."""
LOOKS = 50
"""The default number of episodes of a look, for runs that stop by looks."""


@dataclass(frozen=True)
class Leaf:
    """A single setting: where it is stored, and its help text."""

    group: str
    """The field of `RunSettings` that holds its record; '' for one of its own."""
    field: str
    annotation: Any
    default: Any
    """`dataclasses.MISSING` where it has to be given."""
    help: str
    per_run: bool


_GROUPS: dict[str, type] = {
    "task": TaskSettings,
    "teachers": TeacherSettings,
    "query": QuerySettings,
    "whom": WhomSettings,
    "model": ModelSettings,
    "learner": LearnerSettings,
}


def _leaves() -> dict[str, Leaf]:
    found: dict[str, Leaf] = {}
    for group, cls in (*_GROUPS.items(), ("", RunSettings)):
        for name, info in described(cls).items():
            if group or name not in _GROUPS:
                typed = next((str(mark) for mark in info.metadata if isinstance(mark, Typed)), name)
                assert typed not in found, f"two settings are typed as {typed}"
                help_text = " ".join((info.description or "").split())
                annotation = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
                found[typed] = Leaf(group, name, annotation, default_of(info), help_text, PerRun in info.metadata)
    return found


LEAVES = _leaves()
"""Every setting by its typed name, in the order of the records."""


_SINCE_SCHEMA_1 = (
    *("budget", "query_options", "optimizer", "answer_budget", "asking", "encode", "standardise"),
    *("updates", "replay", "recent", "window", "capacity", "validation", "walks"),
    *("select", "switch_cost", "acting", "select_options"),
    *("stop", "patience", "looks"),
)


def leaf_of(name: str) -> Leaf:
    """Returns a setting by its typed name; an unknown name raises an error with the nearest match."""
    if name not in LEAVES:
        raise unknown_name("setting", name, LEAVES)
    return LEAVES[name]


def _nested(values: Mapping[str, Any]) -> RunSettings:
    """The records, from values by typed names."""
    groups: dict[str, dict[str, Any]] = {group: {} for group in (*_GROUPS, "")}
    for name, value in values.items():
        leaf = leaf_of(name)
        groups[leaf.group][leaf.field] = value
    for name in ("task", "teacher", "query"):
        if name not in values:
            raise ApilError(f"the setting {name} is missing.")
    own = groups.pop("")
    return RunSettings(**{group: _GROUPS[group](**given) for group, given in groups.items()}, **own)


def _flattened(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by typed names, from nested ones; anything else than these is refused."""
    flat: dict[str, Any] = {}
    places = {(leaf.group, leaf.field): name for name, leaf in LEAVES.items()}
    for group, inside in values.items():
        nested = inside.items() if group in _GROUPS and isinstance(inside, dict) else [(group, inside)]
        for own, value in nested:
            place = (group if group in _GROUPS else "", own)
            if place not in places:
                raise ApilError(f"unknown setting {shown(own)}.")
            flat[places[place]] = value
    return flat


def _frozen(value: Any) -> Any:
    return tuple(sorted(value.items())) if isinstance(value, Mapping) else value
