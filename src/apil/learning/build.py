"""From configs to a stack of agents: the one place where settings become parts."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from inspect import signature
from typing import Any, TypeVar

import torch

from apil.config import RunConfig
from apil.errors import ApilError, unknown_name
from apil.learning.ask import Guard
from apil.learning.collect import Agents
from apil.learning.group import Group
from apil.model.encoded import EncodedModel, StateEncoder
from apil.model.expectation import DENSE
from apil.model.persona import ModelSizes, PersonaModel
from apil.model.protocol import Model
from apil.optim import OptimizerFactory, optimizer_factory
from apil.query import QUERY_POLICIES, default_threshold, needs_threshold, takes_budget
from apil.query.protocol import QueryPolicy, QuerySetup
from apil.r2r.instruction import InstructionModel, InstructionSizes
from apil.r2r.task import R2R
from apil.rng import Streams
from apil.tasks import TASK_MODELS, TASKS
from apil.tasks.protocol import Task
from apil.teachers.committee import teacher
from apil.teachers.protocol import Teacher

Part = TypeVar("Part")


@dataclass(frozen=True)
class Parts:
    """Parts given as objects, in place of the names in a config; they serve every run of a stack."""

    task: Task[Any] | None = None
    teacher: Teacher | None = None
    optimizer: OptimizerFactory | None = None

    def members(self, config: RunConfig) -> tuple[str, ...]:
        """A name for each of the K identities."""
        return self.teacher_of(config).members

    def teacher_of(self, config: RunConfig) -> Teacher:
        """The teachers of a run."""
        return committee_of(config) if self.teacher is None else self.teacher

    def task_of(self, config: RunConfig) -> Task[Any]:
        """The task of a run."""
        return make_task(config) if self.task is None else self.task

    def optimizer_of(self, config: RunConfig) -> OptimizerFactory:
        """What makes the optimisers of a run."""
        return self.optimizer or optimizer_factory(config.optimizer, config.learning_rate, config.warmup)


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


def committee_of(config: RunConfig) -> Teacher:
    """The teachers of a run."""
    return teacher(config.teacher, config.weights, config.selection)


def stack_shape(config: RunConfig) -> tuple[Any, ...]:
    """Runs with the same shape can be trained as one stack."""
    teachers = len(committee_of(config).members)
    # Many teachers are sampled, and how many samples there are is then a shape too.
    sampled = None if teachers <= DENSE else (config.expectation, config.samples)
    return (
        config.answers, sampled, config.task, teachers, config.iterations, config.batch, config.learning_rate,
        config.models, config.hidden, config.persona, config.dropout, config.sigma, config.epsilon, config.gap,
        config.log_every, config.teacher_deadline, config.on_teacher_error, config.average, config.warmup, config.clip,
        config.optimizer, tuple(sorted(config.options.items())), *_alone(config),
    )  # fmt: skip


def _alone(config: RunConfig) -> tuple[Any, ...]:
    """What tells a run from every other, where the task's model cannot be stacked."""
    return () if TASK_MODELS.get(config.task, "vector") == "vector" else (config.teacher, config.query, config.seed)


def make_task(config: RunConfig) -> Task[Any]:
    """The task of a run."""
    factory = TASKS.load(config.task)
    known = list(signature(factory).parameters)
    encoder = [f.name for f in fields(InstructionSizes)] if TASK_MODELS.get(config.task) == "instruction" else []
    for name in config.options:
        if name not in known + encoder:
            raise unknown_name(f"option of the task '{config.task}'", name, known + encoder)
    task: Task[Any] = factory(**{name: value for name, value in config.options.items() if name in known})
    return task


def _of_encoder(config: RunConfig) -> dict[str, Any]:
    """The options that are sizes of the state encoder."""
    names = {f.name for f in fields(InstructionSizes)}
    return {name: value for name, value in config.options.items() if name in names}


_TOO_LARGE = ("alloc", "Storage size", "Maximum allowed dimension", "array is too big")
"""How torch and NumPy say that something does not fit into memory."""


def build(configs: Sequence[RunConfig], parts: Parts = NAMED) -> Agents:
    """The agents of runs of one `stack_shape`, in the order of `configs`."""
    try:
        return _build(configs, parts)
    except (RuntimeError, MemoryError, ValueError) as error:
        if not isinstance(error, MemoryError) and not any(word in str(error) for word in _TOO_LARGE):
            raise
        sizes = f"hidden {configs[0].hidden}, persona {configs[0].persona}, models {configs[0].models}"
        raise ApilError(
            f"Cannot build agents of these sizes ({sizes}): not enough memory; use smaller ones."
        ) from error


def _build(configs: Sequence[RunConfig], parts: Parts) -> Agents:
    first = configs[0]
    assert parts.teacher is not None or len({stack_shape(config) for config in configs}) == 1
    task = parts.task_of(first)
    streams = Streams([config.seed for config in configs])
    model = _model(streams, task, configs, len(parts.members(first)))
    teachers = _groups(
        configs,
        lambda c: (c.teacher, c.weights, c.selection),
        lambda c, _: parts.teacher_of(c),
        lambda c: "+".join(parts.members(c)),
    )
    queries = _groups(configs, _query_kind, lambda _, runs: _query(task, model, runs), lambda c: c.query)
    guard = Guard(first.teacher_deadline, first.on_teacher_error, task.box)
    names = [f"teacher {config.teacher}, query {config.query}, seed {config.seed}" for config in configs]
    return Agents(streams, task, model, teachers, queries, guard, names)


def _model(streams: Streams, task: Task[Any], configs: Sequence[RunConfig], teachers: int) -> Model:
    first = configs[0]
    if isinstance(task, R2R):
        return InstructionModel(
            streams,
            task.panoramas,
            teachers=teachers,
            actions=task.actions,
            horizon=task.horizon,
            samples=first.samples if first.expectation == "monte-carlo" else 0,
            hidden=first.hidden,
            persona=first.persona,
            dropout=first.dropout,
            models=first.models,
            sizes=InstructionSizes(**_of_encoder(first)),
        )
    encoder = None if task.encoder is None else StateEncoder(streams, task.encoder, task.state_size)
    model = PersonaModel(
        streams,
        state_size=task.state_size if encoder is None else encoder.state_size,
        actions=task.actions if task.box is None else task.box,
        teachers=teachers,
        samples=[config.samples if config.expectation == "monte-carlo" else 0 for config in configs],
        sizes=ModelSizes(first.hidden, first.persona, first.dropout, first.models),
    )
    return model if encoder is None else EncodedModel(encoder, model)


def require_threshold(task: str, query: str, threshold: float | None, budget: float | None = None) -> None:
    """Refuses a query policy that needs a threshold and has neither that nor a budget, and a budget it cannot keep."""
    if budget is not None and not takes_budget(query):
        raise ApilError(f"'{query}' cannot keep a budget: leave it out, or use a query policy with a score.")
    if needs_threshold(query) and threshold is None and budget is None:
        other = "--budget or --threshold" if takes_budget(query) else "--threshold"
        find = f"run `apil calibrate --task {task} --query {query}` and pass its file as --calibration, or "
        if task == "r2r":  # its runs are too long to be searched among; its study finds thresholds in short ones
            find = ""
        raise ApilError(f"No threshold is known for '{query}' on '{task}': {find}give {other}.")


def _query_kind(config: RunConfig) -> tuple[Any, ...]:
    """Runs of one kind share a query policy."""
    return config.query, config.budget is None, tuple(sorted(config.query_options.items()))


def _query(task: Task[Any], model: Model, configs: Sequence[RunConfig]) -> QueryPolicy:
    first = configs[0]
    thresholds = [default_threshold(c.query) if c.threshold is None else c.threshold for c in configs]
    budgets = [config.budget for config in configs]
    for threshold, budget in zip(thresholds, budgets, strict=True):
        require_threshold(first.task, first.query, threshold, budget)
    factory = QUERY_POLICIES.load(first.query)
    known = list(signature(factory).parameters)[1:]
    for name in first.query_options:
        if name not in known:
            raise unknown_name(f"option of the query policy '{first.query}'", name, known)
    setup = QuerySetup(
        streams=Streams([config.seed for config in configs]),
        state_size=model.state_size,
        actions=task.actions if task.box is None else 2 * task.actions,
        box=task.box,
        horizon=task.horizon,
        thresholds=torch.tensor([float("nan") if value is None else value for value in thresholds]),
        hidden=first.hidden,
        recurrent=model.recurrent,
        sigma=first.sigma,
        epsilon=first.epsilon,
        gap=first.gap,
        budgets=None if first.budget is None else torch.tensor(budgets),
    )
    policy: QueryPolicy = factory(setup, **first.query_options)
    return policy


def _groups(
    configs: Sequence[RunConfig],
    key: Callable[[RunConfig], Any],
    make: Callable[[RunConfig, Sequence[RunConfig]], Part],
    name: Callable[[RunConfig], str],
) -> list[Group[Part]]:
    """The runs that share a key, with the part made for them."""
    groups = []
    for value in dict.fromkeys(key(config) for config in configs):
        places = [place for place, config in enumerate(configs) if key(config) == value]
        own = [configs[place] for place in places]
        adjacent = places[-1] - places[0] + 1 == len(places)
        runs = slice(places[0], places[-1] + 1) if adjacent else torch.tensor(places)
        groups.append(Group(runs, Streams([config.seed for config in own]), make(own[0], own), name(own[0])))
    return groups
