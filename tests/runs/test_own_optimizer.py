"""An optimiser of one's own: passed in, trained with, and resumed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

import apil
from apil.errors import ApilError
from apil.learning.build import Parts
from apil.nn import Parameters
from apil.optim import Optimizer
from apil.runs.api import Trained
from apil.runs.folder import load_run
from apil.runs.train import resume_run, start_run
from apil.tasks.maze import Maze
from apil.teachers.committee import twodifdetm


class HeavyBall:
    """Gradient descent with momentum."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.velocity = {name: torch.zeros_like(value) for name, value in parameters.items()}
        for value in parameters.values():
            value.requires_grad_(True)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], active: Tensor) -> None:
        for (name, value), gradient in zip(self.parameters.items(), gradients, strict=True):
            live = active.view(-1, *[1] * (value.dim() - 1))
            self.velocity[name].copy_(torch.where(live, 0.9 * self.velocity[name] + gradient, self.velocity[name]))
            value.sub_(torch.where(live, 0.01 * self.velocity[name], 0.0))

    def state(self, run: int) -> dict[str, Tensor]:
        return {name: value[run] for name, value in self.velocity.items()}


PARTS: list[str] = []


def heavy_ball(part: str, parameters: Parameters) -> Optimizer:
    PARTS.append(part)
    return HeavyBall(parameters)


def _train(folder: Path, iterations: int) -> Trained:
    return apil.train(
        Maze(), twodifdetm(), "apil", folder=folder, make_optimizer=heavy_ball,
        iterations=iterations, batch=4, hidden=16, persona=8, log_every=2, save_every=3,
    )  # fmt: skip


def test_it_makes_every_part_and_a_stop_changes_no_bit(tmp_path: Path) -> None:
    PARTS.clear()
    through = _train(tmp_path / "through", 8)
    assert PARTS == ["policy", "identity", "query"]
    _train(tmp_path / "stopped", 5)
    resumed = _train(tmp_path / "stopped", 8)
    assert through.rows == resumed.rows
    for name, value in through.agents.model.policy.items():
        assert torch.equal(resumed.agents.model.policy[name], value), name


def test_it_decides_what_is_learned(tmp_path: Path) -> None:
    config = _train(tmp_path / "own", 4).config
    start_run(config, tmp_path / "named", progress=lambda done: None, parts=Parts(Maze(), twodifdetm()))
    own, named = (load_run(tmp_path / name, Parts(Maze(), twodifdetm()))[1] for name in ("own", "named"))
    assert not torch.equal(own.model.policy["w1"], named.model.policy["w1"])


def test_a_run_does_not_go_on_with_another_optimizer(tmp_path: Path) -> None:
    _train(tmp_path / "run", 4)
    with pytest.raises(ApilError, match=r"does not fit its config \(adam.policy.first.*missing"):
        resume_run(tmp_path / "run", iterations=6, progress=lambda done: None, parts=Parts(Maze(), twodifdetm()))
