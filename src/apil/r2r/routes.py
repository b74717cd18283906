"""From walks on R2R to maps: those that `apil evaluate --draw` asks for, and the examples in the report of a study."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from apil.files import make_folder, refuse_link, remove, write_bytes
from apil.learning.build import committee_of
from apil.learning.collect import Agents
from apil.r2r.maps import Route, picture
from apil.r2r.navigation import Tour, tours
from apil.r2r.study import SPLITS
from apil.r2r.task import R2R
from apil.runs.folder import load_run
from apil.settings import RunSettings
from apil.studies.plan import Cell


def draw_first(
    config: RunSettings, agents: Agents, task: R2R, folder: Path, count: int, *, greedy: bool, limit: int | None
) -> int:
    """Draws the first `count` episodes of the task's split as maps, named after them, walked as in an evaluation with
    help over `limit` episodes; returns how many."""
    refuse_link(folder)
    make_folder(folder)
    walked = tours(agents, task, "helped", greedy=greedy, limit=limit)
    every = ((tour, place) for tour in walked for place in range(len(tour.episode)))
    for tour, place in islice(every, count):
        route = route_of(task, tour, place, committee_of(config).members)
        _write(config, route, folder / route.name.replace(" ", "_"))
    return min(count, len(task.episodes[:limit]))


def write_examples(cells: Sequence[Cell], out: Path, episodes: int, maps: int) -> None:
    """So many maps `map_1` ... for the report; none without a run of APIL, and the old ones where its weights are gone.

    The run is APIL's first seed, under TwoDifDetm where there is one, else under the first teacher. The episodes are
    spread evenly over the first that an evaluation takes at once: they are not chosen by how they end."""
    runs = [cell for cell in cells if cell.config.query.name == "apil"] if maps else []
    cell = min(runs, key=lambda cell: (cell.config.seed, cell.config.teachers.name != "twodifdetm"), default=None)
    if cell is not None and not any((out / "runs" / cell.folder).glob("checkpoint-*.json")):
        return
    for old in out.glob("map_*.*"):
        if re.fullmatch(r"map_\d+\.(png|svg)", old.name):
            remove(old)
    if cell is None:
        return
    config, agents = load_run(out / "runs" / cell.folder)
    assert isinstance(agents.task, R2R)
    task = agents.task.of_split(SPLITS[0])
    tour = next(tours(agents, task, "helped", limit=episodes or None))
    count = min(maps, len(tour.episode))
    for number in range(count):
        route = route_of(task, tour, number * len(tour.episode) // count, committee_of(config).members)
        _write(config, route, out / f"map_{number + 1}")


def route_of(task: R2R, tour: Tour, place: int, members: tuple[str, ...]) -> Route:
    """One episode of a tour."""
    world, episode = task.world, int(tour.episode[place])
    walked = [int(at) for at in tour.walked[place] if at >= 0]
    house = (world.scan == world.scan[walked[0]]).nonzero().flatten()
    first = int(house[0])
    exits = [(at, int(to)) for at in house.tolist() for to in world.neighbours[at] if to > at]
    batch = tour.episodes
    live, answered, identity = (table[0, place] for table in (batch.live, batch.answered, batch.identity))
    return Route(
        name=task.name_of(episode),
        instruction=task.instruction(int(batch.features[0, place, 0, 0])),
        places=world.position[house].double().numpy(),
        edges=np.array(exits, dtype=np.int64).reshape(-1, 2) - first,
        annotated=[int(at) - first for at in task.paths[episode] if at >= 0],
        walked=[at - first for at in walked],
        heading=float(task.start(tour.episode[None]).heading[0, place]),
        answered=[int(identity[t]) if answered[t] else None for t in range(task.horizon) if live[t]],
        members=members,
        success_distance=task.success_distance,
        outcome=_outcome(tour, place),
    )


def _outcome(tour: Tour, place: int) -> str:
    trip, batch = tour.trip, tour.episodes
    end = "success" if bool(trip.success[place]) else "no success"
    answered, steps = batch.answered[0, place].sum(), batch.live[0, place].sum()
    return (
        f"{end}, {float(trip.navigation_error[place]):.1f} m from the goal, SPL {float(trip.spl[place]):.2f}, "
        f"nDTW {float(trip.ndtw[place]):.2f}; asked at {answered} of {steps} steps"
    )


def _write(run: RunSettings, route: Route, stem: Path) -> None:
    about = f"taught by {run.teachers.name}, query policy {run.query.name}, seed {run.seed}"
    for ending, data in picture(route, about).items():
        write_bytes(stem.with_name(f"{stem.name}.{ending}"), data)
