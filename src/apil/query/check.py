"""`check_query_policy`: finds what is wrong with a query policy of your own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from apil.contract import global_random_state
from apil.errors import ApilError, in_one_line
from apil.query import QUERY_POLICIES
from apil.query.protocol import Listener, Noting, QueryLoss, QueryPolicy, QuerySetup
from apil.rng import Streams
from apil.types import Answer, Belief, Episodes, Uncertainty

_RUNS, _EPISODES, _STATE, _ACTIONS, _HORIZON, _MODELS, _TEACHERS = 3, 16, 6, 3, 4, 4, 2


def check_query_policy(
    factory: str | Callable[..., QueryPolicy], *, threshold: float = 0.5, budget: float | None = None, **options: Any
) -> None:
    """Checks a query policy on made-up beliefs and episodes; raises an `ApilError` with the first problem.

    `factory` is what would be registered, `factory(setup, **options)`, or a registered name. The made-up runs have the
    threshold, or the budget if there is one. Checked are the form of the policy and its session, shape and type of its
    decisions and notes, that they depend on the belief and the luck alone (not on global random state, the calls
    before, other open sessions, or the other runs of a stack), that only `observe` changes memory, that a review
    chooses live steps, and that the loss is finite, has gradients and can be repeated.

    Examples:
        >>> apil.check_query_policy("entropy", budget=0.1)
    """
    made = QUERY_POLICIES.load(factory) if isinstance(factory, str) else factory
    name = factory if isinstance(factory, str) else getattr(factory, "__name__", type(factory).__name__)
    try:
        policy, alone = (made(_setup(runs, threshold, budget), **options) for runs in (_RUNS, 1))
    except ApilError:
        raise
    except Exception as error:
        raise ApilError(f"Query policy '{name}': its factory raised {in_one_line(error)}.") from error
    try:
        _check_form(policy)
        _check_decisions(policy, alone)
        _check_review(policy)
        _check_learning(policy)
    except ApilError as error:
        raise ApilError(f"Query policy '{name}': {str(error).removesuffix('.')}.") from error


def _require(good: bool | Tensor, otherwise: str) -> None:
    if not good:
        raise ApilError(otherwise)


def _check_form(policy: Any) -> None:
    for attribute, what in (
        ("executes_answer", "whether the teacher's action is executed where it answers, a bool"),
        ("parameters", "what it learns, a dict of tensors [runs, ...]; empty for fixed rules"),
        ("memory", "what it keeps, a dict of tensors [runs, ...]; empty for most"),
        ("begin", "a method that opens a batch of episodes"),
        ("observe", "a method that takes in a batch of training episodes; it may do nothing"),
        ("loss", "a method that returns a QueryLoss, or None for fixed rules"),
        ("review", "a method that chooses steps of finished episodes; `episodes.unanswered` is where it fired"),
    ):
        found = hasattr(policy, attribute)
        _require(found, f"its factory returned {type(policy).__name__}, which has no '{attribute}' ({what})")
    value = policy.executes_answer
    _require(isinstance(value, bool), f"executes_answer is {value!r}; expected True or False")
    for kind in ("parameters", "memory"):
        for key, value in getattr(policy, kind).items():
            shaped = isinstance(value, Tensor) and value.shape[:1] == (_RUNS,)
            expected = f"a tensor that leads with the {_RUNS} runs"
            _require(shaped, f"{kind}['{key}'] is {_shown(value)}; expected {expected}")
            _require(value.isfinite().all(), f"{kind}['{key}'] has NaN or infinite entries; a run could not be resumed")


def _check_decisions(policy: QueryPolicy, alone: QueryPolicy) -> None:
    before = global_random_state()
    decisions = _walk(policy, _RUNS)
    for t, decision in enumerate(decisions):
        _check_decision(decision, t)
    drawn = "it draws from global random state (torch.rand, numpy.random, ...): use `luck`, or a generator of its own"
    _require(global_random_state() == before, drawn)
    again = (
        "it decides otherwise when asked again with the same beliefs and luck: decisions may depend on these, on "
        "`begin` and on what `observe` remembers, and on nothing else"
    )
    _require(_equal(decisions, _walk(policy, _RUNS)), again)
    open_at_once = (
        "it decides otherwise while another session is open: keep what belongs to a batch of episodes in its session"
    )
    _require(_equal(decisions, _walk(policy, _RUNS, beside=True)), open_at_once)
    for t, decision in enumerate(_walk(policy, _RUNS, training=False)):
        _check_decision(decision, t)
    stacked = "a run decides otherwise alone than in a stack of three: treat the runs axis as a batch axis"
    _require(_equal([decision[:1] for decision in decisions], _walk(alone, 1)), stacked)


def _check_decision(decision: Any, t: int) -> None:
    expected = f"decisions [{_RUNS}, {_EPISODES}] (runs, episodes) of type torch.bool"
    if isinstance(decision, Tensor) and decision.is_floating_point():
        inside = bool(((decision >= 0) & (decision <= 1)).all())
        raise ApilError(
            f"ask returned {'probabilities or scores' if inside else 'scores'} ({_shown(decision)}) where decisions "
            f"are due; expected {expected}: compare with a threshold or with `luck`, or hand the score to "
            "`apil.query.scored.scored`, which has a gate"
        )
    good = _is_bool(decision) and decision.shape == (_RUNS, _EPISODES)
    _require(good, f"ask returned {_shown(decision)} at step {t}; expected {expected}")


def _check_learning(policy: QueryPolicy) -> None:
    for value in policy.parameters.values():
        value.requires_grad_(True)
    episodes = _episodes(_noted(policy))
    policy.observe(episodes)
    before = _memory(policy)
    found: Any = policy.loss(episodes)
    if found is None:
        missing = "it has parameters, but loss returned None: return a QueryLoss, or have no parameters"
        _require(not policy.parameters, missing)
        return
    learns = isinstance(found, QueryLoss)
    _require(learns, f"loss returned {_shown(found)}; expected a QueryLoss, or None for fixed rules")
    _require(bool(policy.parameters), "loss returned a QueryLoss, but there are no parameters to learn: return None")
    loss, active = found.loss, found.active
    good = isinstance(loss, Tensor) and loss.shape == (_RUNS,) and bool(loss.isfinite().all())
    _require(good, f"its loss is {_shown(loss)}; expected one finite number for each run, [{_RUNS}]")
    good = _is_bool(active) and active.shape == (_RUNS,)
    _require(good, f"QueryLoss.active is {_shown(active)}; expected a bool for each run, [{_RUNS}]")
    again = policy.loss(episodes)
    same = again is not None and torch.equal(again.loss, loss)
    _require(same, "its loss is another one the second time, on the same episodes: `loss` may change nothing")
    _require(_same_memory(policy, before), "`loss` changes its memory: only `observe` may")
    detached = "its loss has no gradient: compute it from the parameters, without detach() or torch.no_grad()"
    _require(loss.requires_grad, detached)
    gradients = torch.autograd.grad(loss.sum(), list(policy.parameters.values()), allow_unused=True)
    for key, gradient in zip(policy.parameters, gradients, strict=True):
        _require(gradient is not None, f"parameters['{key}'] has no part in the loss: it would never learn")
        _require(gradient.isfinite().all(), f"the gradient of parameters['{key}'] has NaN or infinite entries")


def _check_review(policy: QueryPolicy) -> None:
    episodes = _episodes(_noted(policy))
    walked = replace(episodes, answered=torch.zeros_like(episodes.answered), unanswered=episodes.answered)
    before = _memory(policy)
    chosen: Any = policy.review(walked, _draw(_RUNS, "review", _EPISODES, _HORIZON))
    good = _is_bool(chosen) and chosen.shape == walked.live.shape
    expected = f"decisions [{_RUNS}, {_EPISODES}, {_HORIZON}] (runs, episodes, steps) of type torch.bool"
    _require(good, f"review returned {_shown(chosen)}; expected {expected}")
    _require(not (chosen & ~walked.live).any(), "review chose steps after the end of an episode: keep to `live`")
    _require(_same_memory(policy, before), "`review` changes its memory: only `observe` may")


def _memory(policy: QueryPolicy) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in policy.memory.items()}


def _same_memory(policy: QueryPolicy, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, before[name]) for name, value in policy.memory.items())


def _noted(policy: QueryPolicy) -> Tensor:
    """[runs, episodes, T, N]: what its session notes in one batch of training episodes."""
    notes: list[Tensor] = []
    before = _memory(policy)
    _walk(policy, _RUNS, notes=notes)
    _require(_same_memory(policy, before), "a session changes the memory of its policy: only `observe` may")
    return torch.stack(notes, 2).clone() if notes else torch.zeros(_RUNS, _EPISODES, _HORIZON, 0)


@torch.inference_mode()
def _walk(
    policy: QueryPolicy, runs: int, *, training: bool = True, beside: bool = False, notes: list[Tensor] | None = None
) -> list[Any]:
    """The decisions of one batch of episodes; `beside` another session that sees other states. Adds to `notes`."""
    decisions: list[Any] = []
    try:
        session = policy.begin(_EPISODES, training)
        other = policy.begin(_EPISODES, training) if beside else None
        for t in range(_HORIZON):
            belief = _belief(runs, t)
            if other is not None:
                other.ask(_belief(runs, (t + 1) % _HORIZON), _draw(runs, f"beside{t}", _EPISODES))
            decisions.append(session.ask(belief, _draw(runs, f"luck{t}", _EPISODES)))
            if isinstance(session, Noting):
                _check_notes(session.notes, runs, t)
                if notes is not None:
                    notes.append(session.notes)
            score = getattr(session, "seen", torch.zeros(1))[..., :1]
            _require(not score.isnan().any(), f"its score is NaN at step {t}; expected a number in every state")
            if isinstance(session, Listener):
                answered = decisions[-1] if _is_bool(decisions[-1]) else torch.ones(runs, _EPISODES) > 0
                action = (_draw(runs, f"action{t}", _EPISODES) * _ACTIONS).long()
                distance = 5 * _draw(runs, f"distance{t}", _EPISODES)
                session.hear(
                    replace(belief, taken=action), Answer(action, distance, torch.zeros_like(action)), answered
                )
    except ApilError:
        raise
    except Exception as error:
        raise ApilError(f"it raised {type(error).__name__} when asked: {error}") from error
    return decisions


def _check_notes(notes: Any, runs: int, t: int) -> None:
    good = isinstance(notes, Tensor) and notes.shape[:-1] == (runs, _EPISODES) and notes.is_floating_point()
    expected = f"floats [{runs}, {_EPISODES}, N] (runs, episodes, numbers), the score first"
    _require(good, f"its notes are {_shown(notes)} at step {t}; expected {expected}")


def _is_bool(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.bool


def _equal(some: list[Any], others: list[Any]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def _shown(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"{type(value).__name__} {value!r:.40}"
    low_high = "" if value.numel() == 0 else f" from {value.min().item():.3g} to {value.max().item():.3g}"
    return f"a tensor {list(value.shape)} of type {value.dtype}{low_high}"


# Made-up runs, the same every time; a run has the same numbers alone and in a stack.


def _setup(runs: int, threshold: float, budget: float | None) -> QuerySetup:
    thresholds = torch.full((runs,), threshold if budget is None else math.nan)
    budgets = None if budget is None else torch.full((runs,), budget)
    return QuerySetup(Streams(range(runs)), _STATE, _ACTIONS, _HORIZON, thresholds, budgets=budgets)


def _draw(runs: int, stream: str, *shape: int) -> Tensor:
    return Streams(range(runs)).draws(f"check/{stream}", 0).uniform(*shape)


def _belief(runs: int, t: int) -> Belief:
    of_model = (3 * _draw(runs, f"policy{t}", _EPISODES, _MODELS, _ACTIONS)).softmax(-1)
    uncertainty = Uncertainty(*_draw(runs, f"parts{t}", 5, _EPISODES).unbind(1))
    identity = _draw(runs, f"identity{t}", _EPISODES, _TEACHERS).softmax(-1)
    state = _draw(runs, f"state{t}", _EPISODES, _STATE)
    return Belief(state, of_model.mean(2), identity, uncertainty, _HORIZON - t, of_model=of_model)


def _episodes(notes: Tensor) -> Episodes:
    """Some steps answered, some not; one run with no answers at all; one episode ends before the others."""

    def draw(name: str, *shape: int) -> Tensor:
        return _draw(_RUNS, name, _EPISODES, _HORIZON, *shape)

    state, action, final = draw("state", _STATE), (draw("action") * _ACTIONS).long(), 3 * draw("final")[..., 0]
    answered = draw("asked") < 0.5
    answered[-1] = False
    live = torch.ones_like(answered)
    live[:, 0, -1] = answered[:, 0, -1] = False
    return Episodes(
        features=state,
        state=state,
        valid_actions=torch.ones(_RUNS, _EPISODES, _HORIZON, _ACTIONS, dtype=torch.bool),
        mean=(3 * draw("mean", _ACTIONS)).softmax(-1),
        identity_belief=draw("identity", _TEACHERS).softmax(-1),
        answered=answered,
        unanswered=torch.zeros_like(answered),
        action=torch.where(answered, action, 0),
        distance=torch.where(answered, 5 * draw("distance"), torch.nan),
        identity=torch.zeros_like(action),
        taken=action,
        live=live,
        final_distance=final,
        success=final < 1.0,
        uncertainty=Uncertainty(*draw("uncertainty", 5).unbind(-1)),
        notes=notes,
    )
