"""A budget of answers: how many are left, and whether learning from the present ones still helps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

PATIENCE = 5
"""Looks without a better loss after which a run ends."""
SILENT = 50
"""Looks without a new answer after which a rule counts as one that no longer asks."""
ENDED = "no more are asked for, and the loss on answers that are held out no longer improves"
"""Why a run ends before its last iteration."""
_BETTER = 0.002
"""A loss counts as better where it is lower by this share ..."""
_LEAST = 0.001
"""... and by this many nats."""


class Spending:
    """The budgets of a stack of runs. A run without a budget that is not closed either never ends by itself."""

    def __init__(self, budgets: Sequence[int | None], closing: Sequence[bool] | None = None) -> None:
        """`closing` says which runs may be closed before their budget is spent."""
        self._budget = torch.tensor([math.inf if budget is None else budget for budget in budgets], dtype=torch.float64)
        self._limited = self._budget.isfinite()
        if closing is not None:
            self._limited |= torch.tensor(closing)
        self.any = bool(self._limited.any())
        """Some run has a budget, or may be closed."""
        self._best = torch.full_like(self._budget, math.inf)
        self._waited, self._silent, self._answers = (torch.zeros_like(self._budget) for _ in range(3))
        self.ended = torch.zeros(len(budgets), dtype=torch.bool)
        """[runs] bool: the answers are spent, or no more are asked for, and learning from them no longer helps."""

    def left(self, answers: Tensor) -> Tensor | None:
        """[runs] long: how many may still be had after `answers` [runs]; None where no run has a budget."""
        if not self.any:
            return None
        # A run that has ended asks nothing, though a silent rule may have left something.
        left = torch.where(self._limited, self._budget - answers, float(2**53)).clamp(0, 2**53)
        return torch.where(self.ended, 0, left).long()

    def close(self, at: Tensor) -> None:
        """Asks no more: the budgets are at most `at` [runs], infinite where a run stays open."""
        self._budget = torch.minimum(self._budget, at)

    def look(self, answers: Tensor, losses: Tensor) -> None:
        """Records the answers so far and the validation losses, both [runs]; NaN where nothing is held out."""
        self._silent = torch.where(answers > self._answers, 0.0, self._silent + 1)
        self._answers = answers.clone()
        asks = (answers < self._budget) & (self._silent < SILENT)
        losses = losses.double().nan_to_num(math.inf)
        known = self._best.nan_to_num(posinf=0.0)
        better = losses < torch.where(self._best.isinf(), self._best, known - (_BETTER * known).clamp_min(_LEAST))
        self._best = torch.where(better, losses, self._best)
        self._waited = torch.where(asks | better, 0.0, self._waited + 1)
        # What was best while there were fewer answers is no yardstick for what follows.
        self._best = torch.where(asks, math.inf, self._best)
        self.ended |= self._limited & ~asks & (self._waited >= PATIENCE)

    def state(self, run: int) -> dict[str, Tensor]:
        """Of one run, for a checkpoint; empty without a budget."""
        if not bool(self._limited[run]):
            return {}
        parts = (self._best, self._waited, self._silent, self._answers, self.ended.double())
        # A checkpoint holds finite numbers only.
        return {"spending": torch.stack([part[run] for part in parts]).clamp_max(1e300)}

    def restore(self, saved: Sequence[Mapping[str, Tensor]]) -> None:
        """Restores the states of all runs."""
        for run, own in enumerate(saved):
            if "spending" in own:
                best, waited, silent, answers, ended = own["spending"].tolist()
                self._best[run] = math.inf if best >= 1e300 else best
                self._waited[run], self._silent[run], self._answers[run] = waited, silent, answers
                self.ended[run] = bool(ended)


def has_ended(saved: Mapping[str, Tensor]) -> bool:
    """Whether the saved state of a run is that of one that has ended before its last iteration."""
    return "spending" in saved and bool(saved["spending"][-1])
