"""`apil tune`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from apil.errors import plural
from apil.terminal import print_table, wrote


@dataclass(frozen=True)
class Tune:
    """Search for settings for a study, on seeds that it does not report."""

    file: tyro.conf.Positional[Path]
    """A study file with the tables [tune] and [search]; docs/guide/cluster.md."""
    out: Path | None = None
    """The study file with the best settings; FILE-tuned.toml if not given."""
    engine: Literal["local", "ray"] = "local"
    """`local`, Optuna in one process (extra tune), or `ray`, Ray Tune with ASHA on a Ray cluster (extra ray)."""
    ray_address: str | None = None
    """The cluster for --engine ray: auto, or HOST:PORT. Default: RAY_ADDRESS; without it Ray starts on this machine."""


def tune(command: Tune) -> None:
    from apil.studies.tune import tune

    found = tune(command.file, out=command.out, engine=command.engine, ray_address=command.ray_address)
    whole = sum(len(trial.scores) == len(found.best.scores) for trial in found.trials)
    print_table(
        f"best of {plural(len(found.trials), 'trial')}, {whole} of them trained as far", dict(found.best.values)
    )
    wrote(found.out, f"report it: apil study {found.out}")
