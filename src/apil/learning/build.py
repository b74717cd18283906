"""From configs to a stack of agents: the one place where settings become parts."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from apil.crew import ALONE, Crew
from apil.device import HOST, Device, here
from apil.errors import ApilError, unknown_name
from apil.learning.ask import Guard
from apil.learning.collect import Agents
from apil.learning.group import Group
from apil.memory import memory_left
from apil.model.encoded import encoded
from apil.model.expectation import DENSE
from apil.model.persona import PersonaModel
from apil.model.protocol import Model
from apil.optim import OptimizerFactory, optimizer_factory
from apil.query import QUERY_POLICIES, default_threshold, needs_threshold, takes_budget
from apil.query.protocol import QueryPolicy, QuerySetup
from apil.rng import Streams
from apil.select import ENVIRONMENT, SELECTORS
from apil.select.protocol import Selector, SelectSetup
from apil.select.trust import trusting
from apil.settings import QuerySettings, RunSettings
from apil.settings.record import arguments_of, described
from apil.tasks import TASKS
from apil.tasks.options import options_of
from apil.tasks.protocol import Numbered, Task
from apil.teachers.committee import teacher
from apil.teachers.protocol import Teacher, costs_of, is_selectable

Part = TypeVar("Part")


@dataclass(frozen=True)
class Parts:
    """Parts given as objects, in place of the names in a config; they serve every run of a stack."""

    task: Task[Any] | None = None
    teacher: Teacher | None = None
    optimizer: OptimizerFactory | None = None
    device: Device = HOST
    """Where models and query policies live."""
    crew: Crew = ALONE
    """The processes that train the run."""

    def members(self, config: RunSettings) -> tuple[str, ...]:
        """A name for each of the K identities."""
        return self.teacher_of(config).members

    def teacher_of(self, config: RunSettings) -> Teacher:
        """The teachers of a run."""
        return committee_of(config) if self.teacher is None else self.teacher

    def made_for(self, config: RunSettings) -> Parts:
        """The parts of one run as objects, each made once."""
        return replace(self, task=self.task_of(config), teacher=self.teacher_of(config))

    def task_of(self, config: RunSettings) -> Task[Any]:
        """The task of a run."""
        return make_task(config) if self.task is None else self.task

    def optimizer_of(self, config: RunSettings) -> OptimizerFactory:
        """What makes the optimisers of a run."""
        return self.optimizer or optimizer_factory(
            config.learner.optimizer, config.learner.learning_rate, config.learner.warmup, self.crew
        )


NAMED = Parts()
"""Everything by its name in the config."""


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Of glibc's mallopt."""


def configure_torch() -> None:
    """One thread: two single-threaded processes beat one with two, and a sum has one order.

    Numbers too small for a full mantissa count as 0: vanishing gradients would otherwise slow Adam down tenfold.
    Freed memory is kept for the next tensors: to get it back from the kernel, page by page, takes a tenth of the time.
    """
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    with suppress(AttributeError, TypeError):  # where there is no glibc
        ctypes.CDLL(None).mallopt(_TRIM_THRESHOLD, 2**29)
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 2**25)


def committee_of(settings: RunSettings) -> Teacher:
    """The teachers of a run."""
    return teacher(settings.teachers.name, settings.teachers.weights, settings.teachers.selection)


def stackable(task: str) -> bool:
    """Whether runs on a task can be trained as one stack: a model of a task's own cannot, unless it says so."""
    model = TASKS.facet(task, "model")
    return model is None or bool(getattr(model, "stackable", False))


def stack_shape(settings: RunSettings) -> tuple[Any, ...]:
    """Runs with the same shape can be trained as one stack."""
    teachers = len(committee_of(settings).members)
    # Many teachers are sampled, and how many samples there are is then a shape too.
    sampled = None if teachers <= DENSE else settings.model.drawn
    alone = () if stackable(settings.task.name) else (settings.teachers.name, settings.query.name, settings.seed)
    return (teachers, sampled, *settings.shape(), *alone)


def whole_episodes(settings: RunSettings) -> bool:
    """Whether the store keeps whole episodes: for a model of a task's own, which may remember the steps before."""
    return settings.task.name in TASKS.names() and TASKS.facet(settings.task.name, "model") is not None


def make_task(settings: RunSettings) -> Task[Any]:
    """The task of a run."""
    return options_of(settings.task.name).make(settings.task.options)


def _require_memory(task: Task[Any], configs: Sequence[RunSettings], teachers: int) -> None:
    """Refuses sizes that memory cannot hold: the system would end the process without a word."""
    model, batch, policies = configs[0].model, configs[0].learner.batch, min(teachers, DENSE)
    inputs = task.state_size + model.persona
    weights = model.hidden * (inputs + 2 * task.state_size + 100)
    drawn = max(settings.model.drawn for settings in configs) * task.horizon * batch
    acting = model.models * (drawn + inputs + (batch + 1) * policies * (model.hidden + model.persona))
    learning = batch * task.horizon * (model.hidden + 2 * inputs)
    # Of weights there are gradients, optimisers and the copies of a checkpoint; of the others what a step leaves.
    needed = 4 * len(configs) * (13 * weights + 4 * acting + 6 * learning)
    there = memory_left()
    if needed > there:
        sizes = f"hidden {model.hidden}, persona {model.persona}, models {model.models}, batch {batch}"
        raise ApilError(
            f"Runs of these sizes ({sizes}) need about {needed / 2**30:.3g} GB of memory, and there are "
            f"{there / 2**30:.3g}: use smaller ones."
        )


def build(configs: Sequence[RunSettings], parts: Parts = NAMED) -> Agents:
    """The agents of runs of one `stack_shape`, in the order of `configs`."""
    first = configs[0]
    assert parts.teacher is not None or len({stack_shape(config) for config in configs}) == 1
    task = parts.task_of(first)
    _require_memory(task, configs, len(parts.members(first)))
    streams = Streams([config.seed for config in configs])
    thinking = parts.device
    asking = thinking if thinking.float64 else HOST  # query policies count in it
    with thinking:
        model = _model(streams, task, configs, len(parts.members(first)))
    teachers = _groups(
        configs,
        lambda c: c.teachers,
        lambda c, _: parts.teacher_of(c),
        lambda c: "+".join(parts.members(c)),
    )
    with asking:
        queries = _groups(
            configs, _query_kind, lambda _, runs: _query(task, model, runs, parts.crew), lambda c: c.query.name
        )
    guard = Guard(first.teachers.deadline, first.teachers.on_error, task.box)
    names = [f"teacher {c.teachers.name}, query {c.query.name}, seed {c.seed}" for c in configs]
    selectors = _selectors(configs, task, teachers)
    return Agents(streams, task, model, teachers, queries, guard, names, selectors, thinking, asking)


def _selectors(
    configs: Sequence[RunSettings], task: Task[Any], teachers: Sequence[Group[Teacher]]
) -> list[Group[Selector]]:
    """Who choose whom to ask; none where all teachers choose by themselves."""
    for whom in [config.whom for config in configs]:
        check_arguments("selector", whom.name, SELECTORS.load(whom.name), whom.options)
    if all(config.whom.name == ENVIRONMENT and config.whom.acting == "as-answered" for config in configs):
        return []
    costs = torch.ones(len(configs), len(costs_of(teachers[0].part)))
    for group in teachers:
        costs[group.runs] = torch.tensor(costs_of(group.part))
        if not is_selectable(group.part) and any(config.whom.name != ENVIRONMENT for config in configs):
            raise ApilError(f"Teacher '{group.name}' chooses who answers by itself: leave --select out.")

    def made(first: RunSettings, own: Sequence[RunSettings]) -> Selector:
        places = [place for place, config in enumerate(configs) if _select_kind(config) == _select_kind(first)]
        setup = SelectSetup(
            streams=Streams([config.seed for config in own]),
            teachers=costs.shape[1],
            costs=costs[places],
            switch_cost=torch.tensor([config.whom.switch_cost for config in own]),
            features=task.state_size,
            actions=task.actions,
            horizon=task.horizon,
            box=task.box,
        )
        selector: Selector = SELECTORS.load(first.whom.name)(setup, **first.whom.options)
        return selector if first.whom.acting == "as-answered" else trusting(selector, setup)

    return _groups(configs, _select_kind, made, lambda config: config.whom.name)


def _select_kind(config: RunSettings) -> tuple[Any, ...]:
    """Runs of one kind share a selector."""
    return config.whom.name, config.whom.acting, tuple(sorted(config.whom.options.items()))


def _model(streams: Streams, task: Task[Any], configs: Sequence[RunSettings], teachers: int) -> Model:
    own = TASKS.facet(configs[0].task.name, "model") if configs[0].task.name in TASKS.names() else None
    with torch.device("cpu"):  # a task is on the host
        states = task.states() if own is None and isinstance(task, Numbered) else None
    if own is not None:
        made: Model = own(streams, task, configs, teachers)
        return made
    return encoded(
        streams,
        task.state_size,
        configs[0].model,
        task.encoder,
        lambda size: PersonaModel(
            streams,
            state_size=size,
            actions=task.actions if task.box is None else task.box,
            teachers=teachers,
            samples=[settings.model.drawn for settings in configs],
            sizes=configs[0].model,
            states=states,
        ),
    )


def require_threshold(task: str, query: str, threshold: float | None, budget: float | None = None) -> None:
    """Refuses a query policy that needs a threshold and has neither that nor a budget, and a budget it cannot keep."""
    if budget is not None and not takes_budget(query):
        raise ApilError(f"'{query}' cannot keep a budget: leave it out, or use a query policy with a score.")
    if needs_threshold(query) and threshold is None and budget is None:
        other = "--budget or --threshold" if takes_budget(query) else "--threshold"
        find = f"run `apil calibrate --task {task} --query {query}` and pass its file as --calibration, or "
        if not stackable(task):  # its runs are too long to be searched among; its study finds thresholds in short ones
            find = ""
        raise ApilError(f"No threshold is known for '{query}' on '{task}': {find}give {other}.")


def check_options(query: QuerySettings) -> None:
    """Refuses options that a query policy does not have, or that are not of their type."""
    check_arguments("query policy", query.name, QUERY_POLICIES.load(query.name), query.options)


def check_arguments(kind: str, name: str, factory: Any, options: Mapping[str, Any]) -> None:
    """Refuses options that a factory does not have behind its setup, or that are not of their type."""
    arguments = arguments_of(factory, skip=1)
    for option in options:
        if option not in described(arguments):
            raise unknown_name(f"option of the {kind} '{name}'", option, described(arguments))
    arguments(**options)


def _query_kind(config: RunSettings) -> tuple[Any, ...]:
    """Runs of one kind share a query policy."""
    query = config.query
    return query.name, query.budget is None, tuple(sorted(query.options.items()))


def _query(task: Task[Any], model: Model, configs: Sequence[RunSettings], crew: Crew) -> QueryPolicy:
    first = configs[0].query
    thresholds = [default_threshold(c.query.name) if c.query.threshold is None else c.query.threshold for c in configs]
    budgets = [config.query.budget for config in configs]
    for threshold, budget in zip(thresholds, budgets, strict=True):
        require_threshold(configs[0].task.name, first.name, threshold, budget)
    check_options(first)
    setup = QuerySetup(
        streams=Streams([config.seed for config in configs]),
        state_size=model.state_size,
        actions=task.actions if task.box is None else 2 * task.actions,
        box=here(task.box),
        horizon=task.horizon,
        thresholds=torch.tensor([float("nan") if value is None else value for value in thresholds]),
        hidden=configs[0].model.hidden,
        recurrent=model.recurrent,
        sigma=first.sigma,
        epsilon=first.epsilon,
        gap=first.gap,
        budgets=None if first.budget is None else torch.tensor(budgets),
        features=task.state_size,
        crew=crew,
    )
    policy: QueryPolicy = QUERY_POLICIES.load(first.name)(setup, **first.options)
    return policy


def _groups(
    configs: Sequence[RunSettings],
    key: Callable[[RunSettings], Any],
    make: Callable[[RunSettings, Sequence[RunSettings]], Part],
    name: Callable[[RunSettings], str],
) -> list[Group[Part]]:
    """The runs that share a key, with the part made for them."""
    groups = []
    for value in dict.fromkeys(key(config) for config in configs):
        places = [place for place, config in enumerate(configs) if key(config) == value]
        own = [configs[place] for place in places]
        adjacent = places[-1] - places[0] + 1 == len(places)
        runs = slice(places[0], places[-1] + 1) if adjacent else torch.tensor(places, device="cpu")
        groups.append(Group(runs, Streams([config.seed for config in own]), make(own[0], own), name(own[0])))
    return groups
