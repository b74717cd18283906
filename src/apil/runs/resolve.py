"""From what was typed to the settings of a run: every open one filled in, what does not apply refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apil.errors import ApilError
from apil.learning.build import require_threshold
from apil.query import (
    OURS,
    PRINTED,
    QUERY_POLICIES,
    asking_of,
    asks_on_share,
    check_asking,
    needs_threshold,
    share_of,
    takes_budget,
)
from apil.runs.calibration import Calibration, threshold_of
from apil.select import SELECTORS
from apil.settings import RunSettings
from apil.settings.record import described, spelled
from apil.settings.run import ENDLESS, LEARNING, LEAVES, LOOKS, SHARE, leaf_of
from apil.tasks import TASKS
from apil.tasks.options import Resolved, options_of
from apil.tasks.protocol import Task


@dataclass(frozen=True)
class Resolution:
    """The settings of a run, and the task that was made to find them."""

    settings: RunSettings
    task: Task[Any]
    notice: str = ""


def resolve(
    task: str | Task[Any],
    teacher: str,
    query: str | None,
    given: Mapping[str, Any],
    calibration: Calibration,
    shared_by: Sequence[str] = (),
    *,
    as_printed: bool = False,
) -> Resolution:
    """The settings of a run from those that were given by their typed names, the task's own among them.

    What was not given comes from the task's presets, from the task itself (batch, epsilon), from the calibration (a
    threshold) or is the default: `LEARNING` or, if `as_printed`, the paper's. A task with a model of its own brings its
    own defaults. `shared_by` are the query policies that share these settings; `query` alone if none. Without a `query`
    it is slip, or the paper's apil: if `as_printed`, where its settings are given, on tasks with a model of their own.
    """
    if query is None:
        printed = as_printed or any(name in given for name in _OF_APIL)
        query = PRINTED if printed or _brings_model(task if isinstance(task, str) else task.name) else OURS
    check_asking(query, given.get("asking"))
    _refuse_idle([QUERY_POLICIES.check(name) for name in shared_by or (query,)], given)
    settings = {name: value for name, value in given.items() if name in LEAVES and name != "options"}
    typed = {name: value for name, value in given.items() if name not in LEAVES} | dict(given.get("options", {}))
    if isinstance(task, str):
        parts = _of_task(task, typed)
        made = options_of(task).make(parts.options)
        name = task
    else:
        parts, made, name = _of_object(task, typed), task, task.name
    open_ones: dict[str, Any] = {"batch": made.batch, "epsilon": made.success_distance}
    if not as_printed and not _brings_model(name):
        open_ones |= _learning(LEARNING, settings)
    open_ones |= {"options": parts.options, **parts.settings}
    if not as_printed:
        open_ones |= _learning(parts.learning, settings)
    if (asking := asking_of(query)) is not None:
        open_ones["asking"] = asking
    flat = settings.get("stop") == "when-flat"
    if flat:
        open_ones["looks"] = LOOKS
    spends = flat or settings.get("answer_budget") is not None
    if spends:
        open_ones["iterations"] = ENDLESS
    share = open_ones.pop("budget", share_of(query, settings.get("answer_budget")) if spends else SHARE)
    if settings.get("threshold") is None and settings.get("budget") is None:
        paced = takes_budget(query) and (spends or asks_on_share(query))
        open_ones |= {"budget": share} if paced else {"threshold": threshold_of(calibration, name, query)}
    run = RunSettings.of(name, teacher, query, **{**open_ones, **settings})
    if "capacity" in settings and not run.learner.replay:
        raise ApilError("capacity is of the store of answers: give replay too, for example 128, or leave it out.")
    require_threshold(name, query, run.query.threshold, run.query.budget)
    SELECTORS.check(run.whom.name)
    return Resolution(run, made, parts.notice)


_OF_APIL = ("sigma", "epsilon", "gap")
_OF_STORE = ("replay", "updates", "recent", "window", "validation")


def _brings_model(task: str) -> bool:
    return task in TASKS.names() and TASKS.facet(task, "model") is not None


def _learning(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults that learn; without what needs a store where replay is turned off."""
    off = given.get("replay") == 0
    return {name: value for name, value in defaults.items() if not (off and name in _OF_STORE)}


def _of_task(task: str, typed: Mapping[str, Any]) -> Resolved:
    options = options_of(task)
    known = described(options.arguments)
    for name in typed:
        if name not in known:
            own = f"its own are {', '.join(map(spelled, known))}" if known else "it has none of its own"
            raise ApilError(f"{spelled(name)} is no setting of the task '{task}' ({own}) nor of a run: leave it out.")
    return options.resolve(typed)


def _of_object(task: Task[Any], typed: Mapping[str, Any]) -> Resolved:
    """An object has its options already; only a model that its task brings can have more."""
    for option in () if _brings_model(task.name) else typed:
        leaf_of(option)
    return Resolved(dict(typed))


def _refuse_idle(queries: Sequence[str], given: Mapping[str, Any]) -> None:
    if given.get("threshold") is not None and not any(map(needs_threshold, queries)):
        raise ApilError(f"'{queries[0]}' has no threshold: leave it out, or use another query policy.")
    for name in _OF_APIL:
        used = (name in QUERY_POLICIES.trait(q, "settings", ()) or QUERY_POLICIES.entry(q).own for q in queries)
        if name in given and not any(used):
            raise ApilError(f"{name} is a setting of apil, and the query policy is {', '.join(queries)}: leave it out.")
    if "samples" in given and given.get("expectation") != "monte-carlo":
        raise ApilError("samples are drawn with the expectation monte-carlo only: give that too, or leave them out.")
