"""SLIP: asks where the agent is about to make its first mistake of an episode, in states unlike those asked about."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from apil.nn import Parameters, mlp, mlp_parameters
from apil.query.gates import Drawn, DrawnBatch, Gate, Threshold
from apil.query.protocol import QueryLoss, QuerySetup, over_steps
from apil.types import Answer, Belief, Episodes

FLOOR = 0.1
"""Added to the mistakes of an episode: no state is ruled out."""
POWER = 4.0
"""Questions are drawn in proportion to the score to this power."""
SUDDEN, NARROWED, FORGET = 0.6, 0.6, 0.05
"""How sudden early ends are at first, how many failures hindsight narrows down, and the weight of each new episode in
these moving averages."""
CLIP = 5.0
"""Standard deviations; what lies farther out is clipped."""
REPEAT = 3.0
"""How much an answered state counts against asking in the same state again."""
REACH = 0.1
"""How alike two states are: the width of the kernel, in standard deviations of a feature."""
RETURNED = 0.1
"""What a score is multiplied with in a state where the episode has been before."""
NEAR = 0.5
"""An episode is back in a state if it is closer to it than this share of the shortest step."""
FADE = 1.01
"""By how much the shortest step so far grows with each batch in which none is as short."""
ANSWERS = 512
"""Answered states that are remembered, the newest."""
FEATURES = 256
"""Features that states are compared by; of more, evenly spaced ones."""
_EXACT = "donot_use_mm_for_euclid_dist"
_STEADY = 1e-3
"""Features with a standard deviation below this are left out."""


def slips(back: Tensor, live: Tensor, success: Tensor, sudden: Tensor) -> tuple[Tensor, Tensor]:
    """The steps among which an episode made its first mistake, in hindsight.

    The first circle of an episode is the way from a state back to it that is completed first: one of its steps was a
    mistake, and what comes after it says nothing about the first mistake. An episode without a circle that ends too
    early made it at its last step, if such ends are sudden; otherwise, and if it has run out of time, it made it
    somewhere.

    Args:
        back: `[episodes, T, T]` bool: the state of step j is that of step i, where j > i.
        live: `[episodes, T]` bool.
        success: `[episodes]` bool.
        sudden: `[episodes]` bool: an early end comes from the last action alone.

    Returns:
        `[episodes, T]` bool: one of these steps was a mistake, if there are any; and `[episodes, T]` bool: the steps of
        which something is known.
    """
    horizon = live.shape[1]
    step = torch.arange(horizon)
    back = back & live.unsqueeze(1) & live.unsqueeze(2) & (step.unsqueeze(1) < step)
    returns = torch.where(back, step, horizon).amin(-1)  # [episodes, T]: when the state of a step is seen again
    closed = returns.amin(-1, keepdim=True)
    opened = torch.where(returns == closed, step, -1).amax(-1, keepdim=True)
    circle = closed < horizon
    length = live.sum(-1, keepdim=True)
    failed = ~success.unsqueeze(-1) & ~circle
    at_once = sudden.unsqueeze(-1) & (length < horizon)
    first = torch.where(circle, opened, torch.where(at_once, length - 1, 0))
    end = torch.where(circle, closed, length)
    return live & (circle | failed) & (step >= first) & (step < end), live & (step < end)


class Slip:
    """A query policy whose score is the probability of a first mistake, smaller in states like answered ones."""

    executes_answer = True
    reads_features = True

    def __init__(self, setup: QuerySetup) -> None:
        self._setup = setup
        self.gate = Threshold(setup.thresholds) if setup.budgets is None else Drawn(setup.budgets)
        runs, size = len(setup.streams.seeds), setup.features or setup.state_size
        self.columns = torch.linspace(0, size - 1, min(size, FEATURES)).round().long()
        shape = (runs, len(self.columns))
        # Four logits for each action or, where these are continuous, for the one that is part of the input.
        inputs, outputs = (0, setup.actions) if setup.box is None else (len(setup.box.low), 1)
        sizes = (shape[1] + inputs, setup.hidden, 4 * outputs)
        self.parameters: Parameters = mlp_parameters(setup.streams, "slip", sizes)
        self._answers = torch.zeros(runs, ANSWERS, shape[1])
        self._given = torch.zeros(runs, dtype=torch.float64)
        self._sums = torch.zeros(runs, 2, shape[1], dtype=torch.float64)
        self._steps = torch.zeros(runs, dtype=torch.float64)
        self._short = torch.zeros(runs)
        self._sudden, self._narrowed = torch.full((runs,), SUDDEN), torch.full((runs,), NARROWED)
        self._seen: tuple[Episodes, Tensor, Tensor] | None = None
        own = {"answers": self._answers, "given": self._given, "sums": self._sums}
        self.memory: Parameters = {
            **own,
            "steps": self._steps,
            "short": self._short,
            "sudden": self._sudden,
            "narrowed": self._narrowed,
            **{f"gate.{name}": value for name, value in self.gate.memory.items()},
        }

    def begin(self, episodes: int, training: bool = True) -> SlipSession:
        return SlipSession(self, self.gate, training)

    def inputs(self, seen: Tensor) -> Tensor:
        """[runs, n, features] as observed -> the same standardised, and clipped."""
        mean = (self._sums[:, 0] / self._steps.clamp_min(1.0).unsqueeze(-1)).float()
        return ((seen - mean.unsqueeze(1)) * self.scale().unsqueeze(1)).clamp(-CLIP, CLIP)

    def predict(self, seen: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What each action leads to in the states `seen` [runs, n, features]: log-probabilities, each [runs, n, A, 2].

        Of no mistake and a mistake; and of going on and an early end. With a continuous `action` [runs, n, size], from
        -1 to 1, those of this one: A is 1. Before anything is learned, each is expected once an episode.
        """
        inputs = self.inputs(seen) if action is None else torch.cat([self.inputs(seen), action], -1)
        logits = mlp(self.parameters, inputs)
        rare = math.log(max(1, self._setup.horizon - 1))
        pairs = [torch.stack([logits[..., k::4], logits[..., k + 1 :: 4] - rare], -1) for k in (0, 2)]
        return pairs[0].log_softmax(-1), pairs[1].log_softmax(-1)

    def predict_taken(self, seen: Tensor, taken: Tensor) -> tuple[Tensor, Tensor]:
        """The same for the action `taken` [runs, n] or, as the task has it, [runs, n, size]: each [runs, n, 2]."""
        if self._setup.box is None:
            places = taken.view(*taken.shape, 1, 1).expand(-1, -1, -1, 2)
            mistake, end = (logs.gather(2, places) for logs in self.predict(seen))
        else:
            mistake, end = self.predict(seen, self._setup.box.scaled(taken))
        return mistake.squeeze(2), end.squeeze(2)

    def predict_all(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """The same for all actions; of continuous ones for none at all, and each as far as it goes either way."""
        if self._setup.box is None:
            return self.predict(seen)
        size, (runs, states, width) = len(self._setup.box.low), seen.shape
        axes = torch.eye(size)
        some = torch.cat([torch.zeros(1, size), axes, -axes])
        wide = seen.unsqueeze(2).expand(-1, -1, len(some), -1).reshape(runs, -1, width)
        found = self.predict(wide, some.repeat(states, 1).expand(runs, -1, -1))
        mistake, end = (logs.view(runs, states, len(some), 2) for logs in found)
        return mistake, end

    def sudden(self) -> Tensor:
        """[runs] bool: early ends come from the last action alone."""
        return self._sudden > 0.5

    def power(self) -> Tensor:
        """[runs, 1]: the power of the score; 0, which is drawing at random, where hindsight says too little."""
        least = 0.0 if isinstance(self.gate, Drawn) else POWER
        return torch.where(self._narrowed > 0.5, POWER, least).unsqueeze(1)

    def mistakes(self, seen: Tensor) -> Tensor:
        """[runs, n, A]: how likely each action is to be a mistake in the states `seen`, as hindsight has it."""
        return self.predict_all(seen)[0].exp()[..., 1]

    def wrong(self, seen: Tensor, every: Tensor, mean: Tensor) -> Tensor:
        """[runs, n]: how likely the agent is to go wrong in the states `seen`: by hindsight, or by its own doubt.

        `every` are their `mistakes`, `mean` is the mean policy.
        """
        if self._setup.box is not None:
            action = mean[..., : len(self._setup.box.low)]
            return self._less_least(self.predict(seen, action)[0].exp()[..., 0, 1], every)
        return 1 - (1 - self._less_least((mean * every).sum(-1), every)) * mean.amax(-1)

    def went_wrong(self, seen: Tensor, every: Tensor, mean: Tensor, taken: Tensor) -> Tensor:
        """[runs, n]: how likely the action `taken` was wrong: by hindsight, or since the agent prefers another."""
        slips = self._less_least(self.predict_taken(seen, taken)[0].exp()[..., 1], every)
        if self._setup.box is not None:
            return slips
        return 1 - (1 - slips) * mean.gather(-1, taken.unsqueeze(-1)).squeeze(-1) / mean.amax(-1)

    def _less_least(self, chance: Tensor, every: Tensor) -> Tensor:
        """[runs, n]: less what no action avoids, and a little more than 0."""
        return (chance - every.amin(-1)).clamp_min(0.0) + FLOOR / self._setup.horizon

    def observe(self, episodes: Episodes) -> None:
        """The gate learns the scores; features are scaled by all that was seen, and answered states are remembered."""
        if self.gate.memory and episodes.notes.shape[-1]:
            self.gate.learn(episodes.notes[..., 0], episodes)
        seen, live = episodes.features[..., self.columns], episodes.live
        rows = torch.where(live.unsqueeze(-1), seen, 0.0).double().flatten(1, 2)
        self._sums += torch.stack([rows.sum(1), rows.square().sum(1)], 1)
        self._steps += live.sum((1, 2))
        for run, answered in enumerate(episodes.answered):
            for state in seen[run][answered]:
                self._answers[run, int(self._given[run]) % ANSWERS] = state
                self._given[run] += 1
        self._measure_steps(seen, live)
        self._measure_ends(seen, episodes)
        self._measure_hindsight(episodes)

    def _measure_steps(self, seen: Tensor, live: Tensor) -> None:
        """Keeps the length of the shortest step, such as picking something up: it changes little of what is seen."""
        scaled = seen * self.scale().view(len(seen), 1, 1, -1)
        lengths = (scaled[:, :, 1:] - scaled[:, :, :-1]).square().mean(-1).sqrt()
        moves = (lengths > 0) & live[:, :, 1:]
        own = torch.where(moves, lengths, torch.inf).flatten(1).amin(1)
        before = torch.where(self._short > 0, FADE * self._short, torch.inf)
        short = torch.minimum(own, before)
        self._short.copy_(torch.where(short.isinf(), self._short, short))

    def _measure_ends(self, seen: Tensor, episodes: Episodes) -> None:
        """Keeps how much early ends hang on the last action, as a moving average over them.

        Of an episode that has not been learned from yet: 1 where the end is expected after the action taken alone, 0
        where it is expected as much after the others, at least -1.
        """
        live = episodes.live
        last = (live.sum(-1) - 1).clamp_min(0)
        rows = torch.stack([own[torch.arange(own.shape[0]), at] for own, at in zip(seen, last, strict=True)])
        taken = torch.stack([own[torch.arange(len(at)), at] for own, at in zip(episodes.taken, last, strict=True)])
        answered = episodes.answered.gather(2, last.unsqueeze(-1)).squeeze(-1)
        early = ~live[..., -1] & ~episodes.success & ~answered
        with torch.no_grad():
            end, every = self.predict_taken(rows, taken)[1].exp()[..., 1], self.predict_all(rows)[1].exp()[..., 1]
        # The action taken is one of all, if there are finitely many.
        most = 1 - 1 / every.shape[-1] if self._setup.box is None else 1.0
        sudden = ((1 - every.mean(-1) / end) / most).clamp_min(-1.0)
        for episode in range(early.shape[1]):
            moved = (1 - FORGET) * self._sudden + FORGET * sudden[:, episode]
            self._sudden.copy_(torch.where(early[:, episode], moved, self._sudden))

    def _measure_hindsight(self, episodes: Episodes) -> None:
        """Keeps the share of failed episodes whose first mistake hindsight narrows down, as a moving average."""
        failed, narrowed = ~episodes.success, ~self._whole(episodes)
        for episode in range(failed.shape[1]):
            moved = (1 - FORGET) * self._narrowed + FORGET * narrowed[:, episode]
            self._narrowed.copy_(torch.where(failed[:, episode], moved, self._narrowed))

    def scale(self) -> Tensor:
        """[runs, features]: what features are multiplied with, 0 for those that do not vary."""
        mean, square = (self._sums / self._steps.clamp_min(1.0)[:, None, None]).unbind(1)
        deviation = (square - mean.square()).clamp_min(0.0).sqrt()
        return torch.where(deviation > _STEADY, 1.0 / deviation, 0.0).float()

    def near(self) -> Tensor:
        """[runs]: states closer than this are the same."""
        return (NEAR * self._short).clamp_min(1e-6)

    def alike(self) -> Alike:
        """Counts answered states that are like others."""
        scale = self.scale()
        given = self._given.clamp(max=ANSWERS).int().tolist()
        known = [self._answers[run, :count] * scale[run] for run, count in enumerate(given)]
        return Alike(known, [2 * REACH**2 * max(1, int(own)) for own in (scale > 0).sum(1)])

    def loss(self, episodes: Episodes) -> QueryLoss:
        """Cross-entropy with the steps to blame and with early ends, summed over steps, averaged over episodes.

        One of the steps of the first circle is to blame, each as far as it is likely to have been a mistake. Where
        nothing narrows it down all steps of an episode are to blame alike. An answered step is not.
        """
        runs, batch, horizon = episodes.live.shape
        live = episodes.live
        among, known = self._slips(episodes)
        among = among & ~episodes.answered
        found = self.predict_taken(episodes.features[..., self.columns].flatten(1, 2), episodes.taken.flatten(1, 2))
        mistake, end = (logs.view(runs, batch, horizon, 2) for logs in found)
        length = live.sum(-1, keepdim=True)
        early = (torch.arange(horizon) == length - 1) & ~live[..., -1:] & ~episodes.success.unsqueeze(-1)
        likely = torch.where(among, mistake.detach().exp()[..., 1], 0.0)
        blame = likely / likely.sum(-1, keepdim=True).clamp_min(1e-30)
        blame = torch.where(self._whole(episodes).unsqueeze(-1), among / length.clamp_min(1), blame)
        loss = over_steps(_entropy(mistake, blame), known) + over_steps(_entropy(end, early.float()), live)
        return QueryLoss(loss, known.flatten(1).any(1))

    def _whole(self, episodes: Episodes) -> Tensor:
        """[runs, episodes] bool: a mistake may have been anywhere in the episode."""
        among, known = self._slips(episodes)
        return among[..., 0] & (known == episodes.live).all(-1) & (episodes.live.sum(-1) > 1)

    def _slips(self, episodes: Episodes) -> tuple[Tensor, Tensor]:
        """`slips` of all episodes; they are the same at every step of learning from them, and taken once."""
        if self._seen is None or self._seen[0] is not episodes:
            runs, _, horizon = episodes.live.shape
            scaled = episodes.features[..., self.columns] * self.scale().view(runs, 1, 1, -1)
            varying = (self.scale() > 0).sum(1).clamp_min(1).sqrt()
            rows = scaled.flatten(0, 1)
            apart = torch.cdist(rows, rows, compute_mode=_EXACT).view(runs, -1, horizon, horizon)
            back = apart <= (self.near() * varying)[:, None, None, None]
            sudden = self.sudden().unsqueeze(1).expand_as(episodes.success)
            flat = (own.flatten(0, 1) for own in (back, episodes.live, episodes.success, sudden))
            among, known = slips(*flat)
            self._seen = episodes, among.view_as(episodes.live), known.view_as(episodes.live)
        return self._seen[1], self._seen[2]

    def review(self, episodes: Episodes, luck: Tensor) -> Tensor:
        scores = episodes.notes[..., 0] if episodes.notes.shape[-1] else torch.zeros_like(luck)
        return self.gate.review(scores, episodes, luck)


def _entropy(logs: Tensor, wanted: Tensor) -> Tensor:
    """[...]: the cross-entropy of log-probabilities [..., 2] with the probability `wanted` of the second."""
    return -(wanted * logs[..., 1] + (1 - wanted) * logs[..., 0])


class Alike:
    """Answered states, and how many of them are like others; run by run, so that a run gives the same bits alone as in
    any stack."""

    def __init__(self, known: list[Tensor], width: list[float]) -> None:
        """`known` [n, features] are the answered states of each run, scaled; `width` is that of the kernel."""
        self._known, self._width = known, width

    def __call__(self, states: Tensor) -> Tensor:
        """[runs, episodes, features] -> [runs, episodes]"""
        return torch.stack([self._kernel(run, own, self._known[run]).sum(-1) for run, own in enumerate(states)])

    def among(self, states: Tensor, asks: Tensor, score: Tensor) -> Tensor:
        """[runs, episodes]: how many states of the same step with a higher score and a question are like each."""
        found = torch.zeros_like(score)
        for run in (asks.sum(1) > 1).nonzero().flatten().tolist():
            put = asks[run].nonzero().flatten()
            put = put[score[run, put].argsort(descending=True, stable=True)]
            found[run, put] = self._kernel(run, states[run, put], states[run, put]).tril(-1).sum(-1)
        return found

    def add(self, states: Tensor, answered: Tensor) -> None:
        """Adds the states where `answered` [runs, episodes]."""
        self._known = [
            torch.cat([known, own[at]]) for known, own, at in zip(self._known, states, answered, strict=True)
        ]

    def _kernel(self, run: int, states: Tensor, known: Tensor) -> Tensor:
        """[n, features], [m, features] -> [n, m], from 0 to 1."""
        return torch.exp(-torch.cdist(states, known).square() / self._width[run])


class SlipSession:
    """SLIP during one batch of episodes."""

    def __init__(self, policy: Slip, gate: Gate, training: bool) -> None:
        self._policy, self._training = policy, training
        self._gate, self._alike, self._scale = gate.begin(training), policy.alike(), policy.scale().unsqueeze(1)
        varying = (self._scale > 0).sum(-1).clamp_min(1).sqrt()
        self._near = policy.near().unsqueeze(1) * varying
        self._before: list[Tensor] = []
        self._seen = self._every = self._clean = self._score = torch.empty(0)

    def ask(self, belief: Belief, luck: Tensor) -> Tensor:
        """w(s) times the chance that no slip came before, less where the episode or an answer was before."""
        self._seen = seen = (belief.state if belief.features is None else belief.features)[..., self._policy.columns]
        state = seen * self._scale
        self._every = self._policy.mistakes(seen)
        wrong = self._policy.wrong(seen, self._every, belief.mean)
        if not self._before:
            self._clean, self._returned = torch.ones_like(wrong), torch.zeros_like(wrong, dtype=torch.bool)
        for earlier in self._before:
            self._returned = self._returned | ((state - earlier).square().sum(-1).sqrt() <= self._near)
        self._before.append(state)
        chance = wrong * self._clean
        chance = torch.where(self._returned, RETURNED * chance, chance)
        alike, power = self._alike(state), self._policy.power()
        self._score = (chance / (1 + REPEAT * alike)) ** power
        asks = self._gate(self._score, luck, belief.live, None)
        if self._training and bool((asks.sum(1) > 1).any()):
            # Episodes side by side are often in states alike: each question counts for the others of this step.
            alike = alike + self._alike.among(state, asks, self._score)
            self._score = (chance / (1 + REPEAT * alike)) ** power
            asks = asks & self._gate(self._score, luck, belief.live, None)
        if isinstance(self._gate, DrawnBatch):
            asks = self._gate.keep_pace(asks, self._score, belief.live)
        return asks

    def hear(self, belief: Belief, answer: Answer, answered: Tensor) -> None:
        """A step that was answered is no slip, and counts for the rest of the batch."""
        assert belief.taken is not None
        wrong = self._policy.went_wrong(self._seen, self._every, belief.mean, belief.taken)
        self._clean = torch.where(answered, self._clean, self._clean * (1 - wrong))
        if self._training and bool(answered.any()):
            self._alike.add(self._before[-1], answered)

    @property
    def notes(self) -> Tensor:
        return self._score.unsqueeze(-1) if self._training else self._score.unsqueeze(-1)[..., :0]


def slip(setup: QuerySetup) -> Slip:
    """SLIP: draws questions in proportion to u^4, with u(s_t) = w(s_t) prod_{i<t} (1 - v(s_i, a_i)) / (1 + 3 n(s_t)), a
    tenth of it where the episode has been before.

    w(s) = 1 - (1 - sum_a pi(a | s) m(s, a)) max_a pi(a | s) is how likely the agent is to go wrong, by hindsight or by
    its own doubt. v(s, a) = 1 - (1 - m(s, a)) pi(a | s) / max_a' pi(a' | s) is how likely it went wrong by what it
    did; the product runs over the steps that nobody answered. m(s, a) = q(s, a) - min_a' q(s, a') + 0.1 / T, with
    q(s, a) the probability that a is a mistake in s as a network predicts it, learned from recent episodes by what
    hindsight says of them (`slips`). n counts answered states like s_t. Where hindsight does not narrow mistakes
    down, questions are drawn at random.
    """
    return Slip(setup)
