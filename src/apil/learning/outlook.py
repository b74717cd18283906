"""What more answers would bring: looks at success alone while training, and what follows from them.

A look is a batch of episodes that ask nobody, on randomness of its own: training is the same with and without it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from apil.learning.curve import LearningCurve, Range
from apil.learning.walk import Agents, advance, walk
from apil.query.progress import reference_queries
from apil.settings import RunSettings
from apil.types import Episodes

FIRST = 10
"""Answers at the first look but one; the first is at the beginning."""
MARGIN = 0.02
"""A gain of success alone below this counts as none."""
SURE = 0.8
"""Where the gain from as many answers again is below `MARGIN` with this probability at two looks in a row, the outlook
is flat. A single look is high by chance too often."""
_LOWER = 0.02
"""Nats by which a loss must be lower to count as falling."""
NEAR = 0.05
"""An agent that is no further than this below its teachers is as good as they are."""
EARLY = 5
"""Looks below which nothing is said."""
FOLLOWED = 20
"""Episodes in which the teachers were followed to the end, from which their own success is estimated."""
_MOST = 64
"""Looks of a run: the last would be after ten billion answers."""
_PREFIX = "look/"
"""Of the streams of randomness."""
_UNKNOWN = 1e300
"""A loss that is not known; a checkpoint holds finite numbers only."""
_COLUMNS = ("answers", "success", "distance", "progress", "loss")
_SUMS = ("followed", "followed_successes", "steps", "progress_steps", "reported", "flat_since", "closed")

Verdict = Literal["early", "more", "learning", "as the teachers", "stalled"]


@dataclass(frozen=True)
class Look:
    """What was seen at one look."""

    answers: int
    episodes: int
    success: float
    """The share of episodes that succeeded alone."""
    distance: float
    """The mean final distance."""
    progress: float | None
    """The share of the steps of training since the look before from which there was progress, by Alg 2; None if there
    were none."""
    loss: float | None = None
    """On answers that are held out; None where there are none."""


@dataclass(frozen=True)
class Teachers:
    """What the teachers reach themselves: the bar for an agent that learns from them."""

    success: float | None
    """When they are followed at every step; None where d*_T says that they do not reach the goal."""
    episodes: int = 0
    """Of training in which they were; 0 if it is not measured but follows from d*_T."""
    distance: float | None = None
    """d*_T where it is set and not at the goal."""

    def matched(self, level: float, distance: float) -> bool:
        """Whether an agent with this success alone and this mean final distance is as good as they are."""
        if self.success is None:
            return self.distance is not None and distance <= self.distance
        return level >= self.success - NEAR

    def __str__(self) -> str:
        if self.success is None:
            return f"d*_T {self.distance:g}"
        known = f"over {self.episodes} episodes" if self.episodes else "by d*_T, not measured"
        return f"{self.success:.2f} {known}"


@dataclass(frozen=True)
class Outlook:
    """What more answers would bring."""

    verdict: Verdict
    answers: int
    """At the last look."""
    level: Range
    """Success alone now."""
    gain: Range
    """Of success alone from as many answers again."""
    flat: float
    """The probability that this is below `MARGIN`."""
    limit: Range
    """Success alone that it tends to."""
    needed: Range
    """Answers, those so far included, after which it is within `MARGIN` of the limit; median, low and high."""
    last_hundred: Range
    """What the last 100 answers brought."""
    teachers: Teachers

    @property
    def is_flat(self) -> bool:
        return self.verdict in ("as the teachers", "stalled")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Outlook:
        ranges = {name: Range(**found[name]) for name in ("level", "gain", "limit", "needed", "last_hundred")}
        return Outlook(**{**found, **ranges, "teachers": Teachers(**found["teachers"])})

    def __str__(self) -> str:
        now = f"{self.level.mean:.2f} alone after {self.answers:,} answers"
        gain = f"{100 * self.gain.mean:.1f} points [{100 * self.gain.low:.1f}, {100 * self.gain.high:.1f}]"
        if self.verdict == "early":
            return f"{now}: too early to say what more would bring."
        if self.verdict == "more":
            more = [max(0.0, n - self.answers) for n in (self.needed.mean, self.needed.low, self.needed.high)]
            return (
                f"{now}: more answers would help. As many again bring about {gain}; about {_about(more[0])} more "
                f"[{_about(more[1])}, {_about(more[2])}] bring it near {self.limit.mean:.2f}, which it tends to."
            )
        if self.verdict == "learning":
            return (
                f"{now}, flat, but the loss on held-out answers still falls: learning has not caught up with the "
                "answers. Success alone will show it later; more --updates shorten the wait."
            )
        if self.verdict == "as the teachers":
            return f"{now}, flat: it cannot get better than its teachers ({self.teachers}). As many again bring {gain}."
        return (
            f"{now}, flat: it has stopped learning though the teachers are better ({self.teachers}). As many answers "
            f"again bring {gain}. Try a larger --hidden or --encode, more --updates, an observation that says more, or "
            "another query rule."
        )


def _about(answers: float) -> str:
    """Two digits of a number."""
    digits = max(0, len(str(int(answers))) - 2)
    return f"{round(answers, -digits):,.0f}"


def curve_of(looks: Sequence[Look]) -> LearningCurve:
    """The posterior of success alone over answers."""
    return LearningCurve.of(
        [look.answers for look in looks], [look.episodes for look in looks], [look.success for look in looks]
    )


def _flat(curve: LearningCurve) -> float:
    """The probability that as many answers again bring less than `MARGIN`."""
    return curve.probability_below(MARGIN, curve.last, 2 * curve.last)


def _falls(looks: Sequence[Look]) -> bool:
    """Whether the loss on held-out answers is lower than it was with half as many answers, or is not known to be."""
    half = looks[-1].answers / 2
    now = [look.loss for look in looks if look.loss is not None and look.answers > half]
    before = [look.loss for look in looks if look.loss is not None and look.answers <= half]
    return not now or not before or min(now) < min(before) - _LOWER


def outlook(looks: Sequence[Look], teachers: Teachers, *, held_out: bool = False) -> Outlook:
    """What follows from the looks at a run.

    Where answers are `held_out`, an agent below its teachers is stalled only if the loss on these no longer falls:
    success comes after likelihood, and late where answers come faster than they are learned.
    """
    curve = curve_of(looks)
    now = curve.last
    level, gain = curve.level(now), curve.gain(now, 2 * now)
    flat = _flat(curve)
    verdict: Verdict = "more"
    if len(looks) < EARLY:
        verdict = "early"
    elif flat >= SURE and _flat(curve_of(looks[:-1])) >= SURE:
        learning = held_out and _falls(looks)
        verdict = "learning" if learning else "stalled"
        if teachers.matched(level.mean, looks[-1].distance):
            verdict = "as the teachers"
    hundred = curve.gain(max(0.0, now - 100), now)
    return Outlook(verdict, looks[-1].answers, level, gain, flat, curve.limit, curve.needed(MARGIN), hundred, teachers)


class Watch:
    """Looks at a stack of runs at geometric numbers of answers, each run at its own."""

    def __init__(self, configs: Sequence[RunSettings], success_distance: float) -> None:
        self._configs, self._success_distance = configs, success_distance
        self.episodes = configs[0].looks
        runs = len(configs)
        self._table = torch.zeros(runs, _MOST, len(_COLUMNS), dtype=torch.float64)
        self._count = torch.zeros(runs, dtype=torch.long)
        self._sums = torch.zeros(runs, len(_SUMS), dtype=torch.float64)
        self._found: list[Outlook | None] = [None] * runs
        self._stops = [config.query.stop == "when-flat" for config in configs]

    @property
    def closed(self) -> Tensor:
        """[runs]: the answers with which a run has stopped asking, infinite where it has not."""
        at = self._sums[:, _SUMS.index("closed")]
        return torch.where(at > 0, at, math.inf)

    def of_run(self, run: int) -> Outlook | None:
        """What the last look showed; None before there was one."""
        if self._found[run] is None and self._count[run]:
            self._found[run] = self._outlook(run)
        return self._found[run]

    def add(self, episodes: Episodes) -> None:
        """Processes a batch of training episodes: what progress they made, and where the teachers were followed."""
        same = episodes.taken == episodes.action
        same = same if same.dim() == episodes.live.dim() else same.all(-1)
        followed = ((episodes.answered & same) | ~episodes.live).all(-1)
        self._note("followed", followed.sum(1))
        self._note("followed_successes", (followed & episodes.success).sum(1))
        query = self._configs[0].query
        stuck = reference_queries(
            episodes.answered.flatten(0, 1),
            episodes.distance.flatten(0, 1),
            episodes.final_distance.flatten(),
            sigma=query.sigma,
            epsilon=query.epsilon,
            valid=episodes.live.flatten(0, 1),
            missing=True,
        ).view(episodes.live.shape)
        self._note("steps", episodes.live.sum((1, 2)))
        self._note("progress_steps", (episodes.live & ~stuck).sum((1, 2)))

    def _note(self, name: str, values: Tensor) -> None:
        self._sums[:, _SUMS.index(name)] += values

    def due(self, answers: Tensor, running: Sequence[bool]) -> Tensor:
        """[runs] bool: where a look is due after so many answers [runs]."""
        last = torch.gather(self._table[:, :, 0], 1, (self._count - 1).clamp_min(0).unsqueeze(1)).squeeze(1)
        reached = torch.tensor([n >= _next(had) for n, had in zip(answers.tolist(), last.tolist(), strict=True)])
        asks = torch.tensor(running) & self.closed.isinf()
        return asks & ((self._count == 0) | reached) & (self._count < _MOST)

    def look(self, agents: Agents, iteration: int, due: Tensor, answers: Tensor, losses: Tensor) -> None:
        """Walks alone, and takes in what is seen of the runs that are `due`; `losses` [runs] are those on held-out
        answers, NaN where there are none."""
        seen = advance(walk(agents, iteration, self.episodes, "alone", _PREFIX))
        assert isinstance(seen, Episodes), "an agent alone asks nobody"
        success, distance = seen.success.double().mean(1), seen.final_distance.double().mean(1)
        for run in due.nonzero().flatten().tolist():
            steps, progress = (self._sums[run, _SUMS.index(name)] for name in ("steps", "progress_steps"))
            share = float(progress / steps) if steps else -1.0
            loss = _UNKNOWN if losses[run].isnan() else float(losses[run])
            row = [float(answers[run]), float(success[run]), float(distance[run]), share, loss]
            self._table[run, self._count[run]] = torch.tensor(row, dtype=torch.float64)
            self._count[run] += 1
            steps.zero_()
            progress.zero_()
            self._found[run] = found = self._outlook(run)
            self._judge(run, found)

    def _judge(self, run: int, found: Outlook) -> None:
        """Stops asking where the outlook has been flat for long enough."""
        since, closed = (self._sums[run, _SUMS.index(name)] for name in ("flat_since", "closed"))
        if not found.is_flat:
            since.zero_()
            return
        patience = self._configs[run].query.patience
        if not float(since):
            since.fill_(max(found.answers, 1))
        if self._stops[run] and found.answers - float(since) >= (patience or 0):
            closed.fill_(found.answers)

    def _looks(self, run: int, first: int = 0) -> list[Look]:
        rows = self._table[run, first : int(self._count[run])].tolist()
        return [
            Look(int(n), self.episodes, success, d, p if p >= 0 else None, loss if loss < _UNKNOWN else None)
            for n, success, d, p, loss in rows
        ]

    def _outlook(self, run: int) -> Outlook:
        held_out = self._configs[run].learner.validation > 0
        return outlook(self._looks(run), self._teachers(run), held_out=held_out)

    def _teachers(self, run: int) -> Teachers:
        """As measured in training, else as d*_T says."""
        followed, successes = self._sums[run, :2].tolist()
        if followed >= FOLLOWED:
            return Teachers((successes + 0.5) / (followed + 1.0), int(followed))  # the mean of Jeffreys' posterior
        gap = self._configs[run].query.gap
        reached = gap == "estimate" or gap <= self._success_distance
        return Teachers(1.0) if reached else Teachers(None, distance=float(gap))

    def row(self, run: int) -> dict[str, Any]:
        """The looks since the last row of metrics and what follows from them; nothing where there was none."""
        reported = self._sums[run, _SUMS.index("reported")]
        new, found = self._looks(run, int(reported)), self.of_run(run)
        if not new or found is None:
            return {}
        reported.fill_(int(self._count[run]))
        return {"looks": [asdict(look) for look in new], "outlook": found.to_json()}

    def state(self, run: int) -> dict[str, Tensor]:
        """Of one run, for a checkpoint; empty where there are no looks."""
        if not self.episodes:
            return {}
        count = self._count[run].double().view(1)
        return {"looks": self._table[run].clone(), "looks.sums": torch.cat([count, self._sums[run]])}

    def restore(self, saved: Sequence[Mapping[str, Tensor]]) -> None:
        """Restores the states of all runs."""
        for run, own in enumerate(saved):
            if "looks" in own:
                self._table[run] = own["looks"]
                self._count[run] = int(own["looks.sums"][0])
                self._sums[run] = own["looks.sums"][1:]
                self._found[run] = None


def _next(answers: float) -> float:
    """The number of answers from which on the next look is due, after one at `answers`: 10, 14, 20, 28, 40, ..."""
    if answers < FIRST:
        return FIRST
    step = math.floor(2 * math.log2(answers / FIRST) + 1e-9) + 1
    return FIRST * math.pow(2.0, step / 2)
