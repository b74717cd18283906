"""The real graphs and annotations against what is known of them; skipped where the public files are missing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from apil.r2r.inventory import PUBLISHED, differences, is_official, summary
from apil.r2r.oracle import reference_actions
from apil.r2r.world import World

SPLITS = ("train", "val_seen", "val_unseen")


def _paths(world: World, split: str) -> tuple[Tensor, Tensor]:
    """[paths, P] the annotated paths, -1 after the goal, and [paths] their goals."""
    part = world.split(split)
    one = part.one_per_path()
    return part.path[one], part.goal[one]


def test_counts_and_means_are_as_published(r2r_world: World) -> None:
    assert is_official(r2r_world)
    figures = summary(r2r_world)
    assert differences(figures) == []
    assert figures["test"] == {"paths": 1391, "scans": 18, "instructions": 4173}
    figures["train"]["paths"] -= 1
    assert differences(figures) == ["train: paths 4674, not 4675"]
    assert set(PUBLISHED) == {"graphs", *SPLITS}


def test_unseen_scans_are_unseen(r2r_world: World) -> None:
    scans = {split: set(r2r_world.scan[r2r_world.split(split).start].tolist()) for split in r2r_world.splits}
    assert scans["val_seen"] <= scans["train"]
    assert not scans["val_unseen"] & scans["train"]
    assert not scans["test"] & (scans["train"] | scans["val_unseen"])


def test_ground_truth_paths_go_along_exits_and_are_shortest(r2r_world: World) -> None:
    shortest = {}
    for split in SPLITS:
        path, goal = _paths(r2r_world, split)
        here, there = path[:, :-1], path[:, 1:]
        step = there >= 0
        assert (r2r_world.neighbours[here[step]] == there[step].unsqueeze(-1)).sum(-1).eq(1).all()
        metres = torch.where(step, r2r_world.distance(here.clamp_min(0), there.clamp_min(0)), 0.0).sum(1)
        shortest[split] = int((metres <= r2r_world.distance(path[:, 0], goal) + 1e-4).sum())
    assert shortest == {"train": 4675, "val_seen": 340, "val_unseen": 775}


def test_some_graphs_are_in_pieces(r2r_world: World) -> None:
    pieces = {}
    for number, scan in enumerate(r2r_world.scans):
        here = (r2r_world.scan == number).nonzero()
        here = here.expand(-1, len(here))
        reach = r2r_world.distance(here, here.T).isfinite()
        pieces[scan] = len({tuple(row) for row in reach.tolist()})
    two = ("JF19kD82Mey", "PuKPg4mmafe", "SN83YJsR3w2", "q9vSo1VnCiC", "r1Q1Z4BcV1o")
    assert {scan: count for scan, count in pieces.items() if count > 1} == {"B6ByNegPMKs": 4, **dict.fromkeys(two, 2)}
    assert int((r2r_world.neighbours < 0).all(1).sum()) == 8


def test_following_the_next_exit_reaches_the_goal_in_the_distance(r2r_world: World) -> None:
    path, goal = _paths(r2r_world, "val_unseen")
    at, walked = path[:, 0], torch.zeros(len(path))
    for _ in range(20):
        slot = r2r_world.next_slot(at, goal)
        go = slot >= 0
        walked = walked + torch.where(go, r2r_world.length[at, slot.clamp_min(0)], 0.0)
        at = torch.where(go, r2r_world.neighbours[at, slot.clamp_min(0)], at)
    assert at.equal(goal)
    torch.testing.assert_close(walked, r2r_world.distance(path[:, 0], goal))


def _mean_references(world: World, split: str, literal: bool, along: bool) -> float:
    """Over the nodes of the ground-truth paths; with `along`, s' is the next node of the path, not of the shortest."""
    path, goal = _paths(world, split)
    after = torch.cat((path[:, 1:], path[:, :1]), 1)
    after[:, -1] = -1
    to = torch.where(after >= 0, after, path) if along else goal.unsqueeze(1).expand_as(path)
    _, count = reference_actions(world, path[path >= 0], to[path >= 0], literal)
    return float(count.double().mean())


def test_mean_number_of_reference_actions(r2r_world: World) -> None:
    assert _mean_references(r2r_world, "train", literal=False, along=False) == pytest.approx(1.606, abs=0.0006)
    for split, mean in (("train", 1.740), ("val_seen", 1.749), ("val_unseen", 1.622)):
        assert _mean_references(r2r_world, split, literal=True, along=True) == pytest.approx(mean, abs=0.0006)
        # Eight paths of val_unseen are not shortest.
        assert _mean_references(r2r_world, split, literal=True, along=False) == pytest.approx(mean, abs=0.002)


def test_everything_is_known_of_every_viewpoint(r2r_world: World) -> None:
    assert r2r_world.features == ("captions", "objects", "rooms", "glove")
    assert (r2r_world.captions[..., 0] > 0).double().mean() > 0.99
    assert (r2r_world.room > 0).all()
    # Instructions of unseen houses hardly have words that train lacks.
    unseen = r2r_world.split("val_unseen")
    assert int((unseen.tokens == 1).sum()) < 0.01 * int(unseen.tokens_length.sum())
    assert (unseen.tokens.gather(1, unseen.tokens_length.unsqueeze(1) - 1) == 2).all()
