"""Studies on a Ray cluster of two nodes on this machine: the same bytes as local, whatever is lost on the way."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import apil
from apil.cli import main
from apil.errors import ApilError
from apil.files import read_json
from apil.runs.environment import environment
from apil.settings import RunSettings
from apil.studies.engines import run_cells
from apil.studies.plan import Cell, plan
from apil.studies.stack import standing

_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Nothing leaves the machine: by the last one Ray takes the loopback for its address. No token is written."""
_QUIET["RAY_worker_niceness"] = "0"  # with Ray's 15 workers starve beside other work, and tests seem to hang
_NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80_000_000}
_HEAD, *_OTHERS = ("127.0.0.1", "127.0.0.2", "127.0.0.3") if sys.platform == "linux" else ("127.0.0.1",) * 3
_START = 90
"""Seconds for the cluster to start. On some machines Ray waits for itself without end."""
_ITERATIONS = 120
_BASE = RunSettings.of("grid", "detm", "never", iterations=_ITERATIONS, log_every=10, answers=True)
_CELLS = [cell for cell in plan(_BASE, ("detm", "twodifdetm"), ("apil", "bc"), 2, {}) if cell.samples is None]


@contextmanager
def _within(seconds: int) -> Iterator[None]:
    """Skips the tests where a block takes longer."""

    def late(number: int, frame: Any) -> None:
        pytest.skip(f"Ray did not start within {seconds} s on this machine")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and two nodes of one core each. This process is connected to one of the three, which is Ray's choice."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _QUIET.items():
            patch.setenv(name, value)
        ray = pytest.importorskip("ray", reason="needs the extra ray: pip install 'apil[ray]'")
        from ray.cluster_utils import Cluster

        with _within(_START):
            made = Cluster(
                initialize_head=True,
                head_node_args={**_NODE, "num_cpus": 0, "node_ip_address": _HEAD, "include_dashboard": False}
                | {"dashboard_port": _free_port()},  # Ray binds it even so, and another Ray may have its default
            )
            for address in _OTHERS:
                made.add_node(**_NODE, node_ip_address=address)
            ray.init(address=made.address, log_to_driver=False, logging_level="error", _node_ip_address=_HEAD)
        yield made
        ray.shutdown()
        made.shutdown()


def _files(folder: Path) -> dict[str, bytes]:
    """All files that are the same whenever a study was made."""
    skip = {"timings.jsonl", "environment.json", ".lock"}
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name not in skip]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs as this process makes them."""
    folder = tmp_path_factory.mktemp("alone")
    run_cells(_CELLS, folder, 10, 1, lambda units: None)
    return folder


def _slowly(every: int, seen: Path | None = None) -> Callable[[int, float, float], bool]:
    """Saves every few iterations, and leaves time for something to happen; notes what it saw in a file."""

    def due(done: int, since: float, took: float) -> bool:
        time.sleep(0.02)
        if seen is not None:
            with seen.open("a") as file:
                file.write(f"{os.getpid()} {done}\n")
        return done % every == 0

    return due


def _starts(seen: Path) -> list[int]:
    """The first iteration of every training, sorted."""
    last: dict[str, int] = {}
    found = []
    for line in seen.read_text().splitlines():
        process, done = line.split()
        if int(done) != last.get(process, -1) + 1:
            found.append(int(done))
        last[process] = int(done)
    return sorted(found)


def test_a_study_of_grid_has_the_same_bytes_as_local(cluster: Any, tmp_path: Path) -> None:
    given: dict[str, Any] = {"teachers": ("detm", "rand"), "queries": ("apil", "bc"), "seeds": 2}
    given |= {"iterations": 30, "episodes": 10, "workers": 2, "progress": False}
    apil.study("grid", out=tmp_path / "ray" / "grid", engine="ray", **given)
    apil.study("grid", out=tmp_path / "local" / "grid", command="apil study grid", **{**given, "workers": 1})
    ours, theirs = (_files(tmp_path / engine / "grid" / "runs") for engine in ("ray", "local"))
    assert ours == theirs
    for name in ("metrics.csv", "summary.json", "teachers.json", "table_queries.md"):
        assert (tmp_path / "ray/grid" / name).read_bytes() == (tmp_path / "local/grid" / name).read_bytes(), name


def test_a_node_that_is_lost_costs_the_work_since_the_last_checkpoints(
    cluster: Any, alone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import ray

    from apil.studies.ray_engine import on_ray

    runs, seen = tmp_path / "runs", tmp_path / "seen"
    killed: list[int] = []

    def progress(units: int) -> None:
        saved = {path.parent.name for path in runs.glob("*/checkpoint-*.json")}
        if not killed and len(saved) == len(_CELLS):
            killed.append(units)
            own = ray.get_runtime_context().get_node_id()
            other = next(node for node in cluster.worker_nodes if node.node_id != own)
            cluster.remove_node(other, allow_graceful=False)

    run_cells(_CELLS, runs, 10, 2, progress, due=_slowly(10, seen), engine=on_ray())
    assert "was lost" in capsys.readouterr().err
    assert _files(runs) == _files(alone)
    first, second, third = _starts(seen)
    assert (first, second) == (1, 1)
    assert third > 10, "it went on from a checkpoint"
    cluster.add_node(**_NODE, node_ip_address=_OTHERS[0])


def test_an_interrupt_leaves_checkpoints_in_shared_storage_and_the_same_command_goes_on(
    cluster: Any, alone: Path, tmp_path: Path
) -> None:
    from apil.studies.ray_engine import on_ray

    told: list[int] = []
    runs, shared = tmp_path / "runs", tmp_path / "shared"
    runs.mkdir()

    def interrupt(units: int) -> None:
        told.append(units)
        if sum(told) > 2 * len(_CELLS) and sum(told[:-1]) <= 2 * len(_CELLS):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_cells(_CELLS, runs, 10, 2, interrupt, due=_slowly(1000), engine=on_ray(str(shared)))
    assert list(shared.glob("*/checkpoint-*.json")), "none was due: the stop made them"
    assert standing(_CELLS, runs, 10).finished == []
    run_cells(_CELLS, runs, 10, 2, lambda units: None, due=_slowly(1000), engine=on_ray(str(shared)))
    assert _files(runs) == _files(alone)
    assert list(shared.iterdir()) == [], "what is in the study's folder is not kept twice"


def test_a_node_with_other_software_is_refused(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from apil.studies import ray_engine

    here = environment()
    monkeypatch.setattr(ray_engine, "environment", lambda: {**here, "torch": "0.0"})
    with pytest.raises(ApilError, match=r"other software .*torch 0\.0 -> "):
        run_cells(_CELLS[:1], tmp_path, 10, 1, lambda units: None, engine=ray_engine.on_ray())


_RULE = """
import apil
from apil.query.scored import scored
apil.register_query_policy("unsure", scored(lambda belief: belief.uncertainty.total))
"""
_SEARCH = """
tasks = ["grid"]
teachers = ["detm"]
rules = [{ query = "unsure", budget = 0.5 }]
seeds = 2
[settings]
iterations = 9
[tune]
trials = 3
seeds = 1
episodes = 5
[search]
learning_rate = { low = 1e-4, high = 1e-1, log = true }
batch = { low = 1, high = 4 }
encode = [0, 8]
"""


def test_settings_are_searched_by_ray_tune_with_a_plug_in(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "rule.py").write_text(_RULE)
    (tmp_path / "search.toml").write_text(_SEARCH)
    typed = [sys.executable, "-m", "apil", "tune", "search.toml", "--engine", "ray", "--ray-address", cluster.address]
    env = {**os.environ, **_QUIET, "APIL_PLUGINS": str(tmp_path / "rule.py")}
    made = subprocess.run(typed, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    assert "best of 3 trials" in made.stdout
    trials = read_json(tmp_path / "search-tuned.trials.json")["trials"]
    assert len(trials) == 3
    best = max(trials, key=lambda trial: (len(trial["scores"]), trial["scores"][-1]))
    assert len(best["scores"]) == 3
    assert tomllib.loads((tmp_path / "search-tuned.toml").read_text())["settings"] == {
        "iterations": 9,
        **best["values"],
    }
    assert best["values"]["encode"] in (0, 8)


_LOOK = """
from urllib.request import urlopen
from apil.studies.ray_engine import connected
with connected(None, 1) as cluster:
    print(cluster.about)
    print(urlopen(cluster.about.split()[-1], timeout=60).read().decode())
"""


def test_the_address_of_the_dashboard_is_shown_where_apil_starts_ray() -> None:
    """In a process of its own: this one may be connected to another cluster."""
    pytest.importorskip("ray", reason="needs the extra ray: pip install 'apil[ray]'")
    pytest.importorskip("aiohttp_cors", reason="needs Ray's dashboard: pip install 'ray[default]'")
    look = [sys.executable, "-c", _LOOK]
    found = subprocess.run(look, env={**os.environ, **_QUIET}, capture_output=True, text=True, timeout=240)
    if "timed out during startup" in found.stderr:
        pytest.skip("Ray did not start in time on this machine")
    assert found.returncode == 0, found.stderr
    about, page = found.stdout.split("\n", 1)
    assert about.startswith("Ray ")
    assert "dashboard http://127.0.0.1:" in about
    assert "<title>Ray Dashboard</title>" in page


def test_cells_survive_the_way_to_a_worker() -> None:
    pytest.importorskip("ray", reason="needs the extra ray: pip install 'apil[ray]'")
    from apil.studies.ray_engine import _cell, _values

    for cell in (*_CELLS, Cell(_BASE.changed(query="intrun", budget=0.1), label="own", point=30)):
        assert _cell(_values(cell)) == cell


def test_options_of_another_engine_are_refused_and_a_missing_ray_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ApilError, match="storage is for the engine 'ray'"):
        apil.study("grid", storage="shared", progress=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "apil.studies.ray_engine", raising=False)
    with pytest.raises(ApilError, match=r"needs Ray: pip install 'apil\[ray\]'"):
        apil.study("grid", engine="ray", progress=False)


def test_a_cluster_that_is_not_there_is_an_error_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ray = pytest.importorskip("ray", reason="needs the extra ray: pip install 'apil[ray]'")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # the other tests may be connected
    nobody = f"127.0.0.1:{_free_port()}"
    with pytest.raises(SystemExit):
        main(["study", "grid", "--engine", "ray", "--ray-address", nobody, "--out", str(tmp_path / "out")])
    said = capsys.readouterr().err
    assert f"Cannot connect to Ray at {nobody}" in said
    assert "ray status" in said
