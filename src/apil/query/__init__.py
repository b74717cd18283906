"""When to ask."""

from __future__ import annotations

from apil.registry import Registry

QUERY_POLICIES = Registry("query policy", "apil.query_policies")

_GATED = {"needs_threshold": True, "takes_budget": True}
"""A score that is compared with a threshold, or with what a budget allows."""

for _name, _target, _summary, _traits in (
    ("bc", "rules:bc", "behaviour cloning: asks at every step and does what the teacher says", {}),
    ("dagger", "rules:dagger", "DAGGER: asks at every step, acts by itself", {}),
    ("intrun", "rules:intrun", "asks where a teacher seems to vary (intrinsic uncertainty above a threshold)", _GATED),
    ("extrun", "rules:extrun", "asks where teachers seem to differ (extrinsic uncertainty above a threshold)", _GATED),
    ("behvun", "rules:behvun", "asks where behaviour is uncertain (intrinsic + extrinsic above a threshold)", _GATED),
    ("modlun", "rules:modlun", "asks where the model is uncertain (mutual information above a threshold)", _GATED),
    ("errpred", "errors:ErrorPrediction", "asks where it predicts a large error against the teacher", _GATED),
    (
        "apil",
        "progress:ProgressPrediction",
        "asks where it predicts no progress towards the goal (the paper's)",
        {},
    ),
    ("never", "rules:never", "baseline: never asks, never learns", {}),
    ("random", "rules:random", "baseline: asks with a fixed probability", {"needs_threshold": True}),
):
    QUERY_POLICIES.register(_name, f"apil.query.{_target}", _summary, **_traits)

THRESHOLD_POLICIES = ("intrun", "extrun", "behvun", "modlun", "errpred", "random")
"""Query policies that have a number to calibrate: a threshold, or for `random` the probability of asking."""


STUDIED = ("bc", "dagger", "intrun", "extrun", "behvun", "modlun", "errpred", "apil", "never", "random")
"""The paper's query policies and two baselines."""


def study_policies() -> tuple[str, ...]:
    """What a study compares unless told otherwise: `STUDIED`, and every policy from outside apil."""
    return (*STUDIED, *(entry.name for entry in QUERY_POLICIES if entry.own))
