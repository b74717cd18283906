"""`check_selector`: says in words what is wrong with a selector of your own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from apil.contract import global_random_state
from apil.errors import ApilError, in_one_line
from apil.rng import Streams
from apil.select import SELECTORS
from apil.select.protocol import NOBODY, Selector, SelectSetup
from apil.types import Answer, Episodes, Observation, Uncertainty

_RUNS, _EPISODES, _FEATURES, _ACTIONS, _HORIZON, _TEACHERS = 3, 6, 5, 4, 5, 4


def check_selector(factory: str | Callable[..., Selector], **options: Any) -> None:
    """Tries a selector on made-up questions and episodes; raises `ApilError` with the first thing that is wrong.

    `factory` is what would be registered, `factory(setup, **options)`, or a registered name. Checked are the form of
    the selector and its memory, shape and type of its choices, that they name somebody who is there, that they depend
    on memory, draws and questions alone (not on global random state, other open sessions, or the other runs of a
    stack), and that only `observe` changes memory.

    Examples:
        >>> apil.check_selector("round-robin")
    """
    made = SELECTORS.load(factory) if isinstance(factory, str) else factory
    name = factory if isinstance(factory, str) else getattr(factory, "__name__", type(factory).__name__)
    try:
        selector, alone = (made(_setup(runs), **options) for runs in (_RUNS, 1))
    except ApilError:
        raise
    except Exception as error:
        raise ApilError(f"Selector '{name}': its factory raised {in_one_line(error)}.") from error
    try:
        _check_form(selector)
        for _ in range(3):  # as it is at first, and with something to remember
            _check_choices(selector, alone)
            for part, runs in ((selector, _RUNS), (alone, 1)):
                part.observe(_episodes(runs))
            _check_memory(selector)
    except ApilError as error:
        raise ApilError(f"Selector '{name}': {str(error).removesuffix('.')}.") from error


def _require(good: bool, otherwise: str) -> None:
    if not good:
        raise ApilError(otherwise)


def _check_form(selector: Any) -> None:
    for attribute, what in (
        ("memory", "what it keeps, a dict of tensors [runs, ...]; empty for fixed rules"),
        ("begin", "a method that opens a batch of episodes"),
        ("observe", "a method that takes in a batch of training episodes; it may do nothing"),
    ):
        missing = f"its factory returned {type(selector).__name__}, which has no '{attribute}' ({what})"
        _require(hasattr(selector, attribute), missing)
    _check_memory(selector)


def _check_memory(selector: Selector) -> None:
    for key, value in selector.memory.items():
        shaped = isinstance(value, Tensor) and value.shape[:1] == (_RUNS,)
        _require(shaped, f"memory['{key}'] is no tensor that leads with the {_RUNS} runs")
        _require(bool(value.isfinite().all()), f"memory['{key}'] has NaN or infinite entries; it cannot be resumed")


def _check_choices(selector: Selector, alone: Selector) -> None:
    before, kept = global_random_state(), {name: value.clone() for name, value in selector.memory.items()}
    chosen = _choices(selector, _RUNS)
    for t, found in enumerate(chosen):
        expected = f"a tensor [{_RUNS}, {_EPISODES}] (runs, episodes) of type torch.long"
        shaped = isinstance(found, Tensor) and found.dtype == torch.long and found.shape == (_RUNS, _EPISODES)
        _require(shaped, f"choose returned {found!r:.60} at step {t}; expected {expected}")
        inside = bool(((found >= NOBODY) & (found < _TEACHERS)).all())
        _require(inside, f"choose returned numbers outside {NOBODY} to {_TEACHERS - 1} at step {t}")
        there = _present(_RUNS, t).gather(-1, found.clamp_min(0).unsqueeze(-1)).squeeze(-1)
        _require(bool((there | (found == NOBODY)).all()), f"it chose somebody who is not there at step {t}")
    drawn = "it draws from global random state (torch.rand, numpy.random, ...): use the draws"
    _require(global_random_state() == before, drawn)
    again = "it chooses otherwise when asked again with the same draws and questions"
    _require(_equal(chosen, _choices(selector, _RUNS)), again)
    beside = "it chooses otherwise while another session is open: keep what belongs to a batch in its session"
    _require(_equal(chosen, _choices(selector, _RUNS, beside=True)), beside)
    stacked = "a run chooses otherwise alone than in a stack of three: treat the runs axis as a batch axis"
    _require(_equal([found[:1] for found in chosen], _choices(alone, 1)), stacked)
    same = all(torch.equal(value, kept[name]) for name, value in selector.memory.items())
    _require(same, "a session changes the memory of its selector: only `observe` may")


@torch.inference_mode()
def _choices(selector: Selector, runs: int, *, beside: bool = False) -> list[Any]:
    """Whom it chooses in one batch of episodes; `beside` another session that is asked other questions."""
    found: list[Any] = []
    try:
        streams = Streams(range(runs))
        session = selector.begin(streams.draws("check/select", 0), _EPISODES, _HORIZON)
        other = selector.begin(streams.draws("check/other", 1), _EPISODES, _HORIZON) if beside else None
        for t in range(_HORIZON):
            put = _draw(runs, f"put{t}", _EPISODES) < 0.7
            if other is not None:
                other.choose(_seen(runs, t + _HORIZON), _present(runs, t), put, t)
            found.append(session.choose(_seen(runs, t), _present(runs, t), put, t))
            said = (_draw(runs, f"said{t}", _EPISODES) * _ACTIONS).long()
            distance = _draw(runs, f"far{t}", _EPISODES)
            whom = found[-1].clamp_min(0) if isinstance(found[-1], Tensor) else torch.zeros_like(said)
            session.hear(Answer(said, distance, whom), put)
    except ApilError:
        raise
    except Exception as error:
        raise ApilError(f"it raised {type(error).__name__} when asked: {error}") from error
    return found


def _equal(some: list[Any], others: list[Any]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


# Made-up runs, the same every time; a run has the same numbers alone and in a stack.


def _setup(runs: int) -> SelectSetup:
    costs = torch.tensor([3.0, 1.0, 1.0, 2.0]).expand(runs, -1).clone()
    return SelectSetup(Streams(range(runs)), _TEACHERS, costs, torch.zeros(runs), _FEATURES, _ACTIONS, _HORIZON)


def _draw(runs: int, stream: str, *shape: int) -> Tensor:
    return Streams(range(runs)).draws(f"check/{stream}", 0).uniform(*shape)


def _seen(runs: int, t: int) -> Observation:
    valid = torch.ones(runs, _EPISODES, _ACTIONS, dtype=torch.bool)
    return Observation(_draw(runs, f"seen{t}", _EPISODES, _FEATURES), valid)


def _present(runs: int, t: int) -> Tensor:
    """At least the first and the last are there."""
    there = _draw(runs, f"present{t}", _EPISODES, _TEACHERS) < 0.8
    return there | (torch.arange(_TEACHERS) % (_TEACHERS - 1) == 0)


def _episodes(runs: int) -> Episodes:
    """Some steps answered, some not; one episode ends before the others."""

    def draw(name: str, *shape: int) -> Tensor:
        return _draw(runs, name, _EPISODES, _HORIZON, *shape)

    features, action = draw("features", _FEATURES), (draw("action") * _ACTIONS).long()
    answered, live = draw("asked") < 0.6, torch.ones(runs, _EPISODES, _HORIZON, dtype=torch.bool)
    live[:, 0, -1] = answered[:, 0, -1] = False
    final = 3 * draw("final")[..., 0]
    return Episodes(
        features=features,
        state=features,
        valid_actions=torch.ones(runs, _EPISODES, _HORIZON, _ACTIONS, dtype=torch.bool),
        mean=(3 * draw("mean", _ACTIONS)).softmax(-1),
        identity_belief=draw("identity_belief", _TEACHERS).softmax(-1),
        answered=answered,
        unanswered=torch.zeros_like(answered),
        action=torch.where(answered, action, 0),
        distance=torch.where(answered, 5 * draw("distance"), torch.nan),
        identity=torch.where(answered, (draw("identity") * _TEACHERS).long(), 0),
        taken=action,
        live=live,
        final_distance=final,
        success=final < 1.0,
        uncertainty=Uncertainty(*draw("uncertainty", 5).unbind(-1)),
        notes=features[..., :0],
    )
