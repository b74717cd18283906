"""`check_task`: finds what is wrong with a task of your own."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from apil.contract import GivenUp, Problems, problems_of
from apil.rng import Draws, Streams, race
from apil.tasks import TASKS
from apil.tasks.protocol import Numbered, Task
from apil.types import Observation, Picture, Reference

SEEDS = (0, 1)
"""Two runs: what one does must not depend on the other."""
EPISODES = 6


class _View(NamedTuple):
    """What can be seen of a state: shapes as in `Task`."""

    features: Tensor
    valid: Tensor
    distance: Tensor
    done: Tensor

    def equals(self, other: _View) -> bool:
        return all(torch.equal(one, two) for one, two in zip(self, other, strict=True))


def check_task(task: Task[Any]) -> None:
    """Checks a task of your own; raises an `ApilError` that lists every problem, else returns None.

    It walks a few episodes by random valid actions, twice in a stack of two runs and once alone. The observations,
    reference actions, distances and ends must have their forms, a walk must be the same every time and for a run alone,
    an episode that has ended must stay as it is, and no global random state may be touched.

    Examples:
        >>> from apil.tasks.maze import Maze
        >>> apil.check_task(Maze())
    """
    with problems_of(f"Task '{getattr(task, 'name', type(task).__name__)}'", "use the draws") as problems:
        _check_attributes(task, problems)
        _check_walks(task, problems)


def _check_attributes(task: Any, problems: Problems) -> None:
    def attribute(name: str) -> Any:
        return getattr(task, name, None)

    for name in ("horizon", "actions", "state_size", "batch"):
        value = attribute(name)
        problems.expect(type(value) is int and value >= 1, f"{name} is {value!r}, expected a whole number from 1 up")
    names, actions, success = attribute("action_names"), attribute("actions"), attribute("success_distance")
    words = isinstance(names, tuple) and all(isinstance(name, str) for name in names)
    problems.expect(words and len(names) == actions, f"action_names is {names!r}, expected a tuple of {actions} words")
    problems.expect(isinstance(attribute("name"), str), "name is missing, expected a word")
    sound = isinstance(success, int | float) and success >= 0
    problems.expect(sound, f"success_distance is {success!r}, expected a distance from 0 up")
    problems.expect(hasattr(task, "box"), "box is missing, expected None or an ActionBox")
    problems.expect(hasattr(task, "encoder"), "encoder is missing, expected None")
    for name in ("reset", "observe", "reference", "step", "distance", "done", "describe", "picture", "contested"):
        problems.expect(callable(attribute(name)), f"it has no method {name}")
    if problems.found:
        raise GivenUp


def _check_walks(task: Task[Any], problems: Problems) -> None:
    actions, first = _walk(task, problems, SEEDS)
    _, again = _walk(task, problems, SEEDS, actions)
    _, alone = _walk(task, problems, SEEDS[1:], [action[1:] for action in actions])
    for t, (one, two, single) in enumerate(zip(first, again, alone, strict=True)):
        where = f"step {t}" if t else "reset"
        repeated, second = one.equals(two), _View(*[part[1:] for part in one])
        problems.require(repeated, f"{where} is not the same with the same draws and actions: use no other chance")
        problems.require(second.equals(single), f"{where} of a run is not the same alone as beside another run")


def _walk(
    task: Task[Any], problems: Problems, seeds: tuple[int, ...], actions: list[Tensor] | None = None
) -> tuple[list[Tensor], list[_View]]:
    """Walks to the horizon by the given actions, or by random valid ones, and checks every state on the way.

    Returns the T actions and the T + 1 views.
    """
    streams = Streams(seeds)
    chance = streams.draws("check/action", 0)
    state = problems.attempt("reset", task.reset, streams.draws("task", 0), EPISODES)
    taken: list[Tensor] = []
    views: list[_View] = []
    for t in range(task.horizon + 1):
        view = _look(task, problems, state, (len(seeds), EPISODES), t)
        if views:
            _check_ended(problems, views[-1], view, t)
        views.append(_View(*[part.clone() for part in view]))
        if t < task.horizon:
            seen = Observation(view.features, view.valid)
            taken.append(random_action(task, seen, chance) if actions is None else actions[t])
            state = problems.attempt("step", task.step, state, taken[-1])
            problems.expect(view.equals(views[-1]), f"step {t} changes what was observed before it: return new tensors")
    return taken, views


def random_action(task: Task[Any], seen: Observation, chance: Draws) -> Tensor:
    """[runs, episodes] or [runs, episodes, n]: any valid action with equal chance."""
    if task.box is not None:
        return task.box.unscaled(2 * chance.uniform(*seen.features.shape[1:2], task.actions) - 1)
    return race(seen.valid.float(), chance.exponential(*seen.valid.shape[1:]))


def _look(task: Task[Any], problems: Problems, state: Any, shape: tuple[int, int], t: int) -> _View:
    """Everything that can be seen of a state, checked."""
    seen: Any = problems.attempt("observe", task.observe, state)
    distance = problems.attempt("distance", task.distance, state)
    done = problems.attempt("done", task.done, state)
    problems.require(isinstance(seen, Observation), f"observe returned {type(seen).__name__}, expected an Observation")
    vector = task.name not in TASKS.names() or TASKS.facet(task.name, "model") is None
    width = task.state_size if vector or not isinstance(seen.features, Tensor) else seen.features.shape[-1]
    formed = [
        _formed(problems, "observe: features", seen.features, (*shape, width), torch.float32),
        _formed(problems, "observe: valid", seen.valid, (*shape, task.actions), torch.bool),
        _formed(problems, "distance", distance, shape, torch.float32),
        _formed(problems, "done", done, shape, torch.bool),
    ]
    if not all(formed):
        raise GivenUp
    view = _View(seen.features, seen.valid, distance, done)
    problems.expect(view.features.isfinite().all(), f"observe: features at step {t} are not finite")
    problems.expect(view.valid.any(-1).all(), f"observe: valid at step {t} allows no action at all in some state")
    _check_distance(task, problems, view, t)
    if isinstance(task, Numbered):
        _check_numbers(task, problems, seen, t)
    if t < task.horizon:
        _check_reference(task, problems, state, view, t)
    if t == 0:
        _check_words(task, problems, state)
    return view


def _formed(problems: Problems, name: str, value: Any, shape: tuple[int, ...], kind: torch.dtype) -> bool:
    found = f"{list(value.shape)} {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
    expected = f"{list(shape)} {kind}"
    return problems.expect(found == expected, f"{name} is {found}, expected a tensor {expected}")


def _check_distance(task: Task[Any], problems: Problems, view: _View, t: int) -> None:
    for bad in view.distance[~(view.distance >= 0)][:1].tolist():
        problems.expect(False, f"distance at step {t} is {bad:g}, expected a number from 0 up")
    beyond = view.distance - task.success_distance
    problems.expect(
        not (view.done & (beyond > 0) & (beyond < 1e-4)).any(),
        f"distance in an episode that has ended misses success ({task.success_distance:g}) by less than 0.0001: "
        "make it exact, or raise success_distance",
    )


def _check_numbers(task: Numbered, problems: Problems, seen: Observation, t: int) -> None:
    states: Any = problems.attempt("states", task.states)
    if not problems.expect(isinstance(states, Observation), "states returned something else than an Observation"):
        return
    place, count = seen.place, states.features.shape[1]
    if not _formed(problems, "observe: place", place, tuple(seen.valid.shape[:2]), torch.long):
        return
    assert place is not None
    if problems.expect(((place >= 0) & (place < count)).all(), f"observe: place at step {t} is outside of 0 to n - 1"):
        same = torch.equal(states.features[0, place], seen.features) and torch.equal(states.valid[0, place], seen.valid)
        problems.expect(same, f"observe at step {t} is not what states() has at its place")


def _check_reference(task: Task[Any], problems: Problems, state: Any, view: _View, t: int) -> None:
    reference: Any = problems.attempt("reference", task.reference, state)
    if not isinstance(reference, Reference):
        problems.expect(False, f"reference returned {type(reference).__name__}, expected a Reference")
        return
    shape = tuple(view.done.shape)
    known = isinstance(reference.actions, Tensor) and reference.actions.shape[-1] > 0
    formed = [
        _formed(problems, "reference: actions", reference.actions, (*shape, task.actions * known), torch.long),
        _formed(problems, "reference: count", reference.count, shape, torch.long),
        _formed(problems, "reference: distance", reference.distance, shape, torch.float32),
    ]
    if not all(formed):
        return
    same = torch.equal(reference.distance, view.distance)
    problems.expect(same, f"reference: distance at step {t} is not that of distance()")
    if not known:
        return
    count, live = reference.count, ~view.done
    counted = ((count >= 1) & (count <= task.actions))[live].all()
    if not problems.expect(counted, f"reference: count at step {t} is outside of 1 to {task.actions}"):
        return
    used = (torch.arange(task.actions) < count.unsqueeze(-1)) & live.unsqueeze(-1)
    inside = reference.actions.clamp(0, task.actions - 1)
    invalid = used & ((inside != reference.actions) | ~view.valid.gather(-1, inside))
    problems.expect(not invalid.any(), f"reference: actions at step {t} include one that is not valid there")
    times = torch.zeros_like(inside).scatter_add_(-1, inside, used.long())
    problems.expect((times <= 1).all(), f"reference: actions at step {t} name an action twice")


def _check_words(task: Task[Any], problems: Problems, state: Any) -> None:
    """What is for people, in the first state."""
    text: Any = problems.attempt("describe", task.describe, state, 0, 0)
    one_line = isinstance(text, str) and "\n" not in text
    problems.expect(one_line, f"describe returned {text!r}, expected one line of text")
    shown: Any = problems.attempt("picture", task.picture, state, 0, 0)
    problems.expect(isinstance(shown, Picture), f"picture returned {type(shown).__name__}, expected a Picture")
    contested: Any = problems.attempt("contested", task.contested)
    problems.expect(
        isinstance(contested, Observation) and contested.features.dim() >= 3 and contested.features.shape[0] == 1,
        "contested returned something else than an Observation [1, n, ...]",
    )


def _check_ended(problems: Problems, before: _View, now: _View, t: int) -> None:
    ended = before.done
    problems.expect(now.done[ended].all(), f"step {t} continues an episode that had ended")
    for name in ("features", "distance"):
        still = torch.equal(getattr(before, name)[ended], getattr(now, name)[ended])
        problems.expect(still, f"step {t} changes the {name} of an episode that had ended")
