"""Intervals and bands say how sure a mean over seeds is, the same way every time."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apil.errors import ApilError
from apil.studies.statistics import (
    UNKNOWN,
    bands,
    estimate,
    from_json,
    interval,
    principal_plane,
    stratified_estimate,
    student_half_width,
)


@given(st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=12))
def test_an_interval_holds_its_mean_and_stays_within_the_values(values: list[float]) -> None:
    found = estimate(values, resamples=200)
    assert found.low <= found.mean <= found.high
    slack = 1e-9 * max(map(abs, values))
    assert min(values) - slack <= found.low
    assert found.high <= max(values) + slack


def test_an_interval_is_the_same_every_time() -> None:
    values = np.random.default_rng(0).normal(size=20)
    assert interval(values) == interval(values.tolist())


def test_an_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    found = [estimate(rng.normal(5.0, 2.0, 30), resamples=500) for _ in range(300)]
    assert 0.88 <= np.mean([each.low <= 5.0 <= each.high for each in found]) <= 0.99


@pytest.mark.parametrize("seeds", [2, 3, 11, 30])
def test_students_interval_holds_95_percent_of_students_density(seeds: int) -> None:
    values = np.random.default_rng(seeds).normal(size=seeds)
    reach = student_half_width(values.tolist()) / (np.std(values, ddof=1) / math.sqrt(seeds))
    free = seeds - 1
    angles = np.linspace(0.0, math.atan(reach / math.sqrt(free)), 20_001)
    # The density in t = sqrt(free) tan(angle), so that heavy tails are no trouble.
    scale = math.exp(math.lgamma((free + 1) / 2) - math.lgamma(free / 2)) / math.sqrt(math.pi)
    heights = np.cos((angles[1:] + angles[:-1]) / 2) ** (free - 1)
    assert 2 * scale * heights.sum() * angles[1] == pytest.approx(0.95, abs=1e-6)


@pytest.mark.parametrize("seeds", [3, 11, 30])
def test_students_interval_covers_the_true_mean_as_often_as_it_says(seeds: int) -> None:
    samples = np.random.default_rng(seeds).normal(5.0, 2.0, (2000, seeds))
    held = [abs(sample.mean() - 5.0) <= student_half_width(sample.tolist()) for sample in samples]
    assert np.mean(held) == pytest.approx(0.95, abs=0.02)


def test_one_value_has_no_student_interval() -> None:
    with pytest.raises(ApilError, match="2 values or more; got 1"):
        student_half_width([0.5])


@pytest.mark.parametrize("seeds", [11, 30])
def test_intervals_of_many_seeds_are_those_of_an_independent_bootstrap(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    values = rng.normal(size=seeds)
    drawn = values[rng.integers(0, seeds, (20_000, seeds))]
    cut = seeds // 4
    middle = np.sort(drawn, axis=1)[:, cut : seeds - cut]
    for found, means in ((estimate(values), drawn.mean(1)), (stratified_estimate([values]), middle.mean(1))):
        np.testing.assert_allclose([found.low, found.high], np.quantile(means, (0.025, 0.975)), atol=0.05)


def test_one_seed_has_no_interval() -> None:
    assert interval([0.3]) == {"mean": 0.3, "low": 0.3, "high": 0.3}


def test_runs_without_the_figure_are_left_out() -> None:
    assert interval([1.0, math.nan, 3.0]) == interval([1.0, 3.0])


@pytest.mark.parametrize("values", [[], [math.nan, math.nan]])
def test_a_figure_that_no_run_has_is_null_in_json_and_unknown_when_read(values: list[float]) -> None:
    text = json.dumps(interval(values), allow_nan=False)
    assert text == '{"mean": null, "low": null, "high": null}'
    assert not from_json(json.loads(text)).known
    assert from_json(None) is UNKNOWN


def test_intervals_overlap_when_they_share_a_point() -> None:
    low, high = estimate([0.1, 0.2]), estimate([0.15, 0.3])
    assert low.overlaps(high)
    assert not low.overlaps(estimate([0.5, 0.6]))
    assert not low.overlaps(UNKNOWN)


def test_a_band_is_the_interval_of_each_point() -> None:
    values = np.random.default_rng(2).normal(size=(8, 3))
    found = bands(values, resamples=10_000)
    for point in range(3):
        single = estimate(values[:, point])
        np.testing.assert_allclose(
            [found.mean[point], found.low[point], found.high[point]], [single.mean, single.low, single.high]
        )


def test_a_band_leaves_gaps_where_runs_have_no_value() -> None:
    values = np.array([[1.0, 2.0, math.nan], [3.0, math.nan, math.nan]])
    found = bands(values)
    np.testing.assert_allclose(found.mean[:2], [2.0, 2.0])
    assert found.low[1] == found.high[1] == 2.0
    assert all(math.isnan(curve[2]) for curve in (found.mean, found.low, found.high))


def test_values_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(ApilError, match="one value per seed"):
        interval(np.zeros((2, 2)))
    with pytest.raises(ApilError, match="values \\[seeds, points\\]"):
        bands(np.zeros(3))


def test_the_plane_keeps_distances_of_points_that_lie_in_one() -> None:
    rng = np.random.default_rng(4)
    flat = rng.normal(size=(6, 2)) @ np.linalg.qr(rng.normal(size=(50, 2)))[0].T
    places, shares = principal_plane([flat[:2], flat[2:]])
    assert [len(group) for group in places] == [2, 4]
    assert shares.sum() == pytest.approx(1.0)
    original = np.linalg.norm(flat[0] - flat[5])
    assert np.linalg.norm(places[0][0] - places[1][3]) == pytest.approx(original)


def test_the_plane_of_two_equal_points_is_one_place() -> None:
    places, shares = principal_plane([np.ones((2, 50))])
    np.testing.assert_allclose(places[0], 0.0, atol=1e-12)
    assert np.isfinite(shares).all()
