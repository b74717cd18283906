"""When to ask: query policies by name, and their traits, known without importing torch.

Examples:
    >>> "apil" in apil.query.QUERY_POLICIES.names()
    True
    >>> apil.query.takes_budget("entropy"), apil.query.takes_budget("bc")
    (True, False)
"""

from __future__ import annotations

from typing import Any

from apil.errors import ApilError
from apil.registry import Registry
from apil.settings.run import SHARE

QUERY_POLICIES = Registry("query policy", "apil.query_policies")


def _gated(default: float | None = None, limit: float | None = None) -> dict[str, Any]:
    """A score that is compared with a threshold, or with what a budget allows. The default threshold is in force where
    neither is given; the limit is a bound of the score for calibration (log2 of the number of actions if none)."""
    given = {"default_threshold": default, "score_limit": limit}
    return {"needs_threshold": True, "takes_budget": True, **{k: v for k, v in given.items() if v is not None}}


_GATED, _SHARE = _gated(), _gated(limit=1.0)
_SLOW = _SHARE | {"share": 1 / 160, "steps": 20_000}
_SLIP = _SLOW | {"asks_on_share": True}
_APIL = {"takes_budget": True, "settings": ("sigma", "epsilon", "gap")}
_REVIEW = {"asking": "review"}
"""Asks about states of an episode after its end."""
_RULES: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("bc", "rules", "behaviour cloning: asks at every step and does what the teacher says", {}),
    ("dagger", "rules", "DAgger: asks at every step, acts by itself", {}),
    ("intrun", "rules", "asks where a teacher seems to vary (intrinsic uncertainty above a threshold)", _GATED),
    ("extrun", "rules", "asks where teachers seem to differ (extrinsic uncertainty above a threshold)", _GATED),
    ("behvun", "rules", "asks where behaviour is uncertain (intrinsic + extrinsic above a threshold)", _GATED),
    ("modlun", "rules", "asks where the model is uncertain (mutual information above a threshold: BALD)", _GATED),
    ("errpred", "errpred", "asks where it predicts a large error against the teacher", _SHARE),
    ("apil", "progress", "asks where it predicts no progress towards the goal (the paper's)", _APIL),
    ("slip", "slip", "asks where it predicts its first mistake, in states unlike those asked about", _SLIP),
    ("never", "rules", "baseline: never asks, never learns", {}),
    ("random", "rules", "baseline: asks with a fixed probability", _SHARE),
    ("random-slow", "rules", "baseline: random, where answers are counted at the pace of slip", _SLOW),
    ("random-review", "rules", "baseline: asks about states drawn at random from finished episodes", _SHARE | _REVIEW),
    ("one-an-episode", "chance", "baseline: asks about one random state of each finished episode", _REVIEW),
    ("always", "rules", "baseline: asks at every step (another name for bc)", {}),
    ("every", "rules", "baseline: asks at every k-th step (option k, default 10)", {}),
    ("every-k", "rules", "baseline: asks at every k-th step (another name for every)", {}),
    ("least-confidence", "rules", "asks where the likeliest action is unlikely", _SHARE),
    ("margin", "rules", "asks where the two likeliest actions are nearly as likely", _SHARE),
    ("entropy", "rules", "asks where the mean policy has a high entropy", _GATED),
    ("variance", "rules", "asks where the models of the ensemble disagree", _SHARE),
    ("rnd", "novelty", "asks in novel states, by random network distillation", _gated(limit=10.0)),
    ("safedagger", "safety", "SafeDAgger: asks where a classifier expects to part from the teacher", _gated(0.5, 1.0)),
    ("lazydagger", "safety", "LazyDAgger: the same, and the teacher keeps control until they agree", _gated(0.5, 1.0)),
    (
        "ensembledagger",
        "safety",
        "EnsembleDAgger: asks where the ensemble doubts or a large error is predicted",
        _gated(1.0, 20.0),
    ),
    (
        "thriftydagger",
        "novelty",
        "ThriftyDAgger: asks in novel or risky states, at a target switch rate",
        _gated(0.1, 1.0),
    ),
)
"""Name, module of the factory, summary, traits."""
for _name, _module, _summary, _traits in _RULES:
    QUERY_POLICIES.register(_name, f"apil.query.{_module}:{_name.replace('-', '_')}", _summary, **_traits)

THRESHOLD_POLICIES = tuple(_name for _name, _, _, _traits in _RULES if _traits.get("needs_threshold"))
"""Policies of apil that have a number to calibrate: a threshold, or for `random` the probability of asking."""


def needs_threshold(query: str) -> bool:
    """Whether a query policy has a threshold to calibrate."""
    return bool(QUERY_POLICIES.trait(query, "needs_threshold", False))


def takes_budget(query: str) -> bool:
    """Whether a query policy can be given a share of the steps to ask on."""
    return bool(QUERY_POLICIES.trait(query, "takes_budget", False))


def default_threshold(query: str) -> float | None:
    """The threshold used when neither a threshold nor a budget is given; None where one of them is required."""
    found: float | None = QUERY_POLICIES.trait(query, "default_threshold", None)
    return found


def asks_on_share(query: str) -> bool:
    """Whether a query policy asks on a share of the steps where neither a threshold nor a budget is given."""
    return bool(QUERY_POLICIES.trait(query, "asks_on_share", False))


def share_of(query: str, answers: int | None = None) -> float:
    """The share of steps that a query policy asks on until it has had its `answers`: its own, or `SHARE`.

    Policies that know better where to ask the longer the agent acts alone spread a small budget over more steps.
    """
    share: float = QUERY_POLICIES.trait(query, "share", SHARE)
    steps: int = QUERY_POLICIES.trait(query, "steps", 0)
    return share if answers is None or not steps else min(share, answers / steps)


def asking_of(query: str) -> str | None:
    """When a query policy asks: "review" for policies that ask only then, None where the settings decide."""
    found: str | None = QUERY_POLICIES.trait(query, "asking", None)
    return found


def check_asking(query: str, asking: str | None) -> None:
    """Raises an error if a query policy cannot ask in this way."""
    own = asking_of(query)
    if own is not None and asking not in (None, own):
        raise ApilError(
            f"'{query}' asks in {own}, and asking is '{asking}': leave it out, or use another query policy."
        )


OURS, PRINTED = "slip", "apil"
"""What asks unless something else is given: our query policy, and the paper's where a run is to be as printed."""
STUDIED = ("bc", "dagger", "intrun", "extrun", "behvun", "modlun", "errpred", "apil", "never", "random")
"""The paper's query policies and two baselines."""


def study_policies() -> tuple[str, ...]:
    """What a study compares by default: `STUDIED`, and every policy from outside apil."""
    return (*STUDIED, *(entry.name for entry in QUERY_POLICIES if entry.own))
