"""Acting by skill: from which answers the agent learns whom to act like."""

from __future__ import annotations

import torch
from torch import Tensor

from apil.nn import Parameters
from apil.rng import Draws
from apil.select.protocol import Selector, SelectSession, SelectSetup
from apil.select.skill import SkillBook
from apil.types import Episodes, Lessons


class Trusting:
    """A selector in a run that acts by skill.

    The identity model learns who answers where, and the agent acts like these. Here it learns from answers that are
    drawn by the skill of who gave them, `Fit.trust`: the agent acts like k in proportion to n_k exp(SHARPNESS skill_k),
    of those n_k who answered in such states.
    """

    def __init__(self, inner: Selector, setup: SelectSetup) -> None:
        self.inner, self.setup = inner, setup
        book = getattr(inner, "skills", None)
        self._watches = book is None
        self.skills: SkillBook = SkillBook(setup) if book is None else book

    @property
    def memory(self) -> Parameters:
        return {**self.inner.memory, **self.skills.memory}

    def begin(self, draws: Draws, episodes: int, horizon: int) -> SelectSession:
        return self.inner.begin(draws, episodes, horizon)

    def observe(self, episodes: Episodes) -> None:
        self.inner.observe(episodes)
        if self._watches:
            self.skills.observe(episodes)

    @torch.no_grad()
    def trust_in(self, run: int, features: Tensor, who: Tensor) -> Tensor | None:
        """[n]: how far answers of `who` [n] in states [n, F] count for what to do; None while nothing is known."""
        fit = self.skills.fit(run)
        return fit.trust_in(features, who) if len(fit.teacher) else None

    @torch.no_grad()
    def lessons(self, luck: Tensor) -> Lessons:
        """Answers of the window [runs, episodes, 1] to learn from whom to act like, drawn by how far each counts; none
        in runs where nothing is known yet. `luck` [runs, episodes] is uniform in (0, 1)."""
        own = self.skills.memory
        rows, some = torch.zeros_like(luck, dtype=torch.long), torch.zeros_like(luck, dtype=torch.bool)
        for run in range(len(luck)):
            fit = self.skills.fit(run)
            if len(fit.places):
                bounds = fit.trust.cumsum(0)
                drawn = torch.searchsorted(bounds, luck[run] * bounds[-1]).clamp_max(len(bounds) - 1)
                rows[run], some[run] = fit.places[drawn], True

        def at(values: Tensor) -> Tensor:
            place = rows.view(*rows.shape, *[1] * (values.dim() - 2)).expand(-1, -1, *values.shape[2:])
            return values.gather(1, place).unsqueeze(2)

        return Lessons(
            features=at(own["before"]),
            state=None,
            valid_actions=torch.ones(*rows.shape, 1, self.setup.actions, dtype=torch.bool),
            answered=some.unsqueeze(2),
            action=self._no_action(rows.shape),
            distance=at(own["distance"]),
            identity=at(own["teacher"]),
            live=some.unsqueeze(2),
        )

    def _no_action(self, shape: torch.Size) -> Tensor:
        """The policy learns nothing from these."""
        if self.setup.box is None:
            return torch.zeros(*shape, 1, dtype=torch.long)
        return torch.zeros(*shape, 1, len(self.setup.box.low))


def trusting(selector: Selector, setup: SelectSetup) -> Trusting:
    """A selector for runs that act by skill."""
    return Trusting(selector, setup)
