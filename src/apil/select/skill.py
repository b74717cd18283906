"""How good each teacher is, state by state, from what is observable.

An answer that was executed in s_t led to s_{t+1}. Its progress is d(s_t) - d(s_{t+1}), as a share of what is usual;
where the second distance is not known it is estimated, from the distances that came with answers and from those at the
end of every episode. Skill is the progress to be expected of a teacher's answer in a state: about 1 for one who is
right, below 0 for one who leads away. It is a Gaussian process for each teacher over a few slow features of the state,
learned from the steps of whole episodes: states that follow each other are in one region (docs/method/whom-to-ask.md).

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
ENDS = 128
"""Ends of episodes from which distances are estimated, the newest; they are known whether anybody was asked or not."""
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
_MOST, _DOUBT = 1.5, 1.0
"""Progress beyond this counts as this; so an estimate of it is not off by much more than a step, whatever the variance
of the distance: its own is at most this."""
_PRIOR, _WEIGHT = 0.3, 3.0
"""The skill of somebody about whom nothing is known, and how many answers that counts for."""
_FADE = 400.0
"""After so many answers of all teachers the evidence of an answer has e times its variance."""
_SIDE, _FALL, _ALARM, _USUALLY = 6, 0.5, 5.0, 4.0
"""A teacher has turned when his progress, with so many answers before and after at least, has fallen by so much and the
t of the fall is above the alarm. Of teachers who stay as they are about one in a hundred gives an alarm in 130 answers
(`benchmarks/whom.py --only alarms`). The last is how many answers the usual variance counts for."""
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
            "end": zeros(ENDS, features),
            "final": zeros(ENDS),
            "ends": zeros(1, dtype=torch.long),
            "count": zeros(1, dtype=torch.long),
            "answers": zeros(setup.teachers, dtype=torch.long),
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

        A batch without answers is left out, so that `fit` follows from the memory and changes with answers alone.
        """
        for run in range(len(episodes.answered)):
            rows = list(_outcomes(episodes, run))
            if rows:
                self._write(run, rows)
                if not self._wide:
                    self._walk(run, episodes.features[run].double(), episodes.live[run])
                self._end(run, episodes)
                self._watch(run, {row["teacher"] for row in rows})

    def _end(self, run: int, episodes: Episodes) -> None:
        """Takes in where episodes ended, and how far from the goal. What is kept is the last state that was seen, one
        step before: below 0 stands for an end at the goal, from which that step still had to be taken."""
        own, last = self.of_run(run), episodes.live[run].sum(1) - 1
        for episode, at in enumerate(last.tolist()):
            final = float(episodes.final_distance[run, episode])
            if at >= 0 and 0 <= final < float("inf"):
                place = int(own["ends"]) % ENDS
                own["end"][place] = episodes.features[run, episode, at]
                own["final"][place] = -1.0 if bool(episodes.success[run, episode]) else final
                own["ends"] += 1

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

    def _watch(self, run: int, who: set[int]) -> None:
        """Tests whether teachers who have answered have turned bad; who has starts over at that answer."""
        own, fit = self.of_run(run), self.fit(run)
        for k in sorted(who):
            mine = (fit.teacher == k).nonzero().flatten()
            order = mine[fit.number[mine].argsort()]
            fell = turning_point(fit.progress[order])
            if fell is not None:
                own["since"][k] = fit.number[order[fell]]
                own["turns"][k] += 1


def turning_point(progress: Tensor) -> int | None:
    """Since which of his answers a teacher is worse than before, if that is beyond chance; `progress` [n] in order.

    The largest t of all splits into before and after: a likelihood ratio test for a fall of the mean at an unknown
    time. The variance is that of his own answers, whatever it comes from, with a few of the usual kind.
    """
    count = len(progress)
    if count < 2 * _SIDE:
        return None
    before = torch.arange(_SIDE, count - _SIDE + 1, dtype=torch.float64)
    sums = progress.double().cumsum(0)
    first, second = sums[_SIDE - 1 : count - _SIDE] / before, count - before
    then = (sums[-1] - first * before) / second
    within = (progress.double().square().sum() - before * first.square() - second * then.square()).clamp_min(0.0)
    variance = (within + _USUALLY * _NOISE) / (count - 2 + _USUALLY)
    fall = (first - then) / (variance * (1.0 / before + 1.0 / second)).sqrt()
    fall = torch.where(first - then > _FALL, fall, 0.0)
    best = int(fall.argmax())
    return best + _SIDE if float(fall[best]) > _ALARM else None


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
    def of(rows: Tensor, distance: Tensor, noise: Tensor | None = None) -> Distances:
        """From states [m, F] and their distances [m], at least one, with the variance [m] of their noise."""
        kernel = Kernel.of(rows)
        states, far = kernel.scaled(rows), distance.double()
        mean, spread = float(far.mean()), float(far.std(correction=0))
        spread = spread if spread > 1e-9 else 1.0
        gram = kernel(states, states) + _LEVEL
        gram.diagonal().add_(_RIDGE if noise is None else _RIDGE + noise / spread**2)
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
    number: Tensor
    """[n] long: the how manyth of all answers each is."""
    progress: Tensor
    """[n]: about 1 where it is the usual."""
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
        distances, unit = _distances(own, memory)
        moved, doubt = _moved(own, distances)
        known = moved.isfinite()
        # The number of the answer in each place of the window; what a teacher said before he turned does not count.
        places = torch.arange(rows)
        number = count - 1 - (count - 1 - places) % window
        known &= number >= memory["since"][own["teacher"]]
        fade = torch.exp((count - 1 - number[known]).double() / _FADE)
        progress = (moved[known] / unit).clamp(-_MOST, _MOST)
        kernel = Kernel.of(own["before"] if rows else memory["before"], slow_basis(memory))
        states, who = kernel.scaled(own["before"][known]), own["teacher"][known]
        prior = float((progress.sum() + _WEIGHT * _PRIOR) / (len(progress) + _WEIGHT))
        noise = _noise(doubt[known], unit) * fade
        fitted = _of_teachers(kernel, states, who, progress - prior, noise)
        return Fit(distances, unit, kernel, states, who, places[known], number[known], progress, *fitted, prior)

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

    @cached_property
    def trust(self) -> Tensor:
        """[n]: how far each answer counts for whom to act like, from 0 to 1 for that of the most skilled there.

        Who is hardly known is not taken for skilled.
        """
        return self._trust(self.states, self.teacher)

    def trust_in(self, features: Tensor, who: Tensor) -> Tensor:
        """[n]: the same for answers of `who` [n] in states [n, F]."""
        return self._trust(self.kernel.scaled(features), who)

    def _trust(self, scaled: Tensor, who: Tensor) -> Tensor:
        if not len(who):
            return torch.zeros(0, dtype=torch.float64)
        known = torch.unique(torch.cat([self.teacher, who]))
        mean, variance = self._skills(scaled, known)
        skill = (mean - variance.sqrt()).clamp(-1.0, 1.0)
        own = skill.gather(1, torch.searchsorted(known, who).unsqueeze(1)).squeeze(1)
        return torch.exp(-SHARPNESS * (skill.amax(1) - own))


def _distances(answers: Parameters, memory: Parameters) -> tuple[Distances | None, float]:
    """What distances are, and the usual progress of a step.

    First from the distances of answers alone, which tell how long a step is; then with the ends of episodes, which are
    known up to a step.
    """
    given = answers["distance"] >= 0
    if not bool(given.any()):
        return None, 1.0
    rows, far = answers["before"][given], answers["distance"][given].double()
    first = Distances.of(rows, far)
    unit = _usual(answers, first)
    ends = min(len(memory["final"]), int(memory["ends"]))
    if not ends:
        return first, unit
    final = memory["final"][:ends].double()
    final = torch.where(final < 0, unit, final)
    noise = torch.cat([torch.zeros_like(far), torch.full_like(final, unit**2)])
    found = Distances.of(torch.cat([rows, memory["end"][:ends]]), torch.cat([far, final]), noise)
    return found, _usual(answers, found)


def _noise(doubt: Tensor, unit: float) -> Tensor:
    """[n]: the variance of progress around the skill of who answered, from that of distances."""
    return _NOISE + (doubt / unit**2).clamp_max(_DOUBT)


def _usual(answers: Parameters, distances: Distances) -> float:
    """How far answers lead, in the middle."""
    moved = _moved(answers, distances)[0]
    moved = moved[moved.isfinite()]
    found = float(moved.abs().median()) if len(moved) else 1.0
    return found if found > 1e-9 else 1.0


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
