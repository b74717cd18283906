"""One measurement on R2R in a process of its own, so that memory and warm-up do not mix; prints one JSON line.

measure_r2r.py apil|plain|packed|losses|run|learn DATA ITERATIONS SEED
measure_r2r.py product|open DATA
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from apil.learning.build import build, configure_torch
from apil.learning.state import weights
from apil.learning.trainer import Trainer
from apil.r2r.navigation import evaluate_split, tours
from apil.r2r.options import PRESETS
from apil.r2r.task import R2R
from apil.r2r.world import World
from apil.runs.folder import load_run
from apil.runs.train import start_run
from apil.settings import RunSettings
from plain_r2r import PlainR2R

WARM_UP = 3
CHECKED = {"branch_dropout": 0.0, "word_dropout": 0.0, "shown_dropout": 0.0, "view_dropout": 0.0, "mirror": 0.0}
"""Masks are drawn in another order by the two loops, so losses are compared without dropout, and without a mirror, in
which the plain loop acts too."""
TOLERANCE = 1e-3
"""Relative, of a policy loss."""
LEARNED, LOOK_EVERY = 0.35, 25
Record = dict[str, Any]


def settings(data: str, iterations: int, seed: int, **changes: Any) -> RunSettings:
    """The desk preset."""
    of_run, _, sizes, _ = PRESETS["desk"]
    options = {"data": data, **sizes, **changes.pop("options", {})}
    own = {**of_run, "iterations": iterations, "epsilon": R2R.success_distance, **changes}
    return RunSettings.of("r2r", "detm", "dagger", seed=seed, batch=R2R.batch, options=options, log_every=1, **own)


def peak_mb() -> float:
    """Peak memory of this process, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def apil(data: str, iterations: int, seed: int) -> Record:
    """Training, and how much arithmetic it is."""
    trainer = Trainer([settings(data, WARM_UP + iterations + 1, seed)])
    for _ in range(WARM_UP):
        trainer.step()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(iterations):
        trainer.step()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    rows = trainer.rows[0]
    steps = sum(row["steps"] for row in rows[WARM_UP:])
    with FlopCounterMode(display=False) as counter:
        trainer.step()
    return {
        "decisions": steps,
        "seconds": wall,
        "cpu_seconds": cpu,
        "peak_mb": peak_mb(),
        "flops": counter.get_total_flops() / rows[-1]["steps"] * steps,
    }


def plain(data: str, iterations: int, seed: int, packed: bool = False) -> Record:
    """The plain loop from the same weights."""
    configure_torch()
    loop = PlainR2R(settings(data, iterations, seed), packed)
    for number in range(WARM_UP):
        loop.iteration(number)
    loop.decisions = 0
    wall, cpu = time.perf_counter(), time.process_time()
    for number in range(WARM_UP, WARM_UP + iterations):
        loop.iteration(number)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"decisions": loop.decisions, "seconds": wall, "cpu_seconds": cpu, "peak_mb": peak_mb()}


def packed(data: str, iterations: int, seed: int) -> Record:
    """The plain loop without padding."""
    return plain(data, iterations, seed, packed=True)


def losses(data: str, iterations: int, seed: int) -> Record:
    """Compares the policy losses of apil and of the plain loop, iteration by iteration, without dropout."""
    config = settings(data, iterations, seed, dropout=0.0, options=CHECKED)
    trainer = Trainer([config])
    trainer.train()
    ours = [float(row["policy_loss"]) for row in trainer.rows[0]]
    found: Record = {"iterations": iterations, "relative_tolerance": TOLERANCE, "apil": ours}
    equal = iterations
    for name, without_padding in (("plain", False), ("packed", True)):
        loop = PlainR2R(config, without_padding)
        found[name] = [loop.iteration(number) for number in range(iterations)]
        far = [abs(a - b) > TOLERANCE * abs(a) for a, b in zip(ours, found[name], strict=True)]
        equal = min(equal, far.index(True) if True in far else iterations)
    return {**found, "equal_iterations": equal}


def product(data: str) -> Record:
    """Floating-point operations per second of a large matrix product, at its best of several."""
    configure_torch()
    size, best = 1536, 0.0
    a, b = torch.ones(size, size), torch.ones(size, size)
    for _ in range(8):
        start = time.process_time()
        torch.mm(a, b)
        best = max(best, 2 * size**3 / (time.process_time() - start))
    return {"flops_per_second": best}


def open_data(data: str) -> Record:
    """Time to open the compiled data."""
    wall, cpu = time.perf_counter(), time.process_time()
    World.open(Path(data))
    return {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


def run(data: str, iterations: int, seed: int) -> Record:
    """Memory of a whole run: training with its files, then an evaluation of one batch."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        start_run(settings(data, iterations, seed), out, progress=lambda done: None)
        trained = peak_mb()
        _, agents = load_run(out)
        evaluate_split(agents, "val_seen", limit=250)
    return {"trained_mb": trained, "peak_mb": peak_mb()}


def learn(data: str, iterations: int, seed: int) -> Record:
    """Minutes of processor time in training until the averaged agent reaches 35 % on val_seen."""
    config = settings(data, iterations, seed)
    trainer, twin = Trainer([config]), build([config])
    task = twin.task
    assert isinstance(task, R2R)
    spent, curve = 0.0, []
    while trainer.iteration < iterations:
        start = time.process_time()
        for _ in range(LOOK_EVERY):
            trainer.step()
        spent += time.process_time() - start
        averaged = trainer.state(0)
        with torch.no_grad():
            for name, view in weights(twin, 0).items():
                view.copy_(averaged[f"average.{name}"])
        trips = [tour.trip.success for tour in tours(twin, task.of_split("val_seen"), "alone")]
        success = float(torch.cat(trips).mean())
        curve.append({"iteration": trainer.iteration, "minutes": spent / 60, "success": success})
        if success >= LEARNED:
            return {"reached": LEARNED, "minutes": spent / 60, "iterations": trainer.iteration, "curve": curve}
    return {"reached": None, "minutes": None, "iterations": iterations, "curve": curve}


def main(what: str, data: str, *numbers: int) -> None:
    """Runs one item."""
    measures: dict[str, Callable[..., Record]] = {
        "apil": apil, "plain": plain, "packed": packed, "losses": losses, "run": run, "learn": learn,
        "product": product, "open": open_data,
    }  # fmt: skip
    print(json.dumps(measures[what](data, *numbers)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *(int(value) for value in sys.argv[3:]))
