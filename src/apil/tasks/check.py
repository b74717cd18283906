"""`check_task`: says in words what is wrong with a task of your own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.rng import Draws, Streams, global_random_state, race
from apil.tasks import TASKS
from apil.tasks.protocol import Task
from apil.types import Observation, Picture, Reference

Result = TypeVar("Result")
SEEDS = (0, 1)
"""Two runs: what one does must not depend on the other."""
EPISODES = 6


class Problems:
    """What was found wrong, the first of every kind."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._found: dict[str, str] = {}

    def add(self, kind: str, message: str) -> None:
        """Notes a problem unless one of its kind is known."""
        self._found.setdefault(kind, message)

    def attempt(self, what: str, call: Callable[[], Result]) -> Result:
        """The result of a call into the part; what it raises is a problem and ends the check."""
        try:
            return call()
        except Exception as error:
            told = str(error).splitlines()[0] if str(error) else "no message"
            self.add(what, f"{what} raised {type(error).__name__}: {told}")
            raise GivenUp from error

    def tell(self) -> None:
        """Raises one error with all of them; quiet if there are none."""
        if self._found:
            told = "; ".join(f"({n}) {text}" for n, text in enumerate(self._found.values(), 1))
            count = f"{len(self._found)} problem{'s' if len(self._found) > 1 else ''}"
            raise ApilError(f"{self._part} has {count}: {told}.")


class GivenUp(Exception):  # noqa: N818 (no error: the way out of a check that cannot go on)
    """Nothing more can be checked."""


@dataclass
class Walk:
    """What a walk through the task has shown, step by step."""

    actions: list[Tensor] = field(default_factory=list)
    """Those taken, each [runs, episodes] or [runs, episodes, n]."""
    seen: list[tuple[Tensor, ...]] = field(default_factory=list)
    """Features, valid actions, distance and whether it has ended, at every step and at the end."""


def check_task(task: Task[Any]) -> None:
    """Raises an `ApilError` that lists everything found wrong with a task; returns quietly if nothing is.

    It walks a few episodes by random valid actions, twice in a stack of two runs and once alone. The observations,
    reference actions, distances and ends must have their forms, a walk must be the same every time and for a run alone,
    an episode that has ended must stay as it is, and no global random state may be touched.
    """
    name = getattr(task, "name", type(task).__name__)
    problems = Problems(f"Task '{name}'")
    for message in _attributes(task):
        problems.add(message, message)
    problems.tell()
    before = global_random_state()
    with suppress(GivenUp):
        _check_walks(task, problems)
    if global_random_state() != before:
        problems.add("global", "it touches global random state (torch, numpy.random or random): use the draws")
    problems.tell()


def _attributes(task: Any) -> Iterator[str]:
    for name in ("horizon", "actions", "state_size", "batch"):
        value = getattr(task, name, None)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            yield f"{name} is {value!r}, expected a whole number from 1 up"
    names, actions = getattr(task, "action_names", None), getattr(task, "actions", None)
    if not isinstance(names, tuple) or len(names) != actions or not all(isinstance(n, str) for n in names):
        yield f"action_names is {names!r}, expected a tuple of {actions} words"
    if not isinstance(getattr(task, "name", None), str):
        yield "name is missing, expected a word"
    success = getattr(task, "success_distance", None)
    if not isinstance(success, int | float) or not success >= 0:
        yield f"success_distance is {success!r}, expected a distance from 0 up"
    for name in ("box", "encoder"):
        if not hasattr(task, name):
            yield f"{name} is missing, expected None{' or an ActionBox' if name == 'box' else ''}"
    for name in ("reset", "observe", "reference", "step", "distance", "done", "describe", "picture", "contested"):
        if not callable(getattr(task, name, None)):
            yield f"it has no method {name}"


def _check_walks(task: Task[Any], problems: Problems) -> None:
    first = _walk(task, problems, SEEDS)
    again = _walk(task, problems, SEEDS, first.actions)
    alone = _walk(task, problems, SEEDS[1:], [action[1:] for action in first.actions])
    for t, (one, two, single) in enumerate(zip(first.seen, again.seen, alone.seen, strict=True)):
        where = "reset" if t == 0 else f"step {t}"
        if any(not torch.equal(a, b) for a, b in zip(one, two, strict=True)):
            problems.add(
                "repeat", f"{where} is not the same with the same draws and actions: all chance is in the draws"
            )
            return
        if any(not torch.equal(a[1:], b) for a, b in zip(one, single, strict=True)):
            problems.add("alone", f"{where} of a run is not the same alone as beside another run")
            return


def _walk(task: Task[Any], problems: Problems, seeds: tuple[int, ...], actions: list[Tensor] | None = None) -> Walk:
    """Walks to the horizon by the given actions, or by random valid ones, and checks every state on the way."""
    streams, walk = Streams(seeds), Walk()
    draws, chance = streams.draws("task", 0), streams.draws("check/action", 0)
    state = problems.attempt("reset", lambda: task.reset(draws, EPISODES))
    shape = (len(seeds), EPISODES)
    for t in range(task.horizon + 1):
        seen = _look(task, problems, state, shape, t)
        if walk.seen:
            _check_ended(problems, walk.seen[-1], seen, t)
        walk.seen.append(tuple(part.clone() for part in seen))
        if t == task.horizon:
            break
        action = random_action(task, Observation(seen[0], seen[1]), chance) if actions is None else actions[t]
        walk.actions.append(action)
        before = state
        state = problems.attempt("step", lambda now=before, act=action: task.step(now, act))  # type: ignore[misc]
        if any(not torch.equal(a, b) for a, b in zip(seen, walk.seen[-1], strict=True)):
            problems.add("mutates", f"step {t} changes what was observed before it: return new tensors")
    return walk


def random_action(task: Task[Any], seen: Observation, chance: Draws) -> Tensor:
    """[runs, episodes] or [runs, episodes, n]: any valid action with equal chance."""
    if task.box is not None:
        return task.box.unscaled(2 * chance.uniform(*seen.features.shape[1:2], task.actions) - 1)
    return race(seen.valid.float(), chance.exponential(*seen.valid.shape[1:]))


def _look(task: Task[Any], problems: Problems, state: Any, shape: tuple[int, int], t: int) -> tuple[Tensor, ...]:
    """Features, valid actions, distance and done of a state, their forms checked."""
    seen: Any = problems.attempt("observe", lambda: task.observe(state))
    distance = problems.attempt("distance", lambda: task.distance(state))
    done = problems.attempt("done", lambda: task.done(state))
    if not isinstance(seen, Observation):
        problems.add("observe", f"observe returned {type(seen).__name__}, expected an Observation")
        raise GivenUp
    vector = task.name not in TASKS.names() or TASKS.facet(task.name, "model") is None
    width = task.state_size if vector or not isinstance(seen.features, Tensor) else seen.features.shape[-1]
    formed = [
        _form(problems, "observe: features", seen.features, (*shape, width), torch.float32),
        _form(problems, "observe: valid", seen.valid, (*shape, task.actions), torch.bool),
        _form(problems, "distance", distance, shape, torch.float32),
        _form(problems, "done", done, shape, torch.bool),
    ]
    if not all(formed):
        raise GivenUp
    if not bool(seen.features.isfinite().all()):
        problems.add("finite", f"observe: features at step {t} are not finite")
    if not bool(seen.valid.any(-1).all()):
        problems.add("valid", f"observe: valid at step {t} allows no action at all in some state")
    _check_distance(task, problems, distance, done, t)
    if t < task.horizon:
        _check_reference(task, problems, state, seen, distance, ~done, t)
    if t == 0:
        _check_words(task, problems, state)
    return seen.features, seen.valid, distance, done


def _form(problems: Problems, what: str, value: Any, shape: tuple[int, ...], kind: torch.dtype) -> bool:
    """Whether a value is a tensor of a shape and type; told if not."""
    if isinstance(value, Tensor) and tuple(value.shape) == shape and value.dtype == kind:
        return True
    found = f"{list(value.shape)} {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
    problems.add(what, f"{what} is {found}, expected a tensor {list(shape)} {kind}")
    return False


def _check_distance(task: Task[Any], problems: Problems, distance: Tensor, done: Tensor, t: int) -> None:
    bad = distance[~(distance >= 0)]
    if bad.numel():
        problems.add("negative", f"distance at step {t} is {float(bad[0]):g}, expected a number from 0 up")
    beyond = distance - task.success_distance
    if bool((done & (beyond > 0) & (beyond < 1e-4)).any()):
        problems.add(
            "rounding",
            f"distance in an episode that has ended misses success ({task.success_distance:g}) by less than 0.0001: "
            "make it exact, or raise success_distance",
        )


def _check_reference(
    task: Task[Any], problems: Problems, state: Any, seen: Observation, distance: Tensor, live: Tensor, t: int
) -> None:
    reference: Any = problems.attempt("reference", lambda: task.reference(state))
    if not isinstance(reference, Reference):
        problems.add("reference", f"reference returned {type(reference).__name__}, expected a Reference")
        return
    shape = tuple(live.shape)
    known = isinstance(reference.actions, Tensor) and reference.actions.shape[-1] > 0
    formed = [
        _form(problems, "reference: actions", reference.actions, (*shape, task.actions if known else 0), torch.long),
        _form(problems, "reference: count", reference.count, shape, torch.long),
        _form(problems, "reference: distance", reference.distance, shape, torch.float32),
    ]
    if not all(formed):
        return
    if not torch.equal(reference.distance, distance):
        problems.add("same distance", f"reference: distance at step {t} is not that of distance()")
    if not known:
        return
    if bool((live & ((reference.count < 1) | (reference.count > task.actions))).any()):
        problems.add("count", f"reference: count at step {t} is outside of 1 to {task.actions}")
        return
    used = (torch.arange(task.actions) < reference.count.unsqueeze(-1)) & live.unsqueeze(-1)
    inside = reference.actions.clamp(0, task.actions - 1)
    if bool((used & ((inside != reference.actions) | ~seen.valid.gather(-1, inside))).any()):
        problems.add("reference valid", f"reference: actions at step {t} include one that is not valid there")
    times = torch.zeros_like(inside).scatter_add_(-1, inside, used.long())
    if bool((times > 1).any()):
        problems.add("reference twice", f"reference: actions at step {t} name an action twice")


def _check_words(task: Task[Any], problems: Problems, state: Any) -> None:
    """What is for people, in the first state."""
    told = problems.attempt("describe", lambda: task.describe(state, 0, 0))
    if not isinstance(told, str) or "\n" in told:
        problems.add("describe", f"describe returned {told!r}, expected one line of text")
    shown: Any = problems.attempt("picture", lambda: task.picture(state, 0, 0))
    if not isinstance(shown, Picture):
        problems.add("picture", f"picture returned {type(shown).__name__}, expected a Picture")
    contested = problems.attempt("contested", task.contested)
    if not isinstance(contested, Observation) or contested.features.dim() < 3 or contested.features.shape[0] != 1:
        problems.add("contested", "contested returned something else than an Observation [1, n, ...]")


def _check_ended(problems: Problems, before: tuple[Tensor, ...], now: tuple[Tensor, ...], t: int) -> None:
    """An episode that has ended stays where it is."""
    ended = before[3]
    if not bool(now[3][ended].all()):
        problems.add("revived", f"step {t} goes on with an episode that had ended")
    for name, was, is_now in (("features", before[0], now[0]), ("distance", before[2], now[2])):
        if not torch.equal(was[ended], is_now[ended]):
            problems.add("moves", f"step {t} changes the {name} of an episode that had ended")
