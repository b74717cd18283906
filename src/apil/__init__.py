"""apil: train an agent from several teachers who disagree, and ask them only when asking helps.

`register_task`, `register_teacher`, `register_query_policy` and `register_selector` give your own parts a name, which
then works wherever a built-in name does. A package registers its parts through entry points: a module that registers
them in the group apil.plugins, or single parts in apil.tasks, apil.teachers, apil.query_policies and apil.selectors.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from apil.errors import unknown_name

if TYPE_CHECKING:
    from apil import query as query
    from apil import select as select
    from apil import tasks as tasks
    from apil import teachers as teachers
    from apil.agent.acting import Agent as Agent
    from apil.agent.acting import Decision as Decision
    from apil.agent.acting import load as load
    from apil.learning.check import check_teacher as check_teacher
    from apil.query.check import check_query_policy as check_query_policy
    from apil.registry import Registry
    from apil.runs.api import train as train
    from apil.runs.stored import StoredAnswers as StoredAnswers
    from apil.runs.stored import answers as answers
    from apil.select.check import check_selector as check_selector
    from apil.studies.run import study as study
    from apil.studies.tune import tune as tune
    from apil.tasks.check import check_task as check_task
    from apil.tasks.gymnasium import from_gymnasium as from_gymnasium

__version__ = "0.2.0"

_ELSEWHERE: dict[str, str] = {
    "Agent": "apil.agent.acting",
    "Decision": "apil.agent.acting",
    "StoredAnswers": "apil.runs.stored",
    "answers": "apil.runs.stored",
    "check_query_policy": "apil.query.check",
    "check_selector": "apil.select.check",
    "check_task": "apil.tasks.check",
    "check_teacher": "apil.learning.check",
    "from_gymnasium": "apil.tasks.gymnasium",
    "study": "apil.studies.run",
    "load": "apil.agent.acting",
    "train": "apil.runs.api",
    "tune": "apil.studies.tune",
}
"""Public names that need torch, and the modules they are in: importing apil stays light."""
_ROOMS = ("query", "select", "tasks", "teachers")
"""Packages with public parts."""
__all__ = [
    "__version__",
    *_ELSEWHERE,
    *_ROOMS,
    "register_query_policy",
    "register_selector",
    "register_task",
    "register_teacher",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"apil.{name}")
    if name not in _ELSEWHERE:
        raise AttributeError(f"module 'apil' has no attribute '{name}'")
    return getattr(importlib.import_module(_ELSEWHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def register_task(name: str, factory: str | Callable[..., Any], summary: str = "", **facets: Any) -> None:
    """Registers a task under a name: `factory(**options)` returns an `apil.tasks.protocol.Task`.

    `factory` is the class or function itself, or "module:attribute" of it. A task that is more than a state vector
    brings facets, each an object or "module:attribute" of it: `options` (what can be set, `apil.tasks.options`),
    `model` (a model of its own, `apil.learning.build`), `evaluation` (`apil.runs.evaluation`), `study`
    (`apil.studies.kind`), `study_settings` (of its runs, by name), `report` (`apil.studies.extras`), `agent`
    (`apil.agent`), and `commands` of `apil data`.

    Examples:
        >>> from apil.tasks.maze import Maze
        >>> apil.register_task("large-maze", lambda: Maze(size=9), "MAZE of 9 x 9")
        >>> "large-maze" in apil.tasks.TASKS.names()
        True
    """
    from apil.tasks import TASK_FACETS, TASKS

    for facet in facets:
        if facet not in TASK_FACETS:
            raise unknown_name("facet of a task", facet, TASK_FACETS)
    _register(TASKS, name, factory, summary, **facets)


def register_teacher(name: str, factory: str | Callable[..., Any], summary: str = "") -> None:
    """Registers teachers under a name: `factory()` returns an `apil.teachers.protocol.Teacher`.

    Examples:
        >>> from apil.teachers import Member, Team
        >>> along_the_row = lambda observation, rng: int(observation.argmax() % 5 == 4)  # right, or down at the wall
        >>> apil.register_teacher("ann", lambda: Team([Member("ann", along_the_row)]), "the row first")
        >>> trained = apil.train("grid", "ann", "dagger", iterations=50)
    """
    from apil.teachers import TEACHERS

    _register(TEACHERS, name, factory, summary)


def register_query_policy(
    name: str,
    factory: str | Callable[..., Any],
    summary: str = "",
    *,
    needs_threshold: bool | None = None,
    takes_budget: bool | None = None,
) -> None:
    """Registers a query policy: `factory(setup, **options)` returns an `apil.query.protocol.QueryPolicy`.

    `apil.query.scored.scored(score)` makes a factory from a score alone. A policy that needs a threshold is refused
    without one (or without a budget, if it takes one). Arguments that are not given are read from attributes of the
    factory with the same names.

    Examples:
        >>> from apil.query.scored import scored
        >>> apil.register_query_policy("who", scored(lambda belief: belief.uncertainty.extrinsic), "asks who teaches")
        >>> trained = apil.train("grid", "twodifdetm", "who", budget=0.1, iterations=50)
    """
    from apil.query import QUERY_POLICIES

    traits = {"needs_threshold": needs_threshold, "takes_budget": takes_budget}
    _register(
        QUERY_POLICIES, name, factory, summary, **{key: value for key, value in traits.items() if value is not None}
    )


def register_selector(name: str, factory: str | Callable[..., Any], summary: str = "") -> None:
    """Registers a selector under a name: `factory(setup, **options)` returns an `apil.select.protocol.Selector`.

    Examples:
        >>> from apil.select.rules import Ranked
        >>> apil.register_selector("dearest", lambda setup: Ranked(-setup.costs), "whose answer costs most")
        >>> trained = apil.train("grid", "twodifdetm", "random", budget=0.1, iterations=50, select="dearest")
    """
    from apil.select import SELECTORS

    _register(SELECTORS, name, factory, summary)


def _register(registry: Registry, name: str, factory: str | Callable[..., Any], summary: str, **traits: Any) -> None:
    if not summary and not isinstance(factory, str):
        summary = (factory.__doc__ or "of your own").strip().splitlines()[0]
    registry.register(name, factory, summary, own=True, **traits)
