"""How good the teachers of a run are, as it knows them: overall, and where it would ask each of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch

from apil.agent.storage import newest_checkpoint, read_note, read_tensors
from apil.learning.build import NAMED, Parts
from apil.runs.folder import load_config
from apil.select.learned import POWER, worth
from apil.select.skill import Fit
from apil.teachers.protocol import costs_of

_Z = 1.959964
_SHOWN = 20
"""Teachers that are shown, those with the most answers."""
_PREFIX = "select."


@dataclass(frozen=True)
class Skill:
    """A mean skill with its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class TeacherSkill:
    """What a run knows of a teacher. Skill is the progress of their answers: about 1 for a teacher who is right."""

    name: str
    skill: Skill
    answers: int
    cost: float
    """Of all their answers."""
    turned: int | None
    """Number of the answer after which the teacher became worse; None if never."""
    regions: dict[str, Skill]
    """The skill in these states, by which the selector `learned` would choose."""


def teacher_skills(folder: str | Path, parts: Parts = NAMED) -> list[TeacherSkill]:
    """The teachers of a run, those with the most answers first; none where the run has not estimated their skill.

    Skill is estimated by runs with `select` best or learned, or `acting` by-skill.
    """
    folder = Path(folder)
    tensors = newest_checkpoint(folder, lambda path: read_tensors(path, read_note(path))) or {}
    memory = {n.removeprefix(_PREFIX): value for n, value in tensors.items() if n.startswith(_PREFIX)}
    if "answers" not in memory or not int(memory["count"]):
        return []
    config = load_config(folder)
    teacher = parts.teacher_of(config)
    fit, costs = Fit.of(memory), torch.tensor(costs_of(teacher))
    states = memory["before"][: min(len(memory["known"]), int(memory["count"]))]
    order = memory["answers"].argsort(descending=True, stable=True)[:_SHOWN]
    mean, _ = fit.skills(states, order)
    power = float(config.whom.options.get("power", POWER))
    first = worth(mean, costs[order], power).argmax(1)
    regions = {teacher.members[int(order[k])]: states[first == k] for k in sorted(set(first.tolist()))}
    found = []
    for k in order.tolist():
        turned = int(memory["since"][k]) if int(memory["turns"][k]) else None
        by_region = {f"{name} ({len(own)})": _skill(fit, own, k) for name, own in regions.items()}
        answers = int(memory["answers"][k])
        cost = answers * float(costs[k])
        found.append(TeacherSkill(teacher.members[k], _skill(fit, states, k), answers, cost, turned, by_region))
    return found


def _skill(fit: Fit, states: torch.Tensor, k: int) -> Skill:
    mean, variance = fit.average(states, k)
    return Skill(mean, mean - _Z * math.sqrt(variance), mean + _Z * math.sqrt(variance))
