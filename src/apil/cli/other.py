"""`apil replay`, `export`, `report`, `doctor` and `list`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import tyro

from apil.errors import ApilError
from apil.query import QUERY_POLICIES
from apil.select import SELECTORS
from apil.settings.record import Count, Few, Text, Whole, record
from apil.tasks import TASKS
from apil.teachers import TEACHERS
from apil.terminal import counted, wrote


@record
class Replay:
    """Show episodes of a trained agent: who acted, where it asked, and what each teacher answered."""

    run: tyro.conf.Positional[Path]
    """Run folder written by `apil train`."""
    episodes: Few = 1
    """Number of episodes to show."""
    first: Whole | None = None
    """Number of the first episode (the same number, the same start). Default: episodes with questions."""
    out: Path | None = None
    """A .gif or .mp4 file; shown in the terminal if not given."""


@record
class Export:
    """Export episodes of a trained agent as a Minari dataset, with the questions, the teachers and their answers."""

    run: tyro.conf.Positional[Path]
    """Run folder written by `apil train`."""
    out: Text
    """A dataset id such as maze/apil-v0 (under MINARI_DATASETS_PATH), or a folder."""
    episodes: Count = 100
    """Number of episodes to write."""


@record
class Report:
    """Rebuild the tables, figures and report of a study from the records in its folder. Trains nothing."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Folders written by `apil study`."""


@dataclass(frozen=True)
class Doctor:
    """Check the installation and suggest how to fix what is missing."""

    folder: Path = Path()
    """Where runs would be written."""


@dataclass(frozen=True)
class List:
    """Show tasks, teachers, query policies and selectors."""


def replay(command: Replay) -> None:
    from apil.runs.folder import load_run
    from apil.runs.movies import frames, save_movie

    _, agents = load_run(command.run)
    with closing(agents):
        shown = frames(agents, command.episodes, command.first)
    if command.out is not None:
        save_movie(shown, command.out)
        wrote(command.out)
        return
    for frame in shown:
        print(f"episode {frame.episode}, step {frame.step}: {frame.caption}")
        rows = [" ".join(row) for row in frame.picture.cells] or frame.picture.text.splitlines()
        print("\n".join(f"  {row}" for row in rows))


def export(command: Export) -> None:
    from apil.runs.export import export_episodes
    from apil.runs.folder import load_run

    config, agents = load_run(command.run)
    about = {"task": config.task.name, "teacher": config.teachers.name, "query": config.query.name, "seed": config.seed}
    with closing(agents), counted("exporting", command.episodes) as progress:
        folder = export_episodes(agents, command.out, command.episodes, about=about, progress=progress)
    wrote(folder, f"teach with it: apil.teachers.load_demonstrations({command.out!r})")


def report(command: Report) -> None:
    from apil.studies.rebuild import rebuild_report

    for folder in command.folders:
        for page in rebuild_report(folder):
            wrote(page)


def doctor(command: Doctor) -> None:
    from apil.runs.doctor import examine

    healthy = True
    for finding in examine(command.folder):
        mark = "ok" if finding.good else "MISSING" if finding.needed else "-"
        print(f"{mark:8} {finding.what}: {finding.detail}")
        healthy = healthy and (finding.good or not finding.needed)
    if not healthy:
        raise ApilError("Something that apil needs does not work: see MISSING above.")
    print("Everything that apil needs is installed.")


def show_list(command: List) -> None:
    kinds = {"Tasks": TASKS, "Teachers": TEACHERS, "Query policies": QUERY_POLICIES, "Selectors": SELECTORS}
    for title, registry in kinds.items():
        print(title)
        for entry in registry:
            print(f"  {entry.name:16} {entry.summary}")
        print()
