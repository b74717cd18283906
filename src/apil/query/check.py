"""`check_query_policy`: says in words what is wrong with a query policy of your own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from apil.errors import ApilError
from apil.query import QUERY_POLICIES
from apil.query.protocol import Listener, QueryLoss, QueryPolicy, QuerySetup
from apil.rng import Streams, global_random_state
from apil.types import Answer, Belief, Episodes, Uncertainty

_EPISODES, _STATE, _ACTIONS, _HORIZON, _MODELS, _TEACHERS = 16, 6, 3, 4, 4, 2


def check_query_policy(
    factory: str | Callable[..., QueryPolicy], *, threshold: float = 0.5, budget: float | None = None, **options: Any
) -> None:
    """Tries a query policy on made-up beliefs and episodes; raises `ApilError` with the first thing that is wrong.

    Args:
        factory: what would be registered, `factory(setup, **options)`, or a registered name.
        threshold: of the made-up runs.
        budget: the same; if given it takes the place of the threshold.

    Checked are the form of the policy and its session, shape and type of its decisions, that they depend on the belief
    and the luck alone (not on global random state, the calls before, or the other runs of a stack) and that its loss is
    finite and has gradients.
    """
    made = QUERY_POLICIES.load(factory) if isinstance(factory, str) else factory
    name = factory if isinstance(factory, str) else getattr(factory, "__name__", type(factory).__name__)

    def make(runs: int) -> QueryPolicy:
        try:
            policy: QueryPolicy = made(_setup(runs, threshold, budget), **options)
        except ApilError:
            raise
        except Exception as error:
            raise _wrong(name, f"its factory raised {type(error).__name__}: {error}") from error
        return policy

    for problem in _problems(name, make):
        raise _wrong(name, problem)


def _wrong(name: str, problem: str) -> ApilError:
    return ApilError(f"Query policy '{name}': {problem}.")


def _problems(name: str, make: Callable[[int], QueryPolicy]) -> Iterator[str]:
    """What is wrong, in the order in which it makes sense to mend it."""
    policy = make(3)
    yield from _form(policy, 3)
    before = global_random_state()
    decisions = _walk(name, policy, 3)
    for t, decision in enumerate(decisions):
        yield from _decision(decision, t)
    if global_random_state() != before:
        yield "it draws from global random state (torch.rand, numpy.random, ...): use `luck`, or a generator of its own"
    if not _equal(decisions, _walk(name, policy, 3)):
        yield (
            "it decides otherwise when asked again with the same beliefs and luck: decisions may depend on these, on "
            "`begin` and on what `loss` remembers, and on nothing else"
        )
    alone = _walk(name, make(1), 1)
    if not _equal([decision[:1] for decision in decisions], alone):
        yield "a run decides otherwise alone than in a stack of three: treat the runs axis as a batch axis"
    yield from _learning(policy)


def _form(policy: Any, runs: int) -> Iterator[str]:
    for attribute, what in (
        ("executes_answer", "whether the teacher's action is executed where asked, a bool"),
        ("parameters", "what it learns, a dict of tensors [runs, ...]; empty for fixed rules"),
        ("memory", "what it keeps, a dict of tensors [runs, ...]; empty for most"),
        ("begin", "a method that opens a batch of episodes"),
        ("loss", "a method that returns a QueryLoss, or None for fixed rules"),
    ):
        if not hasattr(policy, attribute):
            yield f"its factory returned {type(policy).__name__}, which has no '{attribute}' ({what})"
    if not isinstance(policy.executes_answer, bool):
        yield f"executes_answer is {policy.executes_answer!r}; expected True or False"
    for kind in ("parameters", "memory"):
        for key, value in getattr(policy, kind).items():
            if not isinstance(value, Tensor) or value.dim() < 1 or value.shape[0] != runs:
                yield f"{kind}['{key}'] is {_shown(value)}; expected a tensor that leads with the {runs} runs"
            elif not bool(value.isfinite().all()):
                yield f"{kind}['{key}'] has NaN or infinite entries; a run could not be resumed"


def _decision(decision: Any, t: int) -> Iterator[str]:
    expected = f"decisions [3, {_EPISODES}] (runs, episodes) of type torch.bool"
    if not isinstance(decision, Tensor):
        yield f"ask returned {_shown(decision)} at step {t}; expected {expected}"
    elif decision.is_floating_point():
        inside = bool(((decision >= 0) & (decision <= 1)).all())
        what = "probabilities or scores" if inside else "scores"
        yield (
            f"ask returned {what} ({_shown(decision)}) where decisions are due; expected {expected}: compare with a "
            "threshold or with `luck`, or hand the score to `apil.query.scored.scored`, which has a gate"
        )
    elif decision.dtype != torch.bool or decision.shape != (3, _EPISODES):
        yield f"ask returned {_shown(decision)} at step {t}; expected {expected}"


def _learning(policy: QueryPolicy) -> Iterator[str]:
    for value in policy.parameters.values():
        value.requires_grad_(True)
    found: Any = policy.loss(_episodes(3))
    if found is None:
        if policy.parameters:
            yield "it has parameters, but loss returned None: return a QueryLoss, or have no parameters"
        return
    if not isinstance(found, QueryLoss):
        yield f"loss returned {_shown(found)}; expected a QueryLoss, or None for fixed rules"
        return
    if not policy.parameters:
        yield "loss returned a QueryLoss, but there are no parameters to learn: return None"
    if not isinstance(found.loss, Tensor) or found.loss.shape != (3,) or not bool(found.loss.isfinite().all()):
        yield f"its loss is {_shown(found.loss)}; expected one finite number for each run, [3]"
    if not isinstance(found.active, Tensor) or found.active.shape != (3,) or found.active.dtype != torch.bool:
        yield f"QueryLoss.active is {_shown(found.active)}; expected a bool for each run, [3]"
    if not found.loss.requires_grad:
        yield "its loss has no gradient: compute it from the parameters, without detach() or torch.no_grad()"
        return
    gradients: tuple[Tensor | None, ...] = torch.autograd.grad(
        found.loss.sum(), list(policy.parameters.values()), allow_unused=True
    )
    for key, gradient in zip(policy.parameters, gradients, strict=True):
        if gradient is None:
            yield f"parameters['{key}'] has no part in the loss: it would never learn"
            continue
        if not bool(gradient.isfinite().all()):
            yield f"the gradient of parameters['{key}'] has NaN or infinite entries"


def _walk(name: str, policy: QueryPolicy, runs: int) -> list[Any]:
    """The decisions of one batch of episodes."""
    decisions = []
    with torch.inference_mode():
        try:
            session = policy.begin(_EPISODES)
            for t in range(_HORIZON):
                belief = _belief(runs, t)
                decisions.append(session.ask(belief, _draw(runs, f"luck{t}", _EPISODES)))
                for score in getattr(session, "scores", [])[-1:]:
                    if bool(score.isnan().any()):
                        raise ApilError(f"its score is NaN at step {t}; expected a number in every state")
                if isinstance(session, Listener):
                    answered = decisions[-1] if _is_bool(decisions[-1]) else torch.ones(runs, _EPISODES) > 0
                    session.hear(belief, _answer(runs, t), answered)
        except ApilError as error:
            raise _wrong(name, str(error).removesuffix(".")) from error
        except Exception as error:
            raise _wrong(name, f"it raised {type(error).__name__} when asked: {error}") from error
    return decisions


def _is_bool(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.bool


def _equal(some: list[Any], others: list[Any]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def _shown(value: Any) -> str:
    value = value.detach() if isinstance(value, Tensor) else value
    if not isinstance(value, Tensor):
        return f"{type(value).__name__} {value!r:.40}"
    low_high = "" if value.numel() == 0 else f" from {value.min().item():.3g} to {value.max().item():.3g}"
    return f"a tensor {list(value.shape)} of type {value.dtype}{low_high}"


# Made-up runs, the same every time; a run has the same numbers alone and in a stack.


def _setup(runs: int, threshold: float, budget: float | None) -> QuerySetup:
    return QuerySetup(
        streams=Streams(range(runs)),
        state_size=_STATE,
        actions=_ACTIONS,
        horizon=_HORIZON,
        thresholds=torch.full((runs,), threshold if budget is None else math.nan),
        budgets=None if budget is None else torch.full((runs,), budget),
    )


def _draw(runs: int, stream: str, *shape: int) -> Tensor:
    return Streams(range(runs)).draws(f"check/{stream}", 0).uniform(*shape)


def _belief(runs: int, t: int) -> Belief:
    of_model = (3 * _draw(runs, f"policy{t}", _EPISODES, _MODELS, _ACTIONS)).softmax(-1)
    parts = _draw(runs, f"parts{t}", 5, _EPISODES).unbind(1)
    return Belief(
        state=_draw(runs, f"state{t}", _EPISODES, _STATE),
        mean=of_model.mean(2),
        identity=_draw(runs, f"identity{t}", _EPISODES, _TEACHERS).softmax(-1),
        uncertainty=Uncertainty(*parts),
        remaining=_HORIZON - t,
        of_model=of_model,
    )


def _answer(runs: int, t: int) -> Answer:
    action = (_draw(runs, f"action{t}", _EPISODES) * _ACTIONS).long()
    return Answer(action, 5 * _draw(runs, f"distance{t}", _EPISODES), torch.zeros_like(action))


def _episodes(runs: int) -> Episodes:
    """Some steps asked, some not; one run with no answers at all."""
    beliefs = [_belief(runs, t) for t in range(_HORIZON)]
    answers = [_answer(runs, t) for t in range(_HORIZON)]

    def over_time(tensors: list[Tensor]) -> Tensor:
        return torch.stack(tensors, 2)

    asked = _draw(runs, "asked", _EPISODES, _HORIZON) < 0.5
    asked[-1] = runs == 1
    final = 3 * _draw(runs, "final", _EPISODES)
    state = over_time([belief.state for belief in beliefs])
    names = ("total", "behavioral", "intrinsic", "extrinsic", "model")
    return Episodes(
        features=state,
        state=state,
        valid_actions=torch.ones(runs, _EPISODES, _HORIZON, _ACTIONS, dtype=torch.bool),
        mean=over_time([belief.mean for belief in beliefs]),
        identity_belief=over_time([belief.identity for belief in beliefs]),
        asked=asked,
        unanswered=torch.zeros_like(asked),
        action=torch.where(asked, over_time([answer.action for answer in answers]), 0),
        distance=torch.where(asked, over_time([answer.distance for answer in answers]), torch.nan),
        identity=torch.zeros_like(asked, dtype=torch.long),
        taken=over_time([answer.action for answer in answers]),
        live=torch.ones_like(asked),
        final_distance=final,
        success=final < 1.0,
        uncertainty=Uncertainty(**{n: over_time([getattr(b.uncertainty, n) for b in beliefs]) for n in names}),
    )
