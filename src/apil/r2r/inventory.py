"""The figures of a compiled world, and the published ones to check them against."""

from __future__ import annotations

import hashlib

from apil.r2r.world import Split, World
from apil.studies.text import texts

GRAPHS = "graphs"
"""The title of the figures of the graphs."""
_OFFICIAL_SCANS = "13be48b9e9b9546118f75d8619b02dabe9af0a47932d34629dd6577518cbd692"
"""SHA-256 of the names of the 90 scans, joined by line ends."""
PUBLISHED: dict[str, dict[str, float]] = texts("published.toml", "apil.r2r")
"""Of the official annotations on the official graphs; means to three digits."""
ROUNDING = 0.00051


def is_official(world: World) -> bool:
    """The scans are the 90 of Matterport3D."""
    return hashlib.sha256("\n".join(world.scans).encode()).hexdigest() == _OFFICIAL_SCANS


def summary(world: World) -> dict[str, dict[str, float]]:
    """The figures of the graphs and of each split, by title."""
    return {GRAPHS: _graphs(world), **{name: _split(world, split) for name, split in world.splits.items()}}


def differences(figures: dict[str, dict[str, float]]) -> list[str]:
    """Each published figure that is missing or another one, in words; for the official scans."""
    differing = []
    for title, published in PUBLISHED.items():
        for name, value in published.items():
            found = figures.get(title, {}).get(name)
            if found is None or abs(found - value) > (ROUNDING if isinstance(value, float) else 0):
                differing.append(f"{title}: {name} {found}, not {value}".replace("_", " "))
    return differing


def _graphs(world: World) -> dict[str, float]:
    """Counts and means over viewpoints and undirected edges."""
    there = world.neighbours >= 0
    return {
        "scans": len(world.scans),
        "viewpoints_in_files": len(world.viewpoints) + world.excluded,
        "viewpoints": len(world.viewpoints),
        "edges": int(there.sum()) // 2,
        "mean_degree": float(there.sum(1).double().mean()),
        "largest_degree": int(there.sum(1).max()),
        "mean_edge": float(world.length[there].double().mean()),
    }


def _split(world: World, split: Split) -> dict[str, float]:
    """Counts, and means over paths; a split without goals has counts alone."""
    path = split.path[split.one_per_path()]
    scans = set(world.scan[path[:, 0]].tolist())
    counts: dict[str, float] = {"paths": len(path), "scans": len(scans), "instructions": len(split.names)}
    if bool((split.goal < 0).any()):
        return counts
    here, there = path[:, :-1], path[:, 1:]
    edge = there >= 0
    metres = (world.position[there.clamp_min(0)] - world.position[here.clamp_min(0)]).double().norm(dim=-1) * edge
    means = {"edges_per_path": edge.sum(1).double().mean(), "metres_per_path": metres.sum(1).mean()}
    return counts | {name: float(mean) for name, mean in means.items()}
