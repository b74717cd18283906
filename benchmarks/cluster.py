"""Studies on Ray beside local: what Ray costs, whether it stays flat, and how long which study takes on how many cores.

cluster.py overhead    24 stacks with two workers, on Ray and local, start of Ray aside
cluster.py flat        the driver's time and memory for 10 to 10,000 empty cells
cluster.py cost        processor time of an iteration by task and size of the stack, and what follows for studies

Each prints one JSON record; --out writes it to a file as well. Needs the extra ray, but for `cost`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heapreplace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from apil.learning.trainer import Trainer
from apil.runs.calibration import load_calibration, threshold_of
from apil.runs.resolve import resolve
from apil.settings import RunSettings
from apil.studies.engines import Open, local, run_cells
from apil.studies.events import Change, Event, Post
from apil.studies.kind import Asked, kind_of
from apil.studies.plan import Cell, stacks
from apil.studies.stack import standing, work_of
from apil.tasks import TASKS

_TEACHERS = ("detm", "rand", "tworand", "twodifdetm")
_CORES = (2, 8, 32, 128)


@contextmanager
def _ray(cores: int) -> Iterator[None]:
    """Ray on this machine, without its dashboard."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    ray.init(
        address="local", num_cpus=cores, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1"
    )
    try:
        yield
    finally:
        ray.shutdown()


def overhead(iterations: int) -> dict[str, Any]:
    """Wall time of the same study, local and on Ray; other sizes make other stacks."""
    base = RunSettings.of("grid", "twodifdetm", "apil", iterations=iterations, log_every=100)
    cells = [Cell(base.changed(hidden=40 + size, seed=seed)) for size in range(24) for seed in range(16)]
    assert len(stacks(cells, 2)) == 24
    with _ray(2):
        from apil.studies.ray_engine import on_ray

        engines: dict[str, Open] = {"local": local, "ray": on_ray()}
        seconds = {name: _timed(cells, engine) for name, engine in engines.items()}
    return {"stacks": 24, "runs": len(cells), "seconds": seconds, "ratio": seconds["ray"] / seconds["local"]}


def _timed(cells: Sequence[Cell], engine: Open) -> float:
    with TemporaryDirectory() as folder:
        started = time.perf_counter()
        run_cells(cells, Path(folder), 50, 2, lambda units: None, engine=engine)
        return time.perf_counter() - started


def _empty(order: Any, mailbox: Any) -> tuple[Event, int]:
    """What a worker does with a cell that has no work: it tells, and sends a file."""
    import ray

    changes = [Change(f"cell-{order.job}", "metrics.jsonl", b"{}\n")]
    ray.get(mailbox.post.remote(Post(order.job, order.attempt, Event(order.job, "did", 1), changes)))
    return Event(order.job, "ended"), 0


def flat() -> dict[str, Any]:
    """The driver's seconds and memory for each of so many cells, from looking what is there to the last result."""
    rows = []
    base = RunSettings.of("grid", "detm", "bc", iterations=1)
    with _ray(2):
        from apil.studies.ray_engine import on_ray

        _empty_study(base, 4, on_ray(run=_empty))  # workers start
        for count in (10, 100, 1000, 10_000):
            before = _resident_mb()
            wall, driver = _empty_study(base, count, on_ray(run=_empty))
            grown = _resident_mb() - before
            rows.append({"cells": count, "ms_a_cell": 1e3 * wall / count, "driver_ms_a_cell": 1e3 * driver / count, "driver_mb": grown})  # fmt: skip  # noqa: E501
            print(rows[-1], flush=True)
    return {"rows": rows}


def _empty_study(base: RunSettings, count: int, engine: Open) -> tuple[float, float]:
    """Wall and processor seconds of this process."""
    cells = [Cell(base.changed(hidden=1 + number)) for number in range(count)]  # no two of them make a stack
    with TemporaryDirectory() as folder:
        wall, processor = time.perf_counter(), time.process_time()
        todo = standing(cells, Path(folder), 1).todo
        run_cells(todo, Path(folder), 1, 2, lambda units: None, engine=engine)
        assert len(list(Path(folder).iterdir())) == count
    return time.perf_counter() - wall, time.process_time() - processor


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def cost(iterations: int) -> dict[str, Any]:
    """Seconds of one core for an iteration of a stack, as a fitted a + b x runs, and the time of studies by cores."""
    found: dict[str, Any] = {}
    for task, sizes in (("grid", (1, 16, 112)), ("maze", (1, 16, 112)), ("r2r", (1,))):
        base = _base(task)
        measured = {runs: _iteration(base, runs, iterations if task != "r2r" else 10) for runs in sizes}
        print(task, measured, flush=True)
        each, fixed = np.polyfit(list(measured), list(measured.values()), 1) if len(sizes) > 1 else (measured[1], 0.0)
        found[task] = {
            "seconds_an_iteration": measured,
            "fixed": float(fixed),
            "a_run": float(each),
            "iterations": base.iterations,
            "study_minutes_by_cores": _study_minutes(task, base, float(fixed), float(each)),
        }
    return found


def _base(task: str) -> RunSettings:
    """The settings of the runs of `apil study TASK`."""
    own = {"answers": False, **TASKS.trait(task, "study_settings", {})}
    return resolve(task, "twodifdetm", "apil", own, load_calibration(None), as_printed=True).settings


def _iteration(base: RunSettings, runs: int, iterations: int) -> float:
    """Processor seconds; other work on the machine counts little."""
    trainer = Trainer([base.changed(seed=seed) for seed in range(runs)])
    for _ in range(5):
        trainer.step()
    started = time.process_time()
    for _ in range(iterations):
        trainer.step()
    return (time.process_time() - started) / iterations


def _study_minutes(task: str, base: RunSettings, fixed: float, each: float) -> dict[str, float]:
    """Minutes of `apil study TASK`: its stacks in the order of the engine, each on the core that is free first."""
    kind = kind_of(task)
    queries = kind.queries()
    known = load_calibration(None)
    thresholds = {query: threshold_of(known, task, query) or 0.1 for query in queries}
    here = Path("unused")
    asked = Asked(base, _TEACHERS, queries, kind.seeds, kind.episodes, 2, here, {}, None, so_far=False, options={})
    cells = list({cell.folder: cell for cell in kind.plan(asked, thresholds)}.values())
    minutes: dict[str, float] = {"runs": len(cells)}
    for cores in _CORES:
        free = [0.0] * cores
        for stack in stacks(cells, cores):
            heapreplace(free, free[0] + work_of(stack[:1]) * (fixed + each * len(stack)))
        minutes[str(cores)] = round(max(free) / 60, 1)
    return minutes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("overhead", "flat", "cost"))
    parser.add_argument("--iterations", type=int, default=300, help="of each run (overhead), or that are timed (cost)")
    parser.add_argument("--out", type=Path, help="a file for the record")
    given = parser.parse_args()
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "overhead": lambda: overhead(given.iterations),
        "flat": flat,
        "cost": lambda: cost(given.iterations),
    }
    loaded = os.getloadavg()[0]
    record = {"what": given.what, "cores": os.cpu_count(), "load_before": loaded, "python": platform.python_version()}
    record |= measures[given.what]()
    text = json.dumps(record, indent=2)
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
