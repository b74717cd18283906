"""Episodes to a Minari dataset and back, and as a teacher."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from apil.errors import ApilError
from apil.learning.build import Parts, build
from apil.learning.collect import Agents, collect
from apil.runs.export import export_episodes
from apil.runs.train import start_run
from apil.settings import RunSettings
from apil.tasks.gymnasium import from_gymnasium
from apil.teachers import NoisyDistance, Team, load_demonstrations
from apil.teachers.committee import committee
from apil.teachers.minari import RecordedEpisode, dataset_folder, members, read_episodes
from apil.types import Episodes

minari = pytest.importorskip("minari", reason="the extra 'minari' is not installed: pip install 'apil[minari]'")

_EPISODES = 60
"""More than are collected at once."""


def _agents() -> Agents:
    """An untrained agent that asks about half of the time, of teachers who sometimes leave the distance out."""
    teacher = NoisyDistance(committee("first+last", selection="query"), missing=0.3)
    config = RunSettings.of("maze", "first+last", "random", threshold=0.5)
    return build([config], Parts(teacher=teacher))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_episodes(_agents(), tmp_path_factory.mktemp("minari") / "maze", _EPISODES)


def _played() -> list[tuple[Episodes, int]]:
    """The same episodes straight from the loop, as (batch, place)."""
    agents = _agents()
    batches = [collect(agents, n, count, "helped", "export/") for n, count in ((0, 50), (1, 10))]
    return [(batch, e) for batch in batches for e in range(batch.success.shape[1])]


def test_every_step_comes_back_as_it_was(exported: Path) -> None:
    found = list(read_episodes(exported))
    assert len(found) == _EPISODES
    assert members(exported) == ("first", "last")
    for record, (batch, e) in zip(found, _played(), strict=True):
        steps = int(batch.live[0, e].sum())
        assert record.observations.shape == (steps + 1, batch.features.shape[-1])
        assert np.array_equal(record.observations[:steps], batch.features[0, e, :steps].numpy())
        assert np.array_equal(record.actions, batch.taken[0, e, :steps].numpy())
        answered = batch.answered[0, e, :steps].numpy()
        assert np.array_equal(record.asked, answered)
        assert np.array_equal(record.acted, answered), "where it asked, the teacher acted"
        assert np.array_equal(record.fired, answered), "nobody was away"
        assert np.array_equal(record.teacher[answered], batch.identity[0, e, :steps].numpy()[answered])
        assert set(record.teacher[~answered]) <= {-1}
        assert np.array_equal(record.answers[answered], batch.action[0, e, :steps].numpy()[answered])
        told = batch.distance[0, e, :steps].double().numpy()
        assert np.array_equal(record.distance, told, equal_nan=True)
        assert record.success == bool(batch.success[0, e])
        assert np.array_equal(record.final_distance, float(batch.final_distance[0, e]), equal_nan=True)
    distances = np.concatenate([record.distance[record.asked] for record in found])
    assert bool(np.isnan(distances).any()), "some answers had no distance"


def test_the_last_observation_is_the_one_after_the_last_step(exported: Path) -> None:
    """In a maze the agent's cell (49 numbers) meets the goal's (after 63 numbers) exactly where it succeeded."""
    for record in read_episodes(exported):
        here, goal = record.observations[-1][:49], record.observations[-1][63 : 63 + 49]
        assert np.array_equal(here, goal) == record.success


def test_minari_itself_reads_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    folder = export_episodes(_agents(), "maze/apil-v0", 3)
    assert folder == tmp_path / "maze" / "apil-v0"
    dataset = minari.load_dataset("maze/apil-v0")
    assert dataset.total_episodes == 3
    assert dataset.spec.action_space == spaces.Discrete(4)
    for episode, record in zip(dataset.iterate_episodes(), read_episodes("maze/apil-v0"), strict=True):
        assert float(episode.rewards.sum()) == float(record.success)
        ends = episode.terminations | episode.truncations
        assert ends.tolist() == [False] * (len(ends) - 1) + [True]
        assert all(dataset.action_space.contains(action) for action in episode.actions)


def _teach(exported: Path, **settings: Any) -> Episodes:
    teacher = Team({"recorded": load_demonstrations(exported, **settings)})
    return collect(build([RunSettings.of("maze", "detm", "bc")], Parts(teacher=teacher)), 0, 50, "helped", "export/")


def test_a_dataset_teaches_as_was_demonstrated(exported: Path) -> None:
    """Taught by the answers of `last` alone, in the states where it was asked and nowhere else."""
    said: dict[bytes, set[int]] = {}
    for record in read_episodes(exported):
        for t in np.flatnonzero(record.asked & (record.teacher == 1)):
            said.setdefault(record.observations[t].tobytes(), set()).add(int(record.answers[t]))
    taught = _teach(exported, what="answers", teacher="last", within=0)
    assert bool(taught.answered.any())
    for e, t in (taught.live & (taught.answered | taught.unanswered))[0].nonzero().tolist():
        known = said.get(taught.features[0, e, t].numpy().tobytes())
        assert bool(taught.answered[0, e, t]) == (known is not None)
        if known is not None:
            assert int(taught.action[0, e, t]) in known


def test_the_nearest_demonstration_is_taken_where_none_fits(exported: Path) -> None:
    taught = _teach(exported)
    assert torch.equal(taught.answered, taught.live)


class _Start(gymnasium.Env[dict[str, Any], np.int64]):
    """Counts down from 3; actions are numbered from 5."""

    observation_space = spaces.Dict(
        {"left": spaces.Box(0, 9, (1,), np.float64), "seen": spaces.Box(0, 255, (4, 4, 3), np.uint8)}
    )
    action_space = spaces.Discrete(2, start=5)
    left = 3

    def _seen(self) -> dict[str, Any]:
        image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3) * 5 + self.left
        return {"left": np.array([self.left], dtype=np.float64), "seen": image}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 3
        return self._seen(), {}

    def step(self, action: np.int64) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.left -= int(action) - 5
        return self._seen(), 0.0, self.left == 0, False, {}


def test_an_environment_keeps_its_own_observations_and_actions(tmp_path: Path) -> None:
    def distance(env: Any, *more: Any) -> float:
        return float(env.unwrapped.left)

    task = from_gymnasium(_Start, distance=distance, horizon=6)
    teacher = Team({"down": lambda seen, rng: np.int64(6), "stay": lambda seen, rng: np.int64(5)})
    agents = build([RunSettings.of("start", "x", "bc", batch=4)], Parts(task, teacher))
    export_episodes(agents, tmp_path / "start", 8)
    found: list[RecordedEpisode] = list(read_episodes(tmp_path / "start"))
    for record in found:
        down = record.teacher[0] == 0
        assert record.actions.tolist() == ([6] * 3 if down else [5] * 6)
        assert record.observations["left"].flatten().tolist() == ([3, 2, 1, 0] if down else [3] * 7)
        last = (np.arange(48) * 5).astype(np.uint8).reshape(4, 4, 3) + (0 if down else 3)
        assert np.array_equal(record.observations["seen"][-1], last), "images without loss"
    assert {int(record.teacher[0]) for record in found} == {0, 1}
    copy = Team({"copy": load_demonstrations(tmp_path / "start", what="answers", teacher="down")})
    taught = collect(build([RunSettings.of("start", "x", "bc", batch=4)], Parts(task, copy)), 0, 4, "helped")
    assert bool(taught.success.all())


def test_the_command_line_exports_a_run(tmp_path: Path) -> None:
    config = RunSettings.of("grid", "twodifdetm", "apil", iterations=3)
    start_run(config, tmp_path / "run", progress=lambda done: None)
    command = [sys.executable, "-m", "apil.cli", "export", "run", "--out", "./episodes", "--episodes", "4"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Wrote episodes" in done.stdout
    assert len(list(read_episodes(tmp_path / "episodes"))) == 4
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert again.stderr == "apil: episodes is not empty: choose another place for the dataset.\n"


def test_what_cannot_be_read_is_told(exported: Path, tmp_path: Path) -> None:
    with pytest.raises(ApilError, match="There is no Minari dataset in"):
        load_demonstrations(tmp_path)
    with pytest.raises(ApilError, match=r"Nobody in the dataset .* is called 'lst': there are first, last"):
        load_demonstrations(exported, what="answers", teacher="lst")
    with pytest.raises(ApilError, match="only answers have one"):
        load_demonstrations(exported, teacher="last")


def test_an_id_ends_in_a_version_and_anything_else_is_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    assert dataset_folder("maze/apil-v3") == tmp_path / "maze" / "apil-v3"
    assert dataset_folder("maze/apil") == Path("maze/apil")
    assert dataset_folder("./apil-v3") == Path("./apil-v3")
    assert dataset_folder(Path("apil-v3")) == Path("apil-v3")
