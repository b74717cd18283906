"""How good each teacher is, state by state, from what is observable.

An answer that was executed in s_t led to s_{t+1}. Its progress is d(s_t) - d(s_{t+1}), as a share of what is usual;
where nobody gave the second distance it is estimated, from all distances given so far. Skill is the progress
to be expected of a teacher's answer in a state: about 1 for one who is right, below 0 for one who leads away. It is a
Gaussian process for each teacher over a few slow features of the state, learned from all steps of all episodes: states
that follow each other are in one region (docs/method/whom-to-ask.md).

All is computed from a window of the newest answers, run by run: the same bits alone and in a stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from apil.nn import Parameters
from apil.select.protocol import SelectSetup
from apil.types import Episodes

WINDOW = 256
"""Answers from which skill is estimated, the newest."""
SHARPNESS = 8.0
"""How much less an answer counts for whom to act like: e^-SHARPNESS for a skill that is lower by 1 than the best."""
SLOW = 4
"""Slow features of a state."""
WIDEST = 512
"""Features up to which slow ones are looked for; of more, the first random projections."""
_GIVEN, _ESTIMATED, _UNKNOWN = 0, 1, 2
"""What is known of the distance after an answer: it was given; it can be estimated; nothing."""
_OF_TEACHER = 0.3
"""Prior variance of skill between teachers ..."""
_OF_STATE = (0.02, 0.3, 1.0, 3.0)
"""... and between the states of one: that which makes his answers most probable."""
_USUAL, _FEW = 0.3, 8
"""The variance between states of teachers with fewer answers than this."""
_NOISE = 0.3
"""Variance of the progress of a single answer, beside that of an estimated distance."""
_MOST = 1.5
"""Progress beyond this counts as this."""
_PRIOR, _WEIGHT = 0.3, 3.0
"""The skill of somebody about whom nothing is known, and how many answers that counts for."""
_FADE = 400.0
"""After so many answers of all teachers the evidence of an answer has e times its variance."""
_SLACK, _ALARM = 0.75, 8.0
"""A teacher has turned when what he falls short of, in standard deviations beyond the slack, adds up to the alarm."""
_RIDGE, _LEVEL = 0.02, 0.25
"""Of distances: the variance of noise and of the mean, as shares of their variance."""


class SkillBook:
    """The skills of the teachers of a stack of runs."""

    def __init__(self, setup: SelectSetup, window: int = WINDOW) -> None:
        runs, features = len(setup.streams.seeds), setup.features
        self.teachers, self.window, self._wide = setup.teachers, window, features > WIDEST

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(runs, *shape, dtype=dtype)

        square = (0, 0) if self._wide else (features, features)
        self.memory: Parameters = {
            "before": zeros(window, features),
            "after": zeros(window, features),
            "teacher": zeros(window, dtype=torch.long),
            "known": zeros(window, dtype=torch.long),
            "distance": zeros(window),
            "reached": zeros(window),
            "count": zeros(1, dtype=torch.long),
            "answers": zeros(setup.teachers, dtype=torch.long),
            "short": zeros(setup.teachers),
            "start": zeros(setup.teachers, dtype=torch.long),
            "since": zeros(setup.teachers, dtype=torch.long),
            "turns": zeros(setup.teachers, dtype=torch.long),
            "spread": zeros(*square, dtype=torch.float64),
            "change": zeros(*square, dtype=torch.float64),
            "steps": zeros(2, dtype=torch.float64),
        }
        self._fits: dict[int, tuple[tuple[int, int], Fit]] = {}

    def of_run(self, run: int) -> Parameters:
        """The memory of one run, as views."""
        return {name: value[run] for name, value in self.memory.items()}

    def fit(self, run: int) -> Fit:
        """What is known of the teachers of a run; computed when it is first asked for after new answers."""
        key = int(self.memory["count"][run]), int(self.memory["turns"][run].sum())
        if run not in self._fits or self._fits[run][0] != key:
            self._fits[run] = key, Fit.of(self.of_run(run))
        return self._fits[run][1]

    @torch.no_grad()
    def observe(self, episodes: Episodes) -> None:
        """Takes in a batch of training episodes: all their steps, and the answers in the order of episodes and steps.

        Steps count when the next answers come: until then `fit` is that of the answers before.
        """
        for run in range(len(episodes.answered)):
            rows = list(_outcomes(episodes, run))
            if rows:
                fit = self.fit(run)
                self._watch(run, rows, fit)
                self._write(run, rows)
            if not self._wide:
                self._walk(run, episodes.features[run].double(), episodes.live[run])

    def _walk(self, run: int, features: Tensor, live: Tensor) -> None:
        """Adds up how features spread within an episode, and how they change from step to step."""
        own, there = self.of_run(run), live.unsqueeze(-1)
        steps = live.sum(1).clamp_min(1).view(-1, 1, 1)
        middle = torch.where(there, features, 0.0).sum(1, keepdim=True) / steps
        apart = torch.where(there, features - middle, 0.0).flatten(0, 1)
        both = there[:, 1:] & there[:, :-1]
        moved = torch.where(both, features[:, 1:] - features[:, :-1], 0.0).flatten(0, 1)
        own["spread"] += apart.T @ apart
        own["change"] += moved.T @ moved
        own["steps"] += torch.stack([live.sum(), both.sum()]).double()

    def _write(self, run: int, rows: list[dict[str, Any]]) -> None:
        own = self.of_run(run)
        for number, row in enumerate(rows, int(own["count"])):
            for name, value in row.items():
                own[name][number % self.window] = value
            own["answers"][row["teacher"]] += 1
        own["count"] += len(rows)

    def _watch(self, run: int, rows: list[dict[str, Any]], fit: Fit) -> None:
        """Adds up what teachers fall short of their skill (Page's test); one who has turned starts over."""
        own, count = self.of_run(run), int(self.memory["count"][run])
        who = torch.tensor([row["teacher"] for row in rows])
        mean, variance = fit.of_teachers(torch.stack([row["before"] for row in rows]), who)
        progress, noise = fit.progress({name: torch.stack([torch.as_tensor(r[name]) for r in rows]) for name in _READ})
        short = (mean - progress) / (variance + noise).sqrt() - _SLACK
        for at, (k, by) in enumerate(zip(who.tolist(), short.tolist(), strict=True)):
            if by != by:  # nothing is known of its progress
                continue
            total = max(0.0, float(own["short"][k]) + by)
            if total == 0.0:
                own["start"][k] = count + at + 1
            elif total > _ALARM:
                own["turns"][k] += 1
                own["since"][k] = own["start"][k]
                total = 0.0
            own["short"][k] = total


_READ = ("after", "known", "distance", "reached")


def _outcomes(episodes: Episodes, run: int) -> Iterator[dict[str, Any]]:
    """The answers of a run, each as a row of the window."""
    steps = episodes.live.shape[-1]
    for episode, t in episodes.answered[run].nonzero().tolist():
        at = run, episode, t
        distance, last = float(episodes.distance[at]), t + 1 == steps or not bool(episodes.live[run, episode, t + 1])
        done = bool((episodes.taken[at] == episodes.action[at]).all())
        reached = float(episodes.final_distance[run, episode] if last else episodes.distance[run, episode, t + 1])
        said = 0 <= distance < float("inf")
        given = done and said and 0 <= reached < float("inf")
        yield {
            "before": episodes.features[at],
            "after": episodes.features[run, episode, min(t + 1, steps - 1)],
            "teacher": int(episodes.identity[at]),
            "known": _GIVEN if given else _ESTIMATED if done and said and not last else _UNKNOWN,
            "distance": distance if said else -1.0,
            "reached": reached if given else -1.0,
        }


def slow_basis(memory: Mapping[str, Tensor]) -> Tensor:
    """[F, SLOW]: linear features that change least from step to step for how they spread within an episode.

    Slow feature analysis (Wiskott and Sejnowski 2002) of one run; of very wide states the features as they are.
    """
    features = memory["before"].shape[-1]
    if not bool(memory["spread"].any()):
        return torch.eye(features, min(features, SLOW), dtype=torch.float64)
    spread, change = memory["spread"] / memory["steps"][0], memory["change"] / memory["steps"][1].clamp_min(1.0)
    found = torch.linalg.eigh(spread)
    size, directions = found.eigenvalues, found.eigenvectors
    kept = size > 1e-3 * size[-1]
    white = directions[:, kept] / size[kept].sqrt()
    slow: Tensor = torch.linalg.eigh(white.T @ change @ white).eigenvectors
    basis: Tensor = white @ slow[:, :SLOW]
    return basis


@dataclass(frozen=True)
class Kernel:
    """How alike states are: half linear, half by their distance. On average a state is alike to itself by 1."""

    basis: Tensor
    """[F, n]"""
    centre: Tensor
    scale: Tensor
    """Both [n]."""
    width: float
    """The mean square of a scaled state."""

    @staticmethod
    def of(rows: Tensor, basis: Tensor | None = None) -> Kernel:
        """Scaled by `rows` [m, F]; of the features themselves if there is no basis."""
        basis = torch.eye(rows.shape[1], dtype=torch.float64) if basis is None else basis
        rows = rows.double() @ basis
        spread = rows.std(0, correction=0)
        scale = 1.0 / spread.clamp_min(0.25 * float(spread.max()) + 1e-9)
        centre = rows.mean(0)
        width = float(((rows - centre) * scale).square().sum(1).mean())
        return Kernel(basis, centre, scale, width if width > 1e-9 else 1.0)

    def scaled(self, rows: Tensor) -> Tensor:
        """[m, F] -> [m, n]"""
        return (rows.double() @ self.basis - self.centre) * self.scale

    def __call__(self, some: Tensor, others: Tensor) -> Tensor:
        """[m, k], of scaled states [m, n] and [k, n]."""
        product = some @ others.T
        squares = some.square().sum(1).unsqueeze(1) + others.square().sum(1) - 2.0 * product
        return 0.5 * product / self.width + 0.5 * torch.exp(-squares.clamp_min(0.0) / self.width)

    def itself(self, some: Tensor) -> Tensor:
        """[m]: how alike scaled states [m, n] are to themselves."""
        return 0.5 * some.square().sum(1) / self.width + 0.5


@dataclass(frozen=True)
class Distances:
    """What distances are in states where nobody gave them: a Gaussian process over the features."""

    kernel: Kernel
    states: Tensor
    """[m, F]: scaled states with a known distance."""
    root: Tensor
    """[m, m]: the Cholesky factor of the covariance."""
    weights: Tensor
    """[m]"""
    mean: float
    spread: float

    @staticmethod
    def of(rows: Tensor, distance: Tensor) -> Distances:
        """From states [m, F] and their distances [m], at least one."""
        kernel = Kernel.of(rows)
        states, far = kernel.scaled(rows), distance.double()
        mean, spread = float(far.mean()), float(far.std(correction=0))
        spread = spread if spread > 1e-9 else 1.0
        gram = kernel(states, states) + _LEVEL
        gram.diagonal().add_(_RIDGE)
        root = torch.linalg.cholesky(gram)
        weights = torch.cholesky_solve(((far - mean) / spread).unsqueeze(1), root).squeeze(1)
        return Distances(kernel, states, root, weights, mean, spread)

    def __call__(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """[n] twice: mean and variance in states [n, F]."""
        scaled = self.kernel.scaled(features)
        alike = self.kernel(scaled, self.states) + _LEVEL
        explained = torch.linalg.solve_triangular(self.root, alike.T, upper=False).square().sum(0)
        left = (self.kernel.itself(scaled) + _LEVEL - explained).clamp_min(0.0)
        return self.mean + self.spread * (alike @ self.weights), self.spread**2 * left


@dataclass(frozen=True)
class Fit:
    """What is known of the teachers of one run."""

    distances: Distances | None
    """None where no distance is known."""
    unit: float
    """The usual progress of a step, in the unit of distances."""
    kernel: Kernel
    states: Tensor
    """[n, SLOW]: scaled states of the answers with a known progress."""
    teacher: Tensor
    """[n] long"""
    places: Tensor
    """[n] long: where they are in the window."""
    inverse: Tensor
    """[n, n]: of the covariance, with zeros between teachers."""
    weights: Tensor
    """[n]: the inverse times the progress beyond the prior."""
    varies: Tensor
    """[n]: the variance between states of the teacher of each answer."""
    prior: float
    """The mean skill of all teachers."""

    @staticmethod
    def of(memory: Parameters) -> Fit:
        """From the memory of one run."""
        window, count = len(memory["known"]), int(memory["count"])
        rows = min(window, count)
        own = {name: memory[name][:rows] for name in ("before", "teacher", *_READ)}
        given = own["distance"] >= 0
        distances = Distances.of(own["before"][given], own["distance"][given]) if bool(given.any()) else None
        moved, doubt = _moved(own, distances)
        known = moved.isfinite()
        unit = float(moved[known].abs().median()) if bool(known.any()) else 1.0
        unit = unit if unit > 1e-9 else 1.0
        # The number of the answer in each place of the window; what a teacher said before he turned does not count.
        places = torch.arange(rows)
        number = count - 1 - (count - 1 - places) % window
        known &= number >= memory["since"][own["teacher"]]
        fade = torch.exp((count - 1 - number[known]).double() / _FADE)
        progress = (moved[known] / unit).clamp(-_MOST, _MOST)
        kernel = Kernel.of(own["before"] if rows else memory["before"], slow_basis(memory))
        states, who = kernel.scaled(own["before"][known]), own["teacher"][known]
        prior = float((progress.sum() + _WEIGHT * _PRIOR) / (len(progress) + _WEIGHT))
        noise = (_NOISE + doubt[known] / unit**2) * fade
        fitted = _of_teachers(kernel, states, who, progress - prior, noise)
        return Fit(distances, unit, kernel, states, who, places[known], *fitted, prior)

    def progress(self, rows: Parameters) -> tuple[Tensor, Tensor]:
        """[n] twice: the progress of answers, about 1 where it is the usual and NaN where it is not known; its
        variance."""
        moved, doubt = _moved(rows, self.distances)
        return (moved / self.unit).clamp(-_MOST, _MOST), _NOISE + doubt / self.unit**2

    def skills(self, features: Tensor, who: Tensor) -> tuple[Tensor, Tensor]:
        """[n, C] twice: mean and variance of the skill of the teachers `who` [C] in states [n, F]."""
        return self._skills(self.kernel.scaled(features), who)

    def _skills(self, scaled: Tensor, who: Tensor) -> tuple[Tensor, Tensor]:
        own = (self.teacher.unsqueeze(1) == who).double()
        alike = _OF_TEACHER + self.varies * self.kernel(scaled, self.states)
        mean = self.prior + (alike * self.weights) @ own
        explained = (alike * (alike @ self.inverse)) @ own
        varies = torch.where(own.any(0), (own * self.varies.unsqueeze(1)).amax(0) if len(own) else 0.0, _USUAL)
        variance = _OF_TEACHER + varies * self.kernel.itself(scaled).unsqueeze(1) - explained
        return mean, variance.clamp_min(1e-6)

    def average(self, features: Tensor, k: int) -> tuple[float, float]:
        """Mean and variance of the mean skill of a teacher over states [n, F], at least one."""
        scaled, own = self.kernel.scaled(features), (self.teacher == k).nonzero().flatten()
        varies = float(self.varies[own[0]]) if len(own) else _USUAL
        alike = _OF_TEACHER + varies * self.kernel(scaled, self.states[own]).mean(0)
        prior = _OF_TEACHER + varies * float(self.kernel(scaled, scaled).mean())
        mean = self.prior + float(alike @ self.weights[own])
        return mean, max(1e-6, prior - float(alike @ self.inverse[own.unsqueeze(1), own] @ alike))

    def of_teachers(self, features: Tensor, who: Tensor) -> tuple[Tensor, Tensor]:
        """[n] twice: the same of one teacher in each state, `who` [n]."""
        some, place = torch.unique(who, return_inverse=True)
        mean, variance = self.skills(features, some)
        at = place.unsqueeze(1)
        return mean.gather(1, at).squeeze(1), variance.gather(1, at).squeeze(1)

    @cached_property
    def trust(self) -> Tensor:
        """[n]: how far each answer counts for whom to act like, from 0 to 1 for that of the most skilled there.

        Who is hardly known is not taken for skilled.
        """
        known = torch.unique(self.teacher)
        mean, variance = self._skills(self.states, known)
        skill = (mean - variance.sqrt()).clamp(-1.0, 1.0)
        own = skill.gather(1, torch.searchsorted(known, self.teacher).unsqueeze(1)).squeeze(1)
        return torch.exp(-SHARPNESS * (skill.amax(1) - own)) if len(own) else own


def _moved(rows: Parameters, distances: Distances | None) -> tuple[Tensor, Tensor]:
    """[n] twice: how much nearer answers led, NaN where that is not known; its variance where it is estimated."""
    known, reached = rows["known"], rows["reached"].double().clone()
    doubt, guessed = torch.zeros_like(reached), (known == _ESTIMATED) & (distances is not None)
    if distances is not None and bool(guessed.any()):
        reached[guessed], doubt[guessed] = distances(rows["after"][guessed])
    return torch.where(guessed | (known == _GIVEN), rows["distance"].double() - reached, torch.nan), doubt


def _of_teachers(
    kernel: Kernel, states: Tensor, who: Tensor, beyond: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`inverse`, `weights` and `varies` of a fit, teacher by teacher."""
    count = len(states)
    inverse, weights = torch.zeros(count, count, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
    varies = torch.full((count,), _USUAL, dtype=torch.float64)
    for k in torch.unique(who).tolist():
        at = (who == k).nonzero().flatten()
        alike = kernel(states[at], states[at])
        best = -torch.inf
        for variance in _OF_STATE if len(at) >= _FEW else (_USUAL,):
            gram = _OF_TEACHER + variance * alike
            gram.diagonal().add_(noise[at])
            root = torch.linalg.cholesky(gram)
            solved = torch.cholesky_solve(beyond[at].unsqueeze(1), root).squeeze(1)
            likelihood = float(-0.5 * beyond[at] @ solved - root.diagonal().log().sum())
            if likelihood > best:
                best, chosen = likelihood, (variance, root, solved)
        varies[at], weights[at] = chosen[0], chosen[2]
        inverse[at.unsqueeze(1), at] = torch.cholesky_inverse(chosen[1])
    return inverse, weights, varies
