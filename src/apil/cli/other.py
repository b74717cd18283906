"""`apil replay`, `export`, `doctor` and `list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from apil.cli.show import progress_bar, wrote
from apil.commands import Doctor, Export, List, Replay
from apil.config import positive
from apil.errors import ApilError
from apil.query import QUERY_POLICIES
from apil.tasks import TASKS
from apil.teachers import TEACHERS

if TYPE_CHECKING:
    pass


def replay(command: Replay) -> None:
    """`apil replay`"""
    from apil.runs.folder import load_run
    from apil.runs.movies import frames, save_movie

    positive("episodes", command.episodes)
    if command.first < 0:
        raise ApilError(f"first is {command.first}: episode numbers start at 0.")
    _, agents = load_run(command.run)
    shown = frames(agents, command.episodes, command.first)
    if command.out is not None:
        save_movie(shown, command.out)
        wrote(command.out)
        return
    for frame in shown:
        print(f"episode {frame.episode}, step {frame.step}: {frame.caption}")
        rows = [" ".join(row) for row in frame.picture.cells] or [frame.picture.text]
        print("\n".join(f"  {row}" for row in rows))


def export(command: Export) -> None:
    """`apil export`"""
    from apil.runs.export import export_episodes
    from apil.runs.folder import load_run

    positive("episodes", command.episodes)
    config, agents = load_run(command.run)
    about = {"task": config.task, "teacher": config.teacher, "query": config.query, "seed": config.seed}
    with progress_bar() as progress:
        bar = progress.add_task("exporting", total=command.episodes)
        folder = export_episodes(
            agents,
            command.out,
            command.episodes,
            about=about,
            progress=lambda done: progress.update(bar, completed=done),
        )
    wrote(folder, f"teach with it: apil.teachers.load_demonstrations({command.out!r})")


def doctor(command: Doctor) -> None:
    """`apil doctor`"""
    from apil.runs.doctor import examine

    healthy = True
    for finding in examine(command.folder):
        mark = "ok" if finding.good else "MISSING" if finding.needed else "-"
        print(f"{mark:8} {finding.what}: {finding.told}")
        healthy = healthy and (finding.good or not finding.needed)
    if not healthy:
        raise ApilError("Something that apil needs does not work: see MISSING above.")
    print("All that apil needs is there.")


def show_list(command: List) -> None:
    """`apil list`"""
    for title, registry in (("Tasks", TASKS), ("Teachers", TEACHERS), ("Query policies", QUERY_POLICIES)):
        print(title)
        for entry in registry:
            print(f"  {entry.name:16} {entry.summary}")
        print()
