"""The settings of a run as typed keywords of `apil.train`. Made by tests/keywords.py; do not edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from apil.settings.record import Option


class RunKeywords(TypedDict, total=False):
    """Every setting of a run but its task, teacher and query policy; see `apil train --help`."""

    options: Mapping[str, Option]
    weights: tuple[float, ...] | None
    selection: Literal["episode", "query"] | None
    teacher_deadline: float | None
    on_teacher_error: Literal["stop", "skip"]
    threshold: float | None
    budget: float | None
    answer_budget: int | None
    stop: Literal["never", "when-flat"]
    patience: int | None
    asking: Literal["live", "review"]
    sigma: float
    epsilon: float
    gap: float | Literal["estimate"]
    query_options: Mapping[str, Option]
    select: str
    switch_cost: float
    acting: Literal["as-answered", "by-skill"]
    select_options: Mapping[str, Option]
    encode: int
    standardise: bool
    hidden: int
    persona: int
    dropout: float
    models: int
    expectation: Literal["monte-carlo", "exact"]
    samples: int
    batch: int
    learning_rate: float
    optimizer: Literal["adam", "muon"]
    warmup: int
    clip: float
    average: float
    updates: int
    replay: int | Literal[0]
    recent: float
    capacity: int
    window: int
    validation: float
    seed: int
    iterations: int
    log_every: int
    save_every: int
    looks: int
    walks: int
    answers: bool
