"""Whether what a teacher said can be an answer, and in words what is wrong with it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from apil.errors import plural
from apil.learning.group import Group, Groups
from apil.teachers.protocol import Session, may_miss_distances
from apil.types import ActionBox, Answer, Observation


def no_answer(put: Tensor, box: ActionBox | None) -> Answer:
    """An answer to none of the questions `put` [runs, episodes]."""
    action = torch.zeros_like(put, dtype=torch.long)
    if box is not None:
        action = torch.zeros(*put.shape, len(box.low))
    distance, identity = torch.zeros_like(put, dtype=torch.float), torch.zeros_like(put, dtype=torch.long)
    return Answer(action, distance, identity, torch.zeros_like(put))


def check_form(answer: Any, put: Tensor, box: ActionBox | None) -> None:
    """Refuses what is not an answer at all."""
    if not isinstance(answer, Answer):
        raise TypeError(f"answered with {type(answer).__name__} instead of an Answer")
    plain = put.shape
    of_action = plain if box is None else torch.Size((*plain, len(box.low)))
    for name, part, expected, floats in (
        ("action", answer.action, of_action, box is not None),
        ("identity", answer.identity, plain, False),
        ("distance", answer.distance, plain, True),
    ):
        if not isinstance(part, Tensor) or part.shape != expected:
            shape = list(part.shape) if isinstance(part, Tensor) else type(part).__name__
            raise TypeError(f"answered with {name} {shape}, expected a tensor {list(expected)}")
        if part.is_floating_point() != floats:
            raise TypeError(f"answered with {name} of type {part.dtype}")


def sound(answer: Answer, sessions: Groups[Session], seen: Observation, box: ActionBox | None) -> Tensor:
    """[runs, episodes] bool: the action is valid here, the distance not negative (or missing where that is allowed) and
    the identity known."""
    if box is not None:
        valid = box.contains(answer.action)
    else:
        action = answer.action.clamp(0, seen.valid.shape[-1] - 1)
        valid = seen.valid.gather(-1, action.unsqueeze(-1)).squeeze(-1) & (action == answer.action)
    far = answer.distance >= 0
    for group in sessions:
        if may_miss_distances(group.part):
            far[group.runs] |= answer.distance[group.runs].isnan()
    teachers = len(sessions[0].name.split("+"))  # all teachers of a stack have as many members
    return valid & far & (answer.identity.clamp(0, teachers - 1) == answer.identity)


def complaint(
    group: Group[Session], answer: Answer, seen: Observation, place: tuple[int, int], box: ActionBox | None
) -> str:
    """What is wrong with one answer of a group, in words that end before "in iteration ..."; empty if it is sound.

    `answer` and `seen` are those of the group, `place` is a run of it and an episode.
    """
    action, identity, distance = answer.action[place], int(answer.identity[place]), float(answer.distance[place])
    members = group.name.split("+")
    if not 0 <= identity < len(members):
        return f"Teacher '{group.name}' answered as identity {identity}, but has {plural(len(members), 'member')},"
    who = f"Teacher '{group.name}', member {identity} ({members[identity]}),"
    if not distance >= 0 and not (math.isnan(distance) and may_miss_distances(group.part)):
        return f"{who} reported the distance {distance:g}, which is not a distance,"
    if box is not None:
        if bool(box.contains(action)):
            return ""
        low, high = box.low.tolist(), box.high.tolist()
        return f"{who} answered action {action.tolist()}, but actions lie between {low} and {high},"
    valid = seen.valid[place].tolist()
    if 0 <= int(action) < len(valid) and valid[int(action)]:
        return ""
    allowed = ", ".join(str(index) for index, can in enumerate(valid) if can)
    return f"{who} answered action {int(action)}, but valid actions are {allowed},"
