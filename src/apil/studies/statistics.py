"""How sure a mean over seeds is: bootstrap intervals and bands, the same on every machine and every call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from apil.errors import ApilError

Floats = NDArray[np.float64]

COVERAGE = 0.95
"""Share of the bootstrap means that an interval or a band holds."""
_ENDS = ((1 - COVERAGE) / 2, (1 + COVERAGE) / 2)

BOOTSTRAP_SEED = 20_200_613
"""Seed of the resampling. It is fixed, so that equal values give equal intervals."""


Interval = dict[str, float | None]
"""An estimate as JSON holds it: mean, low and high, all None when no run has the figure."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval. All three are NaN when no run has the figure."""

    mean: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether at least one run had the figure."""
        return math.isfinite(self.mean)

    def overlaps(self, other: Estimate) -> bool:
        """Whether the two intervals share a point. False when either is unknown."""
        return self.low <= other.high and other.low <= self.high


UNKNOWN = Estimate(math.nan, math.nan, math.nan)


class Bands(NamedTuple):
    """A mean curve with its pointwise 95 % band, each [points]; NaN at the points that no run has."""

    mean: Floats
    low: Floats
    high: Floats


def interval(values: Sequence[float] | Floats) -> Interval:
    """Mean and 95 % percentile bootstrap interval of one figure per seed, ready for JSON.

    A NaN means that the run has no such figure (a rate over no steps, say): it is left out. One value gives three equal
    entries.
    """
    return to_json(estimate(values))


def to_json(figure: Estimate) -> Interval:
    """The estimate for JSON, which knows no NaN."""
    return {name: value if math.isfinite(value) else None for name, value in asdict(figure).items()}


def from_json(data: Mapping[str, float | None] | None) -> Estimate:
    """The estimate that an `Interval` stands for; unknown when it is absent or holds None."""
    if data is None:
        return UNKNOWN
    values = [data.get(key) for key in ("mean", "low", "high")]
    return Estimate(*(math.nan if value is None else float(value) for value in values))


def estimate(values: Sequence[float] | Floats, *, resamples: int = 10_000) -> Estimate:
    """The same as `interval`, for use in the program: unknown is NaN, not None."""
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1:
        raise ApilError(f"An interval needs one value per seed, a flat list; got an array of shape {column.shape}.")
    column = _finite(column)
    if column.size == 0:
        return UNKNOWN
    return Estimate(*(float(curve[0]) for curve in bands(column[:, None], resamples=resamples)))


def bands(values: Floats, *, resamples: int = 1_000) -> Bands:
    """Mean and 95 % percentile bootstrap band at every point, from values [seeds, points].

    Whole curves are resampled. NaN entries are left out point by point, so that runs may be of unequal length.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or resamples < 1:
        raise ApilError(f"A band needs values [seeds, points] and resamples; got {table.shape} and {resamples}.")
    if table.size == 0:
        empty = np.full(table.shape[1], np.nan)
        return Bands(empty, empty, empty)
    mean = mean_curve(table)
    means = _weighted_means(table, _draws(table.shape[0], resamples))
    low, high = _quantiles(means)
    return Bands(mean, np.fmin(low, mean), np.fmax(high, mean))


def mean_curve(table: Floats) -> Floats:
    """Mean over seeds [points] of values [seeds, points]; NaN entries are left out."""
    mean: Floats = _weighted_means(table, np.ones((1, len(table))))[0]
    return mean


@lru_cache
def _draws(count: int, resamples: int) -> Floats:
    """How often each of `count` seeds is drawn [resamples, count]."""
    drawn = np.random.default_rng(BOOTSTRAP_SEED).multinomial(count, np.full(count, 1 / count), size=resamples)
    return drawn.astype(np.float64)


def _weighted_means(table: Floats, weights: Floats) -> Floats:
    """Means over seeds [draws, points] under weights [draws, seeds]; NaN entries weigh nothing."""
    there = np.isfinite(table)
    total = weights @ np.where(there, table, 0.0)
    weight = weights @ there.astype(np.float64)
    return np.divide(total, weight, out=np.full_like(total, np.nan), where=weight > 0)


def _quantiles(means: Floats) -> Floats:
    """Both ends of the band [2, points], over the draws that have a mean; NaN where none has."""
    there = np.isfinite(means)
    whole, some = there.all(axis=0), there.any(axis=0)
    result = np.full((2, means.shape[1]), np.nan)
    result[:, whole] = np.quantile(means[:, whole], _ENDS, axis=0)
    for point in np.flatnonzero(some & ~whole):
        result[:, point] = np.quantile(means[there[:, point], point], _ENDS)
    return result


def student_half_width(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of a mean by Student's distribution, for few values (two or more).

    Of three values the bootstrap interval is the range: it holds the true mean in about three of four cases.
    """
    if len(values) < 2:
        raise ApilError(f"A Student interval is made of 2 values or more; got {len(values)}.")
    quantile = scipy.stats.t.ppf((1 + COVERAGE) / 2, len(values) - 1)
    return float(quantile * scipy.stats.sem(values))


def principal_plane(groups: Sequence[Floats]) -> tuple[list[Floats], Floats]:
    """Every group of vectors in the first two principal axes of all, and the variance share of each axis."""
    stacked = np.concatenate(groups)
    centred = stacked - stacked.mean(axis=0)
    _, scale, axes = np.linalg.svd(centred, full_matrices=False)
    places = np.zeros((len(stacked), 2))
    kept = min(2, len(scale))
    places[:, :kept] = centred @ axes[:kept].T
    shares = np.zeros(2)
    shares[:kept] = scale[:kept] ** 2 / max(float((scale**2).sum()), 1e-30)
    return np.split(places, np.cumsum([len(group) for group in groups])[:-1]), shares


Strata = Sequence[Sequence[float] | Floats]
"""The runs of each stratum, a task with a teacher; one figure a run."""
_RESAMPLES = 2_000


def stratified_estimate(strata: Strata, *, resamples: int = _RESAMPLES) -> Estimate:
    """The interquartile mean of all runs with its 95 % percentile interval.

    A quarter of the values is cut at each end (Agarwal et al., Deep Reinforcement Learning at the Edge of the
    Statistical Precipice, 2021). Runs are drawn within each stratum. Figures that are not finite are left out.
    """
    known = [_finite(values) for values in strata]
    drawn = [values for values in known if values.size > 1]
    alone = np.concatenate([np.empty(0), *(values for values in known if values.size == 1)])

    def middle(*samples: Floats, axis: int = -1) -> Floats:
        rest = np.broadcast_to(alone, (*samples[0].shape[:-1], alone.size)) if samples else alone
        found: Floats = scipy.stats.trim_mean(np.concatenate([*samples, rest], axis), 0.25, axis)
        return found

    if not drawn:
        return estimate([float(middle())] if alone.size else [])
    found = float(middle(*drawn))
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    around = scipy.stats.bootstrap(drawn, middle, method="percentile", n_resamples=resamples, rng=rng)
    low, high = around.confidence_interval
    return Estimate(found, min(float(low), found), max(float(high), found))


def mean_over_strata(strata: Strata, *, resamples: int = 10_000) -> Estimate:
    """The mean over strata of the mean in each, with its 95 % percentile bootstrap interval.

    Runs are drawn within each stratum. Figures that are not finite are left out.
    """
    known = [values for values in map(_finite, strata) if values.size]
    if len(known) <= 1:
        return estimate(known[0] if known else [], resamples=resamples)
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    drawn = [rng.choice(values, (resamples, values.size)).mean(axis=1) for values in known]
    found = float(np.mean([values.mean() for values in known]))
    low, high = np.quantile(np.mean(drawn, axis=0), _ENDS)
    return Estimate(found, min(float(low), found), max(float(high), found))


def probability_above(ours: Sequence[float] | Floats, theirs: Sequence[float] | Floats) -> float:
    """P(X > Y) + P(X = Y) / 2 of a run X of ours and one Y of theirs; NaN where either has none."""
    x, y = _finite(ours), _finite(theirs)
    if not (x.size and y.size):
        return math.nan
    return float((x[:, None] > y).mean() + (x[:, None] == y).mean() / 2)


def improvement(ours: Strata, theirs: Strata) -> Estimate:
    """The probability that a run of ours is better (higher) than one of theirs, with its 95 % interval.

    P(X > Y) + P(X = Y) / 2, averaged over the strata that both have; both are resampled within each stratum.
    """
    if len(ours) != len(theirs):
        raise ApilError(f"{len(ours)} strata cannot be compared with {len(theirs)}: give the same tasks and teachers.")
    pairs = [(_finite(x), _finite(y)) for x, y in zip(ours, theirs, strict=True)]
    pairs = [(x, y) for x, y in pairs if x.size and y.size]
    if not pairs:
        return UNKNOWN
    found = float(np.mean([probability_above(x, y) for x, y in pairs]))
    drawn = np.zeros(_RESAMPLES)
    picked = _picked(tuple((len(x), len(y)) for x, y in pairs))
    for (x, y), (ours_drawn, theirs_drawn) in zip(pairs, picked, strict=True):
        above = (x[:, None] > y) + (x[:, None] == y) / 2
        drawn += above[ours_drawn[:, :, None], theirs_drawn[:, None, :]].mean((1, 2)) / len(pairs)
    low, high = np.quantile(drawn, _ENDS)
    return Estimate(found, min(float(low), found), max(float(high), found))


@lru_cache(maxsize=8)
def _picked(sizes: tuple[tuple[int, int], ...]) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """For strata with so many runs of ours and theirs, which of them are drawn, [resamples, runs] each."""
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    drawn = [[(rng.integers(0, m, m), rng.integers(0, n, n)) for m, n in sizes] for _ in range(_RESAMPLES)]
    return [(np.stack([x for x, _ in own]), np.stack([y for _, y in own])) for own in zip(*drawn, strict=True)]


def _finite(values: Sequence[float] | Floats) -> Floats:
    column = np.asarray(values, dtype=np.float64)
    return column[np.isfinite(column)]


def area_under(interactions: Floats, success: Floats, limit: float) -> float:
    """The mean success over the first `limit` interactions: the area under the curve, over `limit`.

    The curve joins its points; before the first it is as high as there, after the last it stays where it ended.
    """
    if not limit > 0:
        return math.nan
    knots = np.unique(np.clip(np.concatenate([[0.0, limit], interactions]), 0.0, limit))
    last = np.append(np.diff(interactions) > 0, True)  # of points with equal interactions
    heights = np.interp(knots, interactions[last], success[last])
    return float(((heights[1:] + heights[:-1]) / 2 * np.diff(knots)).sum() / limit)


def needed(interactions: Floats, success: Floats, level: float) -> float:
    """The interactions used when success first was at `level` or above; NaN where it never was."""
    reached = np.flatnonzero(success >= level)
    return float(interactions[reached[0]]) if reached.size else math.nan
