"""When to ask."""

from __future__ import annotations

from typing import Any

from apil.registry import Registry

QUERY_POLICIES = Registry("query policy", "apil.query_policies")

_GATED = {"needs_threshold": True, "takes_budget": True}
"""A score that is compared with a threshold, or with what a budget allows. `default_threshold` is the one in force
where neither is given, `score_limit` a bound of the score for calibration (log2 of the number of actions if none)."""
_SHARE = {**_GATED, "score_limit": 1.0}
_RULES: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("bc", "rules:bc", "behaviour cloning: asks at every step and does what the teacher says", {}),
    ("dagger", "rules:dagger", "DAGGER: asks at every step, acts by itself", {}),
    ("intrun", "rules:intrun", "asks where a teacher seems to vary (intrinsic uncertainty above a threshold)", _GATED),
    ("extrun", "rules:extrun", "asks where teachers seem to differ (extrinsic uncertainty above a threshold)", _GATED),
    ("behvun", "rules:behvun", "asks where behaviour is uncertain (intrinsic + extrinsic above a threshold)", _GATED),
    (
        "modlun",
        "rules:modlun",
        "asks where the model is uncertain (mutual information above a threshold: BALD)",
        _GATED,
    ),
    ("errpred", "errpred:errpred", "asks where it predicts a large error against the teacher", _SHARE),
    (
        "apil",
        "progress:apil",
        "asks where it predicts no progress towards the goal (the paper's)",
        {"takes_budget": True, "settings": ("sigma", "epsilon", "gap")},
    ),
    ("never", "rules:never", "baseline: never asks, never learns", {}),
    ("random", "rules:random", "baseline: asks with a fixed probability", _SHARE),
    ("always", "rules:bc", "baseline: asks at every step (bc by its other name)", {}),
    ("every", "rules:every", "baseline: asks at every k-th step (option k, 10)", {}),
    ("least-confidence", "doubt:least_confidence", "asks where the likeliest action is unlikely", _SHARE),
    ("margin", "doubt:margin", "asks where the two likeliest actions are nearly as likely", _SHARE),
    ("entropy", "doubt:entropy", "asks where the mean policy has a high entropy", _GATED),
    ("variance", "doubt:variance", "asks where the models of the ensemble disagree", _SHARE),
    ("rnd", "novelty:rnd", "asks in novel states, by random network distillation", {**_GATED, "score_limit": 10.0}),
    (
        "safedagger",
        "safety:safedagger",
        "SafeDAgger: asks where a classifier expects to part from the teacher",
        {**_SHARE, "default_threshold": 0.5},
    ),
    (
        "lazydagger",
        "safety:lazydagger",
        "LazyDAgger: the same, and the teacher keeps control until they agree",
        {**_SHARE, "default_threshold": 0.5},
    ),
    (
        "ensembledagger",
        "safety:ensembledagger",
        "EnsembleDAgger: asks where the ensemble doubts or a large error is predicted",
        {**_GATED, "default_threshold": 1.0, "score_limit": 20.0},
    ),
    (
        "thriftydagger",
        "novelty:thriftydagger",
        "ThriftyDAgger: asks in novel or risky states, at a target switch rate",
        {**_SHARE, "default_threshold": 0.1},
    ),
)
for _name, _target, _summary, _traits in _RULES:
    QUERY_POLICIES.register(_name, f"apil.query.{_target}", _summary, **_traits)

THRESHOLD_POLICIES = tuple(_name for _name, _, _, _traits in _RULES if _traits.get("needs_threshold"))
"""Policies of apil that have a number to calibrate: a threshold, or for `random` the probability of asking."""


def needs_threshold(query: str) -> bool:
    """Whether a query policy has a number to calibrate."""
    return bool(QUERY_POLICIES.trait(query, "needs_threshold", False))


def takes_budget(query: str) -> bool:
    """Whether a query policy can be given a share of the steps to ask on."""
    return bool(QUERY_POLICIES.trait(query, "takes_budget", False))


def default_threshold(query: str) -> float | None:
    """The threshold in force where neither that nor a budget is given; None where one has to be given."""
    found: float | None = QUERY_POLICIES.trait(query, "default_threshold", None)
    return found


STUDIED = ("bc", "dagger", "intrun", "extrun", "behvun", "modlun", "errpred", "apil", "never", "random")
"""The paper's query policies and two baselines."""


def study_policies() -> tuple[str, ...]:
    """What a study compares unless told otherwise: `STUDIED`, and every policy from outside apil."""
    return (*STUDIED, *(entry.name for entry in QUERY_POLICIES if entry.own))
