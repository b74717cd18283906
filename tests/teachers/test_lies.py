"""Teachers that lie about the distance or about who they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from apil.errors import ApilError
from apil.rng import Streams
from apil.teachers import Anonymous, Member, NoisyDistance, NoisyIdentity, Team
from apil.teachers.committee import committee
from apil.teachers.protocol import Teacher, costs_of, may_miss_distances, reported_end
from apil.types import Answer, Observation, Reference

_EPISODES, _HORIZON = 20_000, 2


def _lesson(teacher: Teacher, distance: float = 8.0) -> tuple[list[Answer], Tensor, bool]:
    """The answers where every distance is the same, what is told at the end, and whether distances may be missing."""
    session = teacher.begin(Streams([3]).draws("teacher", 5), _EPISODES, _HORIZON)
    shape = (1, _EPISODES)
    seen = Observation(torch.zeros(*shape, 1), torch.ones(*shape, 4, dtype=torch.bool))
    true = torch.full(shape, distance)
    reference = Reference(torch.arange(4).expand(*shape, -1), torch.full(shape, 4), true)
    asked = torch.ones(shape, dtype=torch.bool)
    answers = [session.answer(seen, reference, asked, t) for t in range(_HORIZON)]
    return answers, reported_end(session, true), may_miss_distances(session)


def test_noise_has_the_stated_distribution_at_every_step_and_at_the_end() -> None:
    answers, end, _ = _lesson(NoisyDistance(committee("detm"), noise=0.3))
    told = [answer.distance.flatten().double().numpy() for answer in answers] + [end.flatten().double().numpy()]
    for values in told:
        # d * max(0, 1 + 0.3 N) is 0 with a chance of 0.0004 and normal elsewhere.
        assert stats.kstest(values, stats.norm(8.0, 8.0 * 0.3).cdf).statistic < 1.95 / math.sqrt(_EPISODES)
    for one, two in ((0, 1), (0, 2), (1, 2)):
        assert abs(np.corrcoef(told[one], told[two])[0, 1]) < 5 / math.sqrt(_EPISODES)


def test_large_noise_stops_at_zero_and_nothing_stays_nothing() -> None:
    answers, end, _ = _lesson(NoisyDistance(committee("detm"), noise=1.0))
    chance = stats.norm.cdf(-1)
    share = float((answers[0].distance == 0).float().mean())
    assert abs(share - chance) < 5 * math.sqrt(chance * (1 - chance) / _EPISODES)
    assert bool((answers[0].distance >= 0).all())
    _, end, _ = _lesson(NoisyDistance(committee("detm"), noise=1.0), distance=0.0)
    assert bool((end == 0).all())


def test_bias_and_rounding() -> None:
    low = _lesson(NoisyDistance(committee("detm"), bias=-9.0))
    assert bool((low[0][0].distance == 0).all())
    assert bool((low[1] == 0).all())
    rounded = _lesson(NoisyDistance(committee("detm"), bias=0.6, quantum=5.0))
    assert bool((rounded[0][0].distance == 10.0).all()), "8.6 to the nearest multiple of 5"


def test_missing_distances_are_nan_as_often_as_said_and_announced() -> None:
    answers, end, announced = _lesson(NoisyDistance(committee("detm"), missing=0.25))
    assert announced
    for values in (answers[0].distance, answers[1].distance, end):
        share = float(values.isnan().float().mean())
        assert abs(share - 0.25) < 5 * math.sqrt(0.25 * 0.75 / _EPISODES)
        assert bool((values[~values.isnan()] == 8.0).all())
    assert not _lesson(NoisyDistance(committee("detm"), noise=0.5))[2]


def test_actions_and_names_are_those_of_the_teacher_inside() -> None:
    plain = _lesson(committee("first+uniform", selection="query"))[0]
    liar = NoisyDistance(committee("first+uniform", selection="query"), noise=0.5, missing=0.5)
    for one, two in zip(plain, _lesson(liar)[0], strict=True):
        assert torch.equal(one.action, two.action)
        assert torch.equal(one.identity, two.identity)
    quiet = _lesson(NoisyDistance(committee("first+uniform", selection="query")))[0]
    assert torch.equal(plain[0].distance, quiet[0].distance), "no noise is the truth, to the bit"


def test_a_wrong_name_is_any_of_the_others() -> None:
    teacher = committee("first+last+uniform", selection="query")
    true, told = _lesson(teacher)[0], _lesson(NoisyIdentity(teacher, 0.3))[0]
    for one, two in zip(true, told, strict=True):
        assert torch.equal(one.action, two.action)
        jump = (two.identity - one.identity) % 3
        for shift, chance in ((0, 0.7), (1, 0.15), (2, 0.15)):
            share = float((jump == shift).float().mean())
            assert abs(share - chance) < 5 * math.sqrt(chance * (1 - chance) / _EPISODES)
    single = _lesson(NoisyIdentity(committee("detm"), 1.0))[0]
    assert bool((single[0].identity == 0).all())


def test_lies_pile_up_and_a_shared_name_hides_who_answered() -> None:
    inside = NoisyDistance(committee("twodifdetm"), noise=0.5, missing=0.5)
    teacher = Anonymous(NoisyIdentity(inside, 0.5), "them")
    assert teacher.members == ("them",)
    answers, end, announced = _lesson(teacher)
    assert announced
    assert bool((answers[0].identity == 0).all())
    assert set(answers[0].action.flatten().tolist()) == {0, 3}
    same = _lesson(inside)
    assert torch.equal(answers[0].distance.nan_to_num(-1), same[0][0].distance.nan_to_num(-1))
    assert torch.equal(end.nan_to_num(-1), same[1].nan_to_num(-1))


def test_costs_pass_through_and_are_averaged_where_nobody_has_a_name() -> None:
    team = Team([Member("a", "first", weight=3, cost=2), Member("b", "last", cost=10)])
    assert costs_of(NoisyDistance(team, noise=1)) == (2, 10)
    assert costs_of(Anonymous(team)) == (4.0,)
    assert costs_of(committee("twodifdetm")) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noise": -0.1}, "noise is -0.1"),
        ({"noise": math.inf}, "noise is inf"),
        ({"quantum": -1.0}, "quantum is -1"),
        ({"bias": math.nan}, "bias is nan"),
        ({"missing": 1.1}, "missing is 1.1: give a probability"),
    ],
)
def test_lies_that_cannot_be_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ApilError, match=message):
        NoisyDistance(committee("detm"), **settings)
