"""Lines 16 to 18 of Alg 1 and the update of Alg 2: one optimiser a part; from the fresh episodes or from the store."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from apil.crew import ALONE, Crew
from apil.errors import ApilError
from apil.learning.collect import Agents
from apil.learning.group import Places, take
from apil.learning.state import place_in
from apil.learning.store import Store
from apil.learning.window import Window
from apil.optim import Optimizer, OptimizerFactory
from apil.query.protocol import QueryLoss
from apil.select.trust import Trusting
from apil.types import Episodes, Lessons


class Learner:
    """Updates the policy (theta, phi), the identity model (psi) and the query policies of a stack of runs.

    The identity and query losses do not reach the policy: their inputs carry no gradient.
    """

    def __init__(
        self,
        agents: Agents,
        make_optimizer: OptimizerFactory,
        clip: float = 0.0,
        window: Window | None = None,
        crew: Crew = ALONE,
    ) -> None:
        """The policy's gradient is cut to the length `clip`, if it is not 0. Where answers are replayed, query policies
        learn from the `window`, or from the fresh episodes if there is none. The processes of a `crew` compute the
        losses of the model for some of the episodes each."""
        self._crew = crew
        self._agents, self._window = agents, window
        self._clip = clip
        self._everyone = slice(0, len(agents.streams.seeds))
        self._optimizers: list[tuple[str, Places, Optimizer]] = [
            ("policy", self._everyone, make_optimizer("policy", agents.model.policy)),
            ("identity", self._everyone, make_optimizer("identity", agents.model.identity)),
        ]
        self._learning = [group for group in agents.queries if group.part.parameters]
        self._trusting = [(group.runs, group.part) for group in agents.selectors if isinstance(group.part, Trusting)]
        self._nobody = torch.zeros(len(agents.streams.seeds), dtype=torch.bool)
        for group in self._learning:
            self._optimizers.append(("query", group.runs, make_optimizer("query", group.part.parameters)))

    def state(self, run: int) -> dict[str, Tensor]:
        """The state of one run, as views: of the optimisers, 'adam.<part>.*' in every checkpoint, and of the window."""
        named: dict[str, Tensor] = {}
        for part, runs, optimizer in self._optimizers:
            place = place_in(runs, run, len(self._agents.streams.seeds))
            if place is not None:
                named |= {f"adam.{part}.{name}": value for name, value in optimizer.state(place).items()}
                if part == "query" and self._window is not None:
                    named |= self._window.state(run)
        return named

    def update(self, episodes: Episodes, iteration: int) -> dict[str, Tensor]:
        """Alg 1 and 2 as printed: one step of every part that has something to learn from the fresh episodes.

        Returns the losses and logs, each [runs].
        """
        agents = self._agents
        (policy, identity), by_skill = self._by_skill(self._of_model(episodes, iteration), iteration)
        answered = episodes.answered.flatten(1).any(1)
        query = self._query_terms(episodes)
        sums = episodes.mean.sum((1, 2, 3))
        _check_finite(
            agents, [("policy", self._everyone, sums), *self._named(policy, identity), *query.named], iteration
        )
        losses = [policy, identity, *query.losses]
        active = [answered, answered | by_skill, *query.active]
        policy, identity, *_ = self._descend(self._optimizers, losses, active)
        back = agents.thinking.back
        return {"policy_loss": back(policy.detach()), "identity_loss": back(identity.detach()), **query.logs}

    def _of_model(self, lessons: Lessons, number: int, stream: str = "dropout") -> tuple[Tensor, Tensor]:
        """The losses of the model, on its device, or the share of this process in them; `number` is that of the draws
        for dropout."""
        agents, part = self._agents, self._crew.part(lessons.live.shape[1])
        with agents.thinking:
            draws = agents.streams.draws(stream, number)
            if part is None:
                return agents.model.losses(agents.thinking.bring(lessons), draws)
            return agents.model.losses(agents.thinking.bring(lessons), draws, part)

    def replay(
        self, episodes: Episodes, store: Store, iteration: int, updates: int, running: Tensor, asking: Tensor
    ) -> dict[str, Tensor]:
        """Query policies learn from the newest episodes, and the model makes `updates` steps from the store.

        Runs that are not `running` [runs] stay as they are. Query policies of runs that are no longer `asking` [runs]
        make a single step. Returns the losses and logs, each [runs].
        """
        agents, of_model, of_query = self._agents, self._optimizers[:2], self._optimizers[2:]
        query = self._query_terms(episodes)
        _check_finite(agents, [("policy", self._everyone, episodes.mean.sum((1, 2, 3))), *query.named], iteration)
        if of_query:
            self._learn_to_ask(episodes, query, iteration, updates, running, asking)
        fresh, trusted = episodes.answered.flatten(1).any(1), self._weigh(store)
        total = torch.zeros(2, len(running))
        for number in range(iteration * updates, (iteration + 1) * updates):
            lessons, some = store.sample(agents.streams.draws("replay", number), fresh)
            if not bool(some.any()):
                break  # nobody has answered yet, and no step of this iteration will change that
            losses = self._of_model(lessons, number)
            if store.whole_episodes:
                losses, trusted = self._by_skill(losses, number)
            _check_finite(agents, self._named(*losses), iteration)
            # Who answers is often a matter of chance: the identity model would overfit to what cannot be predicted.
            # Those who are trusted are not.
            once = number == iteration * updates
            summed = self._descend(of_model, losses, [some & running, (some & running & once) | (trusted & running)])
            total += agents.thinking.back(torch.stack(summed).detach())
        policy, identity = total / updates
        return {"policy_loss": policy, "identity_loss": identity, **query.logs}

    def _weigh(self, store: Store) -> Tensor:
        """In runs that act by skill answers are drawn from the store by how far they are trusted. [runs] bool: where
        that is known; episodes that are drawn whole are drawn alike."""
        for places, part in () if store.whole_episodes else self._trusting:
            numbers = range(len(self._nobody))[places] if isinstance(places, slice) else places.tolist()
            for own, run in enumerate(numbers):
                store.weigh(run, functools.partial(part.trust_in, own))
        return torch.tensor([shelf.trust is not None for shelf in store.shelves])

    def _by_skill(self, losses: tuple[Tensor, Tensor], number: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """The losses, with an identity loss of their own in runs that act by skill; [runs] bool, which these are."""
        if not self._trusting:
            return losses, self._nobody
        agents, runs = self._agents, len(self._agents.streams.seeds)
        theirs = torch.zeros(runs, dtype=torch.bool)
        luck = agents.streams.draws("trust", number).uniform(_LIKED)
        lessons: Lessons | None = None
        for places, part in self._trusting:
            own = part.lessons(luck[places])
            theirs[places] = own.answered.flatten(1).any(1)
            lessons = _placed(own, lessons, places, runs)
        assert lessons is not None
        identity = self._of_model(lessons, number, "liked")[1]
        return (losses[0], torch.where(theirs.to(identity.device), identity, losses[1])), theirs

    def _learn_to_ask(
        self,
        fresh: Episodes,
        query: _QueryTerms,
        iteration: int,
        updates: int,
        running: Tensor,
        asking: Tensor,
    ) -> None:
        """Up to `updates` steps of the query policies from the window; without one, a single step from the fresh
        episodes."""
        of_query, place = self._optimizers[2:], self._agents.asking
        active = [own & running[runs] for own, (_, runs, _) in zip(query.active, of_query, strict=True)]
        if self._window is None:
            self._descend(of_query, query.losses, active)
            return
        self._window.add(fresh)
        window = self._window.episodes(self._agents, iteration)
        with place:
            recent = [place.bring(take(window, group.runs)) for group in self._learning]
        learning = running
        for _ in range(updates):
            again = self._losses(recent)
            still = [learning[runs] for _, runs, _ in of_query]
            # No gradient for the others: moments add up whether or not a run makes a step.
            losses = [torch.where(on.to(own.loss.device), own.loss, 0.0) for own, on in zip(again, still, strict=True)]
            self._descend(of_query, losses, [own.active & on for own, on in zip(again, still, strict=True)])
            learning = running & asking
            if not bool(learning.any()):
                break

    def _losses(self, episodes: Sequence[Episodes]) -> list[QueryLoss]:
        """Of the query policies that learn, in the order of their optimisers; each from its own `episodes`."""
        place = self._agents.asking
        with place:
            found = [group.part.loss(own) for group, own in zip(self._learning, episodes, strict=True)]
        return [replace(own, active=place.back(own.active)) for own in found if own is not None]

    def _named(self, policy: Tensor, identity: Tensor) -> list[tuple[str, Places, Tensor]]:
        return [("policy loss", self._everyone, policy), ("identity loss", self._everyone, identity)]

    def _query_terms(self, episodes: Episodes) -> _QueryTerms:
        """What the query policies that learn or remember make of a batch of episodes."""
        found, place = _QueryTerms(), self._agents.asking
        for group in self._agents.queries:
            if not (group.part.parameters or group.part.memory):
                continue
            with place:
                theirs = place.bring(take(episodes, group.runs))
                group.part.observe(theirs)
                own = group.part.loss(theirs)
            if own is not None:
                found.losses.append(own.loss)
                found.active.append(place.back(own.active))
                found.named.append(("query loss", group.runs, own.loss))
                for name, values in {"query_loss": own.loss.detach(), **own.logs}.items():
                    logged = found.logs.setdefault(name, torch.full((len(episodes.live),), torch.nan))
                    logged[group.runs] = place.back(values)
        return found

    def _descend(
        self, parts: Sequence[tuple[str, Places, Optimizer]], terms: Sequence[Tensor], active: Sequence[Tensor]
    ) -> list[Tensor]:
        """The losses of the parts share no parameters, so one backward pass serves them all. Returns the losses, those
        of the model summed over all processes."""
        optimizers = [optimizer for _, _, optimizer in parts]
        parameters = [list(optimizer.parameters.values()) for optimizer in optimizers]
        # One sum: with a list of gradients to begin with, torch imports sympy, which takes half a second.
        total = torch.cat([term if term.is_cpu else term.cpu() for term in terms]).sum()
        found: Sequence[Tensor] = torch.autograd.grad(total, [p for part in parameters for p in part])
        if not self._crew.alone:
            found, terms = self._summed(parts, parameters, found, terms)
        gradients = iter(found)
        for (name, _, optimizer), part, live in zip(parts, parameters, active, strict=True):
            own = [next(gradients) for _ in part]
            if name == "policy" and self._clip:
                _cut(own, self._clip)
            optimizer.step(own, live)
        return list(terms)

    def _summed(
        self,
        parts: Sequence[tuple[str, Places, Optimizer]],
        parameters: Sequence[Sequence[Tensor]],
        gradients: Sequence[Tensor],
        terms: Sequence[Tensor],
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Gradients and losses, summed over all processes; each has computed the losses of query policies as a whole,
        whose mean is taken, so that no process drifts away from the others."""
        whole = [name == "query" for name, _, _ in parts]
        of_query = [own for own, several in zip(whole, parameters, strict=True) for _ in several]
        values = zip([*gradients, *terms], [*of_query, *whole], strict=True)
        summed = self._crew.sum([value / self._crew.size if own else value for value, own in values])
        return summed[: len(gradients)], summed[len(gradients) :]


_LIKED = 64
"""Answers from which runs that act by skill learn whom to act like, at each step."""


def _placed(own: Lessons, into: Lessons | None, places: Places, runs: int) -> Lessons:
    """Lessons of a stack with those of some runs; nothing is answered in runs that have none."""
    values: dict[str, Any] = {f.name: getattr(own, f.name) for f in fields(Lessons)}
    if into is None:
        empty: dict[str, Any] = {n: None if v is None else v.new_zeros(runs, *v.shape[1:]) for n, v in values.items()}
        into = Lessons(**empty)
        into.valid_actions.fill_(True)
    for name, value in values.items():
        if value is not None:
            getattr(into, name)[places] = value
    return into


@dataclass
class _QueryTerms:
    """The losses of the query policies that learn."""

    losses: list[Tensor] = field(default_factory=list)
    active: list[Tensor] = field(default_factory=list)
    named: list[tuple[str, Places, Tensor]] = field(default_factory=list)
    logs: dict[str, Tensor] = field(default_factory=dict)


def _cut(gradients: Sequence[Tensor], length: float) -> None:
    """Scales the gradients, each [runs, ...], so that those of one run together are no longer than `length`."""
    squares = torch.stack([gradient.flatten(1).square().sum(1) for gradient in gradients]).sum(0)
    scale = (length / squares.sqrt().clamp_min(1e-12)).clamp_max(1.0)
    for gradient in gradients:
        gradient.mul_(scale.view(-1, *[1] * (gradient.dim() - 1)))


class DivergenceError(ApilError):
    """A loss or the policy is NaN or infinite."""

    def __init__(self, part: str, iteration: int, run: str) -> None:
        super().__init__(
            f"The {part} is not finite at iteration {iteration} ({run}): start over with a lower --learning-rate."
        )
        self.part, self.iteration, self.run = part, iteration, run

    def __reduce__(self) -> tuple[type[DivergenceError], tuple[str, int, str]]:
        """Errors travel between processes."""
        return type(self), (self.part, self.iteration, self.run)


def _check_finite(agents: Agents, parts: Sequence[tuple[str, Places, Tensor]], iteration: int) -> None:
    """`parts` are what must be finite: a name, the runs it belongs to, and a value for each."""
    parts = [(part, runs, value if value.is_cpu else value.cpu()) for part, runs, value in parts]
    if bool(torch.cat([value for _, _, value in parts]).isfinite().all()):
        return
    for part, runs, value in parts:
        finite = value.isfinite()
        if not bool(finite.all()):
            places = torch.arange(len(agents.streams.seeds))[runs]
            run = int(places[int((~finite).nonzero()[0])])
            raise DivergenceError(part, iteration, agents.names[run])
