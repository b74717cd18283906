"""Thresholds by measurement: the query rate over a whole run, with Detm or other teachers, on par with APIL's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import count, product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from apil.errors import ApilError, plural
from apil.files import read_json, write_json
from apil.learning.build import make_task
from apil.learning.trainer import Trainer
from apil.query import QUERY_POLICIES, THRESHOLD_POLICIES, needs_threshold
from apil.settings import RunSettings
from apil.studies.plan import SAME_FOR_ONE, Cell
from apil.studies.text import spelled
from apil.studies.workers import worker_pool

Progress = Callable[[int, int], None]
"""Gets how much is done, and of how much."""
Found = dict[str, dict[str, Any]]
"""By query policy: `threshold`, `how` it was found, and where it was measured `query_rate` and its `target`."""

FIRST_SEED = 10_000
"""Seeds of calibration start here, far from those of any study."""
UNCALIBRATED = {"extrun": 0.002}
"""Detm has no extrinsic uncertainty to bring on par. With 0.005 most runs on GRID never ask a first question."""
_ROUNDS, _POINTS, _BRIEF_ROUNDS = 3, 8, 4
_ON_PAR = 0.1
"""A brief search ends with a rate that differs from the target by at most this share of it."""
_SILENT = 0.1
"""A run has fallen silent that asks, over its last tenth, at less than this share of APIL's rate there."""


def calibrate(
    base: RunSettings, queries: Sequence[str], seeds: int, progress: Progress = lambda done, total: None
) -> Found:
    """The threshold of each query policy on the task of `base`, and how it was found.

    Runs APIL for the target rate, then in three rounds a stack of candidates, eight thresholds at once, each round
    between the two neighbours of the last best. `progress` gets the rounds done and their total.
    """
    for query in queries:
        if not needs_threshold(query):
            raise ApilError(f"'{query}' has no threshold. Policies to calibrate: {', '.join(THRESHOLD_POLICIES)}.")
    searched = _searched(queries)
    ticks = count(1)

    def tick() -> None:
        progress(next(ticks), 1 + _ROUNDS * len(searched))

    target = _rates(base, "apil", [None], seeds)[0]
    tick()
    length = plural(base.iterations, "iteration")
    setting = f"{spelled(base.teachers.name)}, {plural(seeds, 'seed')} from {FIRST_SEED}, {length}"
    how = f"APIL's query rate over the whole run ({setting})."
    found = {"random": {"threshold": round(target, 6), "query_rate": target, "target": target, "how": how}}
    for query in searched:
        threshold, rate = _search(base, query, target, seeds, tick)
        how = f"Query rate over the whole run {rate:.4f}, APIL's {target:.4f} ({setting})."
        found[query] = {"threshold": threshold, "query_rate": rate, "target": target, "how": how}
    return _of_each(queries, found)


def _searched(queries: Sequence[str]) -> list[str]:
    """The query policies whose thresholds have to be searched for."""
    return sorted({SAME_FOR_ONE.get(query, query) for query in queries} - {"random", *UNCALIBRATED})


def _of_each(queries: Sequence[str], found: Found) -> Found:
    """What was found for each query policy, or for another that is the same."""
    how = "Not calibrated: Detm is one teacher and has no extrinsic uncertainty. A small constant."
    known = {**found, **{query: {"threshold": value, "how": how} for query, value in UNCALIBRATED.items()}}
    return {query: known[SAME_FOR_ONE.get(query, query)] for query in queries}


def _search(base: RunSettings, query: str, target: float, seeds: int, tick: Callable[[], None]) -> tuple[float, float]:
    """The candidate whose rate is nearest to the target, and its rate."""
    tried: dict[float, float] = {}
    task = make_task(base)
    # An entropy is at most log2(A) bits; the variance of n scaled actions at most 4 each within a policy, 1 between.
    most = math.log2(task.actions) if task.box is None else 5.0 * task.actions
    high = QUERY_POLICIES.trait(query, "score_limit", None) or most
    low = 1e-5
    for _ in range(_ROUNDS):
        candidates = [float(f"{value:.4g}") for value in np.geomspace(low, high, _POINTS)]
        new = [value for value in candidates if value not in tried]
        tried.update(zip(new, _rates(base, query, new, seeds), strict=True))
        ordered = sorted(tried)
        best = min(ordered, key=lambda value: (abs(tried[value] - target), value))
        place = ordered.index(best)
        low, high = ordered[max(place - 1, 0)], ordered[min(place + 1, len(ordered) - 1)]
        tick()
    return best, tried[best]


def _rates(base: RunSettings, query: str, thresholds: Sequence[float | None], seeds: int) -> list[float]:
    """The query rate over the whole run for each threshold, averaged over seeds; all runs in one stack."""
    wanted = product(thresholds, range(FIRST_SEED, FIRST_SEED + seeds))
    trainer = Trainer([base.changed(query=query, threshold=threshold, seed=seed) for threshold, seed in wanted])
    trainer.train()
    rates = [_rate(rows) for rows in trainer.rows]
    return [fmean(rates[place : place + seeds]) for place in range(0, len(rates), seeds)]


def calibrate_briefly(
    base: RunSettings,
    queries: Sequence[str],
    workers: int,
    progress: Progress = lambda done, total: None,
    kept: Path | None = None,
) -> Found:
    """Thresholds on tasks whose runs are too long to search among many, in runs of a fifth of the length with Detm.

    One run of APIL gives the target rate. Each policy trains once with that rate as its budget; the search starts at
    the threshold that this share of its scores lies above. A threshold changes what is learned from, so the rate of a
    run of its own counts; a run that falls silent, where APIL's does not, counts as one that never asks. What each run
    gave is noted in the file `kept`: an interrupted search resumes from there.
    """
    short = base.changed(teacher="detm", seed=FIRST_SEED, weights=None, answers=False)
    short = short.changed(iterations=max(1, base.iterations // 5))
    searched = _searched(queries)
    total = 1 + len(searched) * (1 + _BRIEF_ROUNDS)
    with worker_pool(workers) as pool:
        notes = _Notes(pool, kept)
        apil = notes.of(_rates_of, [short.changed(query="apil", threshold=None)])[0]
        target = apil["rate"]
        progress(1, total)
        budgets = [short.changed(query=query, threshold=None, budget=target) for query in searched]
        found = notes.of(_threshold_for_budget, budgets)
        starts = {query: start["score"] for query, start in zip(searched, found, strict=True)}
        tried: dict[str, dict[float, float]] = {query: {} for query in searched}
        for done in range(1, 1 + _BRIEF_ROUNDS):
            progress(1 + done * len(searched), total)
            wanted = [(query, value) for query in searched for value in _next(tried[query], starts[query], target)]
            configs = [short.changed(query=query, threshold=value) for query, value in wanted]
            for (query, value), came in zip(wanted, notes.of(_rates_of, configs), strict=True):
                tried[query][value] = 0.0 if came["end"] < _SILENT * apil["end"] else came["rate"]
    progress(total, total)
    setting = f"Detm, 1 seed ({FIRST_SEED}), {short.iterations} iterations"
    results: Found = {"random": {"threshold": target, "target": target, "how": f"APIL's query rate ({setting})."}}
    for query, rates in tried.items():
        threshold = min(sorted(rates), key=lambda value: abs(rates[value] - target))
        how = f"Query rate {rates[threshold]:.4f}, APIL's {target:.4f} ({setting}); {len(rates)} thresholds tried."
        results[query] = {"threshold": threshold, "query_rate": rates[threshold], "target": target, "how": how}
    return _of_each(queries, results)


class _Notes:
    """What short runs gave, in a file that grows as they end."""

    def __init__(self, pool: ProcessPoolExecutor, file: Path | None) -> None:
        self._pool, self._file = pool, file
        self._known: dict[str, dict[str, Any]] = read_json(file) if file is not None and file.exists() else {}

    def of(self, measure: Callable[[RunSettings], dict[str, float]], configs: Sequence[RunSettings]) -> list[Any]:
        """The measures of runs, from the file where it has them."""
        new = [config for config in configs if Cell(config).folder not in self._known]
        for config, measured in zip(new, self._pool.map(measure, new), strict=True):
            given = {"threshold": config.query.threshold, "budget": config.query.budget}
            self._known[Cell(config).folder] = {**given, **measured}
            if self._file is not None:
                write_json(self._file, self._known)
        return [self._known[Cell(config).folder] for config in configs]


def _next(tried: dict[float, float], start: float, target: float) -> list[float]:
    """The two thresholds to try next, given the rates of those tried; none where one of them is on par."""
    if not tried:
        values = [start, 0.8 * start]
    elif min(abs(rate - target) for rate in tried.values()) <= _ON_PAR * target:
        return []
    else:
        low = max((value for value, rate in tried.items() if rate > target), default=0.0)
        high = min((value for value, rate in tried.items() if rate <= target and value > low), default=math.inf)
        if low and high < math.inf:
            values = [low + (high - low) / 3, low + 2 * (high - low) / 3]
        else:
            values = [1.15 * low, 1.35 * low] if low else [0.7 * high, 0.5 * high]
    return [value for value in (float(f"{value:.4g}") for value in values) if value not in tried]


def _rates_of(config: RunSettings) -> dict[str, float]:
    """The query rate over a whole run, and over its last tenth."""
    trainer = Trainer([config])
    trainer.train()
    rows = trainer.rows[0]
    last = [row for row in rows if row["iteration"] > 0.9 * config.iterations]
    return {"rate": _rate(rows), "end": _rate(last)}


def _rate(rows: Sequence[Mapping[str, float]]) -> float:
    return float(sum(row["query_rate"] * row["steps"] for row in rows) / sum(row["steps"] for row in rows))


def _threshold_for_budget(config: RunSettings) -> dict[str, float]:
    """What the share of scores that the run's budget allows lies above, over the whole run."""
    assert config.query.budget is not None
    trainer = Trainer([config])
    policy = trainer.agents.queries[0].part
    scores = []
    while trainer.iteration < config.iterations:
        trainer.step()
        scores.append(policy.memory["gate.recent"][policy.memory["gate.known"]].clone())
    return {"score": float(f"{np.quantile(torch.cat(scores).numpy(), 1.0 - config.query.budget):.4g}")}
