"""Where the states of the benchmark's tasks lie: what a picture shows is where the agent was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from example_parts import EXAMPLES, imported, names_taken_back

from apil.registry import PLUGINS
from apil.rng import Streams
from apil.studies.budget.definition import read_benchmark
from apil.studies.budget.plan import planned
from apil.tasks import TASKS


def _walked(task: Any) -> Iterator[Any]:
    """The environment after each of some random actions."""
    env, rng = task.make(), np.random.default_rng(0)
    for seed in range(6):
        env.reset(seed=seed)
        while not env.over and env.steps < 12:
            yield env
            env.step(int(rng.integers(task.actions)))


@pytest.mark.parametrize("name", ["lava-gap", "lava-crossing", "dist-shift", "door-key"])
def test_a_level_shows_the_cell_of_the_agent(name: str) -> None:
    pytest.importorskip("minigrid")
    with imported("budget/minigrid_levels"):
        task, plane = TASKS.load(name)(), TASKS.facet(name, "plane")({})
        # What is seen lies between -1 and 1 already, so that it is not scaled.
        cells = [(plane.place(env.observation[None])[0], env.unwrapped.agent_pos) for env in _walked(task)]
        task.close()
    assert len({tuple(map(int, cell)) for _, cell in cells}) > 5
    assert all(tuple(place) == tuple(cell) for place, cell in cells)


def test_the_car_shows_its_position_and_velocity() -> None:
    with imported("mountain_car"):
        task, plane = TASKS.load("mountain-car")(), TASKS.facet("mountain-car", "plane")({})
        seen = task.observe(task.reset(Streams([0]).draws("task", 0), 20)).features[0].numpy()
        task.close()
    position, velocity = plane.place(seen).T
    assert position.min() >= -0.6 - 1e-6
    assert position.max() <= -0.4 + 1e-6
    np.testing.assert_allclose(velocity, 0.0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:builtin type .* has no __module__ attribute:DeprecationWarning")
def test_every_task_of_the_benchmark_can_be_run_and_has_a_plane_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("minigrid", "Box2D", "mujoco"):
        pytest.importorskip(module)
    monkeypatch.setenv(PLUGINS, "")  # what is added to it is taken back
    with names_taken_back():
        benchmark = read_benchmark(EXAMPLES / "budget")
        without = [task.label for task in benchmark.tasks if TASKS.facet(task.file.task, "plane") is None]
        folders = [run.cell.folder for run in planned(benchmark)]
    assert len(benchmark.tasks) >= 8
    assert len(set(folders)) == len(folders)
    assert without == []
