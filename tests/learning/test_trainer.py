"""Training: the same bits alone and in any stack, the rows of metrics, and what an agent learns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from apil.learning.collect import collect
from apil.learning.evaluate import CHUNK, PASSES, evaluate
from apil.learning.metrics import PARTS
from apil.learning.state import weights
from apil.learning.trainer import Trainer
from apil.query import QUERY_POLICIES
from apil.settings import RunSettings

_THRESHOLDS = {"intrun": 0.1, "extrun": 0.002, "behvun": 0.1, "modlun": 0.002, "errpred": 0.4, "random": 0.3}
_THRESHOLDS |= {
    "least-confidence": 0.3,
    "margin": 0.7,
    "entropy": 0.5,
    "variance": 0.001,
    "rnd": 0.01,
    "slip": 0.02,
    "random-review": 0.3,
    "random-slow": 0.3,
}
_SAMPLES = (0, 1, 5, 20)
"""N1 of the runs of a stack in turn; 0 for the exact expectation."""

Outcome = tuple[list[dict[str, Any]], dict[str, Tensor]]


def _run(place: int, query: str, **settings: Any) -> RunSettings:
    samples = _SAMPLES[place % 4]
    return RunSettings.of(
        teacher=("tworand", "twodifdetm", "first+uniform")[place % 3],
        query=query,
        seed=place * 3 % 7,
        threshold=_THRESHOLDS.get(query),
        expectation="monte-carlo" if samples else "exact",
        samples=samples or 5,
        **settings,
    )


def _outcomes(configs: list[RunSettings]) -> list[Outcome]:
    trainer = Trainer(configs)
    trainer.train()
    return [(rows, weights(trainer.agents, run)) for run, rows in enumerate(trainer.rows)]


@pytest.fixture(scope="module", params=[("grid", 40, 1), ("maze", 6, 3)], ids=["grid", "maze"])
def three_ways(request: pytest.FixtureRequest) -> list[tuple[RunSettings, Outcome, Outcome, Outcome]]:
    """Many different runs, each trained alone, in one of two stacks, and in one stack of all."""
    task, iterations, batch = request.param
    settings = {"task": task, "iterations": iterations, "batch": batch, "log_every": iterations // 3}
    queries = [*QUERY_POLICIES.names(), "apil", "dagger", "errpred", "random"]
    configs = [_run(place, query, **settings) for place, query in enumerate(queries)]
    alone = [_outcomes([config])[0] for config in configs]
    halves = _outcomes(configs[:6]) + _outcomes(configs[6:])
    return list(zip(configs, alone, halves, _outcomes(configs), strict=True))


def _figures(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows without the figures that a run does not have."""
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def test_a_run_gives_the_same_bits_alone_and_in_any_stack(three_ways: list[Any]) -> None:
    differ = [
        (config.query.name, config.model.expectation, config.model.samples)
        for config, alone, *stacked in three_ways
        for other in stacked
        if _figures(alone[0]) != _figures(other[0])
        or any(not torch.equal(value, other[1][name]) for name, value in alone[1].items())
    ]
    assert differ == []


def test_a_run_logs_the_same_figures_whatever_its_company(three_ways: list[Any]) -> None:
    differ = [
        (config.query.name, set(alone[0][0]) ^ set(other[0][0]))
        for config, alone, *stacked in three_ways
        for other in stacked
        if list(alone[0][0]) != list(other[0][0])
    ]
    assert differ == []


def test_rows_come_at_their_interval_and_at_the_end_and_count_steps(three_ways: list[Any]) -> None:
    for config, (rows, _), *_ in three_ways:
        every = config.log_every
        assert [row["iteration"] for row in rows] == [*range(every, config.iterations, every), config.iterations]
        answers = 0
        for row in rows:
            answers += round(row["query_rate"] * row["steps"])
            assert row["answers"] == answers, "answers are counted from the start"
            assert row["behavioral"] == pytest.approx(row["intrinsic"] + row["extrinsic"], abs=1e-5)
            assert row["total"] == pytest.approx(row["behavioral"] + row["model"], abs=1e-5)
            assert 0 <= row["success"] <= 1
        if config.task.name == "grid":
            assert sum(row["steps"] for row in rows) == 8 * config.iterations * config.learner.batch
            assert all(row["success"] == 1 for row in rows)
        if config.query.name in ("bc", "dagger", "never"):
            assert {row["query_rate"] for row in rows} == {0.0 if config.query.name == "never" else 1.0}


def test_the_same_config_twice_gives_the_same_run_and_another_seed_another() -> None:
    config = _run(2, "apil", task="grid", iterations=5)
    first, second, other = (_outcomes([c])[0] for c in (config, config, config.changed(seed=99)))
    assert first[0] == second[0]
    assert all(torch.equal(value, second[1][name]) for name, value in first[1].items())
    assert first[0] != other[0]


@pytest.fixture(scope="module")
def learned() -> Trainer:
    """Agents that always ask, one teacher: DETM and RAND."""
    trainer = Trainer([RunSettings.of("grid", teacher, "bc", iterations=250, batch=2) for teacher in ("detm", "rand")])
    trainer.train()
    return trainer


def test_a_perfect_imitator_has_the_uncertainty_of_its_teacher(learned: Trainer) -> None:
    detm, rand = (rows[-1] for rows in learned.rows)
    # The paper: 0.04 for DETM, 0.72 for RAND (5.8125 / 8 = 0.727 for a perfect copy).
    assert detm["intrinsic"] < 0.1
    assert rand["intrinsic"] == pytest.approx(5.8125 / 8, abs=0.08)
    assert max(detm["extrinsic"], rand["extrinsic"]) < 1e-6
    assert detm["policy_loss"] < learned.rows[0][0]["policy_loss"] / 5


def test_evaluation_measures_each_run_alone_and_with_help(learned: Trainer) -> None:
    told: list[int] = []
    results = evaluate(learned.agents, 150, told.append)
    assert told == list(range(CHUNK, PASSES * 150 + 1, CHUNK))
    for result in results:
        assert result["episodes"] == 150
        assert result["success_alone"] == result["success_with_help"] == 1.0
        assert result["query_rate"] == result["query_rate_with_help"] == 1.0
        assert result["total"] == pytest.approx(sum(result[p] for p in ("intrinsic", "extrinsic", "model")), abs=1e-5)
        assert set(PARTS) <= set(result)
        assert result["success_greedy"] == 1.0
    assert evaluate(learned.agents, 150) == results, "an evaluation has its own fixed random numbers"


def test_greedy_actions_are_measured_beside_sampled_ones() -> None:
    """A rule that asks where the mean policy is unsure: its query rate depends on the states that actions lead to."""
    trainer = Trainer([RunSettings.of("maze", "detm", "entropy", threshold=1.9, iterations=30, batch=4)])
    trainer.train()
    (sampled,), (greedy,) = (evaluate(trainer.agents, 60, greedy=greedy) for greedy in (False, True))
    walks = {
        likeliest: collect(trainer.agents, 0, 50, "alone", "evaluation/", greedy=likeliest)
        for likeliest in (False, True)
    }
    assert torch.equal(walks[True].taken, walks[True].mean.argmax(-1))
    assert not torch.equal(walks[True].taken, walks[False].taken)
    both = ("episodes", "success_alone", "success_greedy")
    assert [sampled[name] for name in both] == [greedy[name] for name in both]
    first = evaluate(trainer.agents, 50)[0], evaluate(trainer.agents, 50, greedy=True)[0]
    for likeliest, found in zip((False, True), first, strict=True):
        walked = walks[likeliest]
        assert found["query_rate"] == pytest.approx(float(walked.unanswered.sum() / walked.live.sum()))
        entropy = walked.uncertainty.total[walked.live].mean()
        assert found["total"] == pytest.approx(float(entropy), rel=1e-4)
    assert first[0]["success_alone"] == pytest.approx(float(walks[False].success.double().mean()))
    assert first[0]["success_greedy"] == pytest.approx(float(walks[True].success.double().mean()))


def test_help_helps_an_untrained_agent_in_the_maze() -> None:
    trainer = Trainer([RunSettings.of("maze", "detm", query, threshold=0.0) for query in ("random", "bc", "dagger")])
    never_helped, always, dagger = evaluate(trainer.agents, 200)
    assert never_helped["query_rate"] == never_helped["query_rate_with_help"] == 0.0
    assert never_helped["success_with_help"] == never_helped["success_alone"] < 0.9
    for result in (always, dagger):
        assert result["success_alone"] == never_helped["success_alone"], "alone, no answer is executed"
        assert result["success_with_help"] == 1.0
