"""When to ask."""

from __future__ import annotations

from apil.registry import Registry

QUERY_POLICIES = Registry("query policy")
for _name, _target, _summary in (
    ("bc", "rules:bc", "behaviour cloning: asks at every step and does what the teacher says"),
    ("dagger", "rules:dagger", "DAGGER: asks at every step, acts by itself"),
    (
        "intrun",
        "rules:intrun",
        "asks where a teacher seems to vary (intrinsic uncertainty above a threshold)",
    ),
    (
        "extrun",
        "rules:extrun",
        "asks where teachers seem to differ (extrinsic uncertainty above a threshold)",
    ),
    ("behvun", "rules:behvun", "asks where behaviour is uncertain (intrinsic + extrinsic above a threshold)"),
    ("modlun", "rules:modlun", "asks where the model is uncertain (mutual information above a threshold)"),
    ("errpred", "errors:ErrorPrediction", "asks where it predicts a large error against the teacher"),
    (
        "apil",
        "progress:ProgressPrediction",
        "asks where it predicts no progress towards the goal (the paper's)",
    ),
    ("never", "rules:never", "baseline: never asks, never learns"),
    ("random", "rules:random", "baseline: asks with a fixed probability"),
):
    QUERY_POLICIES.register(_name, f"apil.query.{_target}", _summary)

THRESHOLD_POLICIES = ("intrun", "extrun", "behvun", "modlun", "errpred", "random")
"""Query policies that have a number to calibrate: a threshold, or for `random` the probability of asking."""
