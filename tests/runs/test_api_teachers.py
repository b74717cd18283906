"""Runs with teachers of one's own: what is learned from, written down, and found again after a stop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import apil
from apil.errors import ApilError
from apil.learning.build import build
from apil.learning.collect import collect
from apil.learning.evaluate import evaluate
from apil.learning.fidelity import teacher_models
from apil.learning.trainer import Trainer
from apil.runs.folder import load_run
from apil.runs.train import resume_run, start_run
from apil.settings import RunSettings
from apil.teachers import TEACHERS, Drift, Member, NoisyDistance, NoisyIdentity, Team
from apil.teachers.committee import committee


def _own() -> NoisyIdentity:
    """Everything at once: scripts, absence, costs, drift, lies."""

    def towards(seen: np.ndarray[Any, np.dtype[np.float32]], rng: np.random.Generator) -> int | None:
        return None if rng.random() < 0.1 else int(rng.integers(2))

    people = [
        Member("script", towards, cost=0.5),
        Member("late", "last", cost=3, available=lambda time: 0.5),
        Member("changing", Drift("first", "uniform", lambda time: min(1.0, time / 8))),
    ]
    team = Team(people, selection="query", absence="query", turn="rotate", substitute=False)
    return NoisyIdentity(NoisyDistance(team, noise=0.3, missing=0.3), 0.2)


def _liar() -> NoisyDistance:
    return NoisyDistance(committee("twodifdetm"), noise=1.0, bias=1.0, missing=0.5)


@pytest.fixture(autouse=True)
def _named() -> Iterator[None]:
    parts = {"own": _own, "liar": _liar, "quiet": lambda: NoisyDistance(committee("twodifdetm"))}
    for name, factory in parts.items():
        apil.register_teacher(name, factory, "for these tests")
    yield
    for name in parts:
        TEACHERS.forget(name)


_CONFIG = RunSettings.of(
    "maze", "own", "apil", batch=6, iterations=12, log_every=4, save_every=5, on_teacher_error="skip"
)


def _quiet(done: int) -> None:
    pass


def _files(folder: Path) -> dict[str, bytes]:
    """Everything but timings and the checkpoints' names."""
    return {name: (folder / name).read_bytes() for name in ("metrics.jsonl", "answers.jsonl")}


def test_a_stopped_run_goes_on_with_the_same_teachers(tmp_path: Path) -> None:
    start_run(_CONFIG, tmp_path / "whole", progress=_quiet)
    start_run(_CONFIG.changed(iterations=7), tmp_path / "parts", progress=_quiet)
    resume_run(tmp_path / "parts", iterations=12, progress=_quiet)
    assert _files(tmp_path / "whole") == _files(tmp_path / "parts")
    one, two = (load_run(tmp_path / name)[1].model.policy for name in ("whole", "parts"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_answers_found_on_file_leave_the_others_as_they_would_have_been(tmp_path: Path) -> None:
    """A crash keeps answers that no checkpoint has learned from: they are read, the rest is asked again."""
    start_run(_CONFIG, tmp_path / "whole", progress=_quiet)
    start_run(_CONFIG.changed(iterations=5), tmp_path / "cut", progress=_quiet)
    rows = (tmp_path / "whole" / "answers.jsonl").read_bytes().splitlines(keepends=True)
    later = next(n for n, row in enumerate(rows) if json.loads(row)["iteration"] == 6) + 10
    (tmp_path / "cut" / "answers.jsonl").write_bytes(b"".join(rows[:later]))
    resume_run(tmp_path / "cut", iterations=12, progress=_quiet)
    assert _files(tmp_path / "whole") == _files(tmp_path / "cut")


def test_what_is_on_file_is_what_the_learner_was_told(tmp_path: Path) -> None:
    start_run(_CONFIG, tmp_path / "run", progress=_quiet)
    rows = [json.loads(row) for row in (tmp_path / "run" / "answers.jsonl").read_text().splitlines()]
    agents, put = build([_CONFIG]), [row for row in rows if row["iteration"] == 0]
    told = collect(agents, 0, 6)
    assert len(put) == int((told.answered | told.unanswered).sum())
    assert any(row["distance"] is None and row["action"] is not None for row in put), "an answer without a distance"
    assert any(row["action"] is None for row in put), "no answer"
    for row in put:
        place = (0, row["episode"], row["step"])
        assert (row["action"] is not None) == bool(told.answered[place])
        if row["action"] is not None:
            assert (row["identity"], row["action"]) == (int(told.identity[place]), int(told.action[place]))
            if row["distance"] is not None:
                assert row["distance"] == float(told.distance[place])
        assert set(row) == {"iteration", "episode", "step", "identity", "action", "distance", "query", "crc32"}


def test_costs_are_summed_by_the_identity_told_and_only_where_there_are_any(tmp_path: Path) -> None:
    start_run(_CONFIG, tmp_path / "run", progress=_quiet)
    rows = [json.loads(row) for row in (tmp_path / "run" / "answers.jsonl").read_text().splitlines()]
    metrics = [json.loads(row) for row in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    paid = sum((0.5, 3.0, 1.0)[row["identity"]] for row in rows if row["identity"] is not None)
    assert metrics[-1]["cost"] == paid
    plain = Trainer([_CONFIG.changed(teacher="twodifdetm")])
    plain.train()
    assert "cost" not in plain.rows[0][-1]


def test_success_is_measured_by_the_truth_and_learned_from_what_was_told() -> None:
    honest, liar = (
        collect(build([RunSettings.of("maze", name, "bc", batch=40)]), 0, 40, "alone")
        for name in ("twodifdetm", "liar")
    )
    assert torch.equal(honest.success, liar.success)
    assert torch.equal(honest.taken, liar.taken)
    assert torch.equal(honest.success, honest.final_distance == 0)
    known = liar.final_distance[~liar.final_distance.isnan()]
    assert 0 < len(known) < 40
    assert bool((known >= 1.0).all()), "the bias hides every success"


def test_no_noise_is_the_same_run_as_without_the_wrapper() -> None:
    rows = []
    for name in ("twodifdetm", "quiet"):
        trainer = Trainer([RunSettings.of("maze", name, "apil", batch=6, iterations=6, log_every=3)])
        trainer.train()
        rows.append(trainer.rows)
    assert rows[0] == rows[1]


def test_runs_with_different_teachers_train_as_one_stack() -> None:
    configs = [RunSettings.of("maze", name, "apil", batch=6, iterations=4) for name in ("twodifdetm", "liar", "quiet")]
    stack = Trainer(configs)
    stack.train()
    for place, config in enumerate(configs):
        alone = Trainer([config])
        alone.train()
        assert alone.rows[0] == stack.rows[place]


def test_such_agents_are_measured_and_what_is_not_known_of_their_teachers_is_left_out() -> None:
    for name, known in (("own", False), ("liar", True)):
        trainer = Trainer([_CONFIG.changed(teacher=name, iterations=2)])
        trainer.train()
        assert 0 <= evaluate(trainer.agents, 10)[0]["success_with_help"] <= 1
        model = teacher_models(trainer.agents, 10)[0]
        assert (model["mixture_js"] is not None) == known
        assert len(model["identity_true"]) == (2 if known else 0)
        json.dumps(model, allow_nan=False)


def test_the_estimated_gap_leaves_out_what_was_not_told() -> None:
    config = RunSettings.of("maze", "liar", "apil", batch=20, gap="estimate")
    agents = build([config])
    told = collect(agents, 0, 20, "helped")
    everywhere = replace(told, answered=told.live, distance=torch.where(told.live, 3.0, torch.nan))
    policy = agents.queries[0].part
    policy.observe(everywhere)
    loss = policy.loss(everywhere)
    assert loss is not None
    assert bool(loss.loss.isfinite().all())
    known = told.final_distance[~told.final_distance.isnan()]
    assert float(policy.memory["followed"][0]) == len(known)
    assert float(policy.memory["distance"][0]) == pytest.approx(float(known.double().sum()))


def test_weights_and_selection_of_a_run_reach_a_team_and_nobody_else() -> None:
    apil.register_teacher("pair", lambda: Team({"a": "first", "b": "last"}), "for this test")
    try:
        part: Any = (
            build([RunSettings.of("maze", "pair", "bc", weights=(0.1, 0.9), selection="query")]).teachers[0].part
        )
        assert (part.weights, part.selection) == (pytest.approx((0.1, 0.9)), "query")
        with pytest.raises(ApilError, match="'liar' chooses who answers by itself"):
            build([RunSettings.of("maze", "liar", "bc", weights=(0.1, 0.9))])
    finally:
        TEACHERS.forget("pair")


PLUGIN = """
import gymnasium
import apil
from apil.tasks import from_gymnasium
from apil.teachers import Team


def pole():
    return from_gymnasium(lambda: gymnasium.make("CartPole-v1"), distance="steps", horizon=5, batch=3, name="pole")


def leaners():
    return Team({"hard": lambda seen, rng: int(seen[2] + seen[3] > 0), "soft": lambda seen, rng: int(seen[2] > 0)})


apil.register_task("pole", pole, "CartPole")
apil.register_teacher("leaners", leaners, "lean")
"""


def test_a_run_with_parts_of_ones_own_is_evaluated_with_the_plug_in_that_has_them(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text(PLUGIN)
    program = "import apil, parts; apil.train(parts.pole(), parts.leaners(), 'bc', folder='run', iterations=2)"
    plain = {name: value for name, value in os.environ.items() if name != "APIL_PLUGINS"}
    plain["PYTHONPATH"] = os.pathsep.join([str(Path(apil.__file__).parents[1]), str(tmp_path)])

    def run(*command: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=plain | more, capture_output=True, text=True, check=False
        )

    assert run("-c", program).returncode == 0
    command = ("-m", "apil.cli", "evaluate", "run", "--episodes", "4")
    told = run(*command)
    assert told.returncode == 2
    assert "Unknown committee member 'hard'" in told.stderr
    assert "name the plug-in that registers them in APIL_PLUGINS; apil.load('run') acts without them" in told.stderr
    (tmp_path / "half.py").write_text(PLUGIN.replace('apil.register_task("pole"', "# "))
    told = run(*command, APIL_PLUGINS="half.py")
    assert "Unknown task 'pole'" in told.stderr
    assert "APIL_PLUGINS" in told.stderr
    for more in (("evaluate", "run", "--episodes", "4"), ("replay", "run", "--out", "film.gif")):
        found = run("-m", "apil.cli", *more, APIL_PLUGINS="parts.py")
        assert found.returncode == 0, found.stderr
