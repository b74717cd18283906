"""Three teachers for MAZE who are not equally good: careful and dear, quick and sloppy, good only in the east wing.

APIL_PLUGINS=examples/whom/maze_wings.py apil train --task maze --teacher wings --query random --answer-budget 300 \
--select learned --acting by-skill --out runs/wings
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

import apil
from apil.teachers import Member, Team
from apil.teachers.policies import Question, Reply

SIZE = 7
SLOPPY = 0.3
"""How often the quick one is wrong."""


def east(question: Question) -> Tensor:
    """[runs, episodes] bool: the agent stands in the eastern half of the maze."""
    cell = question.observation.features[..., : SIZE * SIZE].argmax(-1)
    row, column = cell // SIZE, cell % SIZE
    return (column > SIZE // 2) | ((column == SIZE // 2) & (row > SIZE // 2))


def wrong(question: Question) -> Tensor:
    """[runs, episodes] long: the first move that is possible and on no shortest path, if there is one."""
    actions, reference = question.observation.valid.shape[-1], question.reference
    right = torch.zeros_like(question.observation.valid)
    listed = torch.arange(actions) < reference.count.unsqueeze(-1)
    right = right.scatter(-1, reference.actions, listed)
    bad = question.observation.valid & ~right
    return torch.where(bad.any(-1), bad.long().argmax(-1), reference.actions[..., 0])


@dataclass(frozen=True)
class Mover:
    """Takes the first move on a shortest path, but for its mistakes."""

    mistakes: float = 0.0
    """How often it is wrong, by chance."""
    only_east: bool = False
    """It is wrong wherever the agent is not in the east."""
    batched: ClassVar[bool] = True

    def reply(self, question: Question) -> Reply:
        """The answers of one step."""
        bad = question.luck < self.mistakes
        if self.only_east:
            bad = bad | ~east(question)
        return Reply(torch.where(bad, wrong(question), question.reference.actions[..., 0]), question.who)


def wings() -> Team:
    """Careful at cost 3, quick (wrong three times in ten) at cost 1, eastern (wrong in the west) at cost 1."""
    return Team(
        [
            Member("careful", Mover(), cost=3.0),
            Member("quick", Mover(mistakes=SLOPPY), cost=1.0),
            Member("eastern", Mover(only_east=True), cost=1.0),
        ]
    )


apil.register_teacher("wings", wings)
