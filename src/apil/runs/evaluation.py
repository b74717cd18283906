"""`apil evaluate`: what a trained agent can do, as its task measures it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from apil.settings.record import Count, record
from apil.tasks import TASKS

Progress = Callable[[int, int], None]
"""Episodes done, and how many there are."""


@dataclass(frozen=True)
class Measured:
    file: str
    """The name of its JSON file in the run folder."""
    result: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Any]]
    """What is shown, by title."""
    more: Callable[[], tuple[str, ...]] = tuple
    """Writes what else there is into the run folder, after the figures were shown and saved; lines for the user."""


class Evaluation(Protocol):
    """The facet `evaluation` of a task: how a trained agent is measured."""

    arguments: type
    """A record of its options. Importing it must not import torch."""

    def measure(self, folder: Path, given: Mapping[str, Any], progress: Progress) -> Measured:
        """Measures the agent of a run folder; `given` are options by name."""


@record
class PlainArguments:
    episodes: Count = 1000
    """Alone with sampled actions, and as many again with greedy ones and with help."""
    greedy: bool = False
    """Query rates, uncertainties and success with help are measured with greedy actions too."""


_TEACHER_MODEL = {
    "persona_js": "between its members, bits (0: one teacher to the agent, 1: nothing in common)",
    "mixture_js": "from the agent to the committee, bits (0: a perfect copy)",
    "identity_calibration_error": "error in who answers (0: the agent knows)",
}
"""What the figures of the teacher model mean, for the terminal."""


class PlainEvaluation:
    """Alone and with help, and what the agent knows about its teachers."""

    arguments: type = PlainArguments

    def measure(self, folder: Path, given: Mapping[str, Any], progress: Progress) -> Measured:
        from apil.learning.evaluate import PASSES, evaluate
        from apil.learning.fidelity import teacher_models
        from apil.runs.checkpoint import load_checkpoint
        from apil.runs.folder import load_run

        wanted = PlainArguments(**given)
        episodes = wanted.episodes
        settings, agents = load_run(folder)
        with closing(agents):
            found = evaluate(agents, episodes, lambda done: progress(done, PASSES * episodes), greedy=wanted.greedy)[0]
            model = teacher_models(agents, min(200, episodes))[0]
        done = load_checkpoint(folder, settings)
        result = {"iteration": done.iteration if done else 0, "greedy": wanted.greedy, **found}
        title = f"{settings.task.name}, taught by {settings.teachers.name}, query policy {settings.query.name}"
        known = {_TEACHER_MODEL.get(name, name): value for name, value in model.items() if isinstance(value, float)}
        tables = {title: result, "Does the agent know its teachers?": known}
        return Measured("evaluation.json", {**result, "teacher_model": model}, tables)


def evaluation_of(task: str) -> Evaluation:
    """How agents are measured on a task; the plain way where the task is not known by its name."""
    own: Evaluation | None = TASKS.facet(task, "evaluation") if task in TASKS.names() else None
    return PlainEvaluation() if own is None else own
