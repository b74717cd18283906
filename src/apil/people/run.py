"""A run that is taught by people: from names to a training, and again after a stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from apil.errors import ApilError
from apil.files import read_json, write_json
from apil.learning.build import Parts, whole_episodes
from apil.people.desk import DeskSettings, check_packages
from apil.people.progress import Progress
from apil.people.teacher import People
from apil.runs.calibration import load_calibration
from apil.runs.folder import load_config
from apil.runs.resolve import resolve
from apil.runs.train import Outcome, resume_run, start_run
from apil.teachers.protocol import Teacher
from apil.teachers.team import Member, Team

SETTINGS = "teaching.json"
"""Who teaches, and how they are asked."""


def teacher_of(people: People, also: Sequence[str]) -> Teacher:
    """The people, in a team with simulated teachers if there are any."""
    if not also:
        return people
    return Team([*(Member(name, person) for name, person in people.persons.items()), *(Member(n, n) for n in also)])


def start(
    task: str,
    names: Sequence[str],
    query: str,
    settings: Mapping[str, Any],
    folder: Path,
    desk: Mapping[str, Any],
    also: Sequence[str] = (),
    calibration: Path | None = None,
    answers_from: Path | None = None,
) -> Outcome:
    """Trains a new run with people."""
    check_packages()  # before a folder is made, which would be in the way once they are installed
    people = People(list(names), **desk)
    teacher = teacher_of(people, also)
    name = people.spec if not also else "+".join(teacher.members)
    found = resolve(task, name, query, settings, load_calibration(calibration))
    config = found.settings
    if config.walks and whole_episodes(config):  # its model remembers episodes, which are walked as a batch
        config = config.changed(walks=0)
    if config.query.answer_budget is None:
        raise ApilError("How much may people be asked? Give --answer-budget, for example 300.")
    parts = Parts(found.task, teacher)
    look = Progress(people, config.query.answer_budget, lambda: _note(folder, people, also))
    return start_run(config, folder, progress=look.tell, parts=parts, answers_from=answers_from, look=look)


def resume(folder: Path, desk: Mapping[str, Any], iterations: int | None = None) -> Outcome:
    """Resumes a run that people teach; what is given of `desk` takes the place of what was."""
    config = load_config(folder)
    path = folder / SETTINGS
    if not path.exists():
        raise ApilError(f"{folder} is not taught by people: resume it with `apil train --resume {folder}`.")
    known = read_json(path)
    people = People(known["teachers"], **{**known["desk"], **desk})
    look = Progress(people, config.query.answer_budget, lambda: _note(folder, people, known["also"]))
    parts = Parts(teacher=teacher_of(people, known["also"]))
    return resume_run(folder, iterations=iterations, progress=look.tell, parts=parts, look=look)


def _note(folder: Path, people: People, also: Sequence[str]) -> None:
    settings: DeskSettings = people.desk.settings  # type: ignore[union-attr]
    write_json(folder / SETTINGS, {"teachers": list(people.persons), "also": list(also), "desk": asdict(settings)})
