"""The figures of a compiled world, and the published ones to check them against."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from apil.tasks.r2r.world import Split, World

_OFFICIAL_SCANS = "13be48b9e9b9546118f75d8619b02dabe9af0a47932d34629dd6577518cbd692"
"""SHA-256 of the names of the 90 scans, joined by line ends."""
PUBLISHED: dict[str, dict[str, float]] = {
    "train": {"paths": 4675, "scans": 61, "instructions": 14039, "edges_per_path": 5.003, "metres_per_path": 9.909},
    "val_seen": {"paths": 340, "scans": 56, "instructions": 1021, "edges_per_path": 5.074, "metres_per_path": 10.185},
    "val_unseen": {"paths": 783, "scans": 11, "instructions": 2349, "edges_per_path": 4.966, "metres_per_path": 9.505},
}
"""Of the official annotations on the official graphs; means to three digits."""
PUBLISHED_GRAPHS: dict[str, float] = {
    "scans": 90,
    "viewpoints_in_files": 10800,
    "viewpoints": 10567,
    "edges": 21468,
    "mean_degree": 4.063,
    "largest_degree": 13,
    "mean_edge": 2.269,
}


@dataclass(frozen=True)
class Figure:
    """A figure of a compiled world."""

    name: str
    value: float
    published: float | None
    """None where nothing was published, or the world is another one."""

    @property
    def fits(self) -> bool:
        """It is as published, to the published digits."""
        return self.published is None or abs(self.value - self.published) <= 0.00051 * (self.published % 1 > 0)

    @property
    def told(self) -> str:
        """The figure beside the published one."""
        return f"{self.name.replace('_', ' ')} {self.value:.6g}, published {self.published}"


def is_official(world: World) -> bool:
    """The scans are the 90 of Matterport3D."""
    return hashlib.sha256("\n".join(world.scans).encode()).hexdigest() == _OFFICIAL_SCANS


def summary(world: World) -> dict[str, tuple[Figure, ...]]:
    """The figures of the graphs and of each split, by title."""
    official = is_official(world)
    tables = {"graphs": (graph_figures(world), PUBLISHED_GRAPHS)}
    tables |= {name: (split_figures(world, split), PUBLISHED.get(name, {})) for name, split in world.splits.items()}
    return {
        title: tuple(Figure(name, value, known.get(name) if official else None) for name, value in figures.items())
        for title, (figures, known) in tables.items()
    }


def graph_figures(world: World) -> dict[str, float]:
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


def split_figures(world: World, split: Split) -> dict[str, float]:
    """Counts, and means over paths; a split without goals has counts alone."""
    path = split.path[split.one_per_path()]
    counts: dict[str, float] = {
        "paths": len(path),
        "scans": len(set(world.scan[path[:, 0]].tolist())),
        "instructions": len(split.names),
    }
    if bool((split.goal < 0).any()):
        return counts
    here, there = path[:, :-1], path[:, 1:]
    edge = there >= 0
    metres = (world.position[there.clamp_min(0)] - world.position[here.clamp_min(0)]).double().norm(dim=-1) * edge
    edges = edge.sum(1).double().mean()
    return counts | {"edges_per_path": float(edges), "metres_per_path": float(metres.sum(1).mean())}
