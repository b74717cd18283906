"""`apil train`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from apil.cli.options import command, from_record, given, run_settings, value_of
from apil.errors import ApilError, plural
from apil.settings.record import spelled
from apil.tasks.options import options_of
from apil.terminal import print_table, wrote

if TYPE_CHECKING:
    from apil.learning.build import Parts


@dataclass(frozen=True)
class Common:
    task: str = "grid"
    """Where the agent lives; see `apil list`. Its own options are shown by `apil train --task NAME --help`."""
    teacher: str = "twodifdetm"
    """Who answers: a name from `apil list`, or members joined by '+', for example first+last+uniform."""
    query: str | None = None
    """When to ask; see `apil list`. Default: slip; apil with --as-printed and on tasks with their own model."""
    out: Path = Path("runs/demo")
    """Folder for the run; must be new or empty."""
    resume: Path | None = None
    """A stopped run to resume; its settings are in the folder."""
    calibration: Path | None = None
    """A file made by `apil calibrate`; overrides the thresholds that come with apil."""
    as_printed: bool = False
    """Learn as printed in the paper: from each answer once, with its layer sizes and learning rate."""
    answers_from: Path | None = None
    """An earlier run whose answers are learned from as well; they do not count as answers of this run."""
    device: str = "cpu"
    """Device for models and query policies: cpu, cuda (or cuda:1, ...) or mps. Can be changed on resume."""
    tensorboard: bool = False
    """Also write the metrics for TensorBoard, to the folder `tensorboard` of the run."""


_OWN = (
    *("task", "teacher", "query", "out", "resume", "calibration"),
    *("as_printed", "answers_from", "device", "tensorboard"),
)


def options(argv: Sequence[str]) -> type:
    task = value_of(argv, "--task", Common.task)
    own = from_record(options_of(task).arguments)
    return command("Train", "Train one agent and save it in a run folder.", Common, [*run_settings(_OWN), *own])


def run(typed: Any, argv: Sequence[str]) -> int:
    from apil.crew import joined
    from apil.learning.build import Parts
    from apil.runs.crew import follow
    from apil.runs.train import crew_stop

    with joined(typed.device) as (crew, device):
        parts = Parts(device=device, crew=crew)
        if crew.rank == 0:
            return _lead(typed, argv, parts)
        with crew_stop() as stopped:
            follow(parts, stopped)
    return 0


def _lead(typed: Any, argv: Sequence[str], parts: Parts) -> int:
    """In the process that has the folder, which is the only one unless torchrun has started more."""
    from apil.learning.spending import ENDED
    from apil.runs.calibration import load_calibration
    from apil.runs.ending import ending
    from apil.runs.folder import load_config
    from apil.runs.resolve import resolve
    from apil.runs.train import resume_run, start_run
    from apil.runs.watched import watched

    folder = typed.resume or typed.out
    if typed.resume:
        for name in given(typed, argv, ("resume", "iterations", "device", "tensorboard")):
            raise ApilError(
                f"--{spelled(name)} cannot be changed on resume: the run keeps its settings; leave the option out."
            )
        settings = load_config(folder)
        end = ending(folder)
        if end.state in ("failed", "killed"):
            print(f"{folder} was {end}" if end.state == "killed" else f"{folder} {end}")
    else:
        calibration = load_calibration(typed.calibration)
        typed_settings = given(typed, argv, _OWN)
        found = resolve(
            typed.task, typed.teacher, typed.query, typed_settings, calibration, as_printed=typed.as_printed
        )
        settings, parts = found.settings, replace(parts, task=found.task)
        if found.notice:
            print(found.notice)
    more = given(typed, argv).get("iterations")
    budget = settings.query.answer_budget is not None
    what = f"{settings.task.name}, {settings.teachers.name}, {settings.query.name}"
    total = settings.query.answer_budget or more or settings.iterations
    with watched(folder, what, total, of_answers=budget, tensorboard=typed.tensorboard) as (progress, look):
        if typed.resume:
            outcome = resume_run(folder, iterations=more, progress=progress, parts=parts, look=look)
        else:
            earlier = typed.answers_from
            outcome = start_run(settings, folder, progress=progress, parts=parts, answers_from=earlier, look=look)
    if outcome.stopped:
        print(f"Stopped after {outcome.iteration} of {outcome.config.iterations} iterations; nothing is lost.")
        print(f"Resume with: apil train --resume {quote(str(folder))}")
        return 130
    names = ("query_rate", "success", "intrinsic", "extrinsic", "model", "validation_loss", "answers", "unanswered")
    figures = {name: outcome.last[name] for name in names if outcome.last and outcome.last.get(name) is not None}
    print_table(f"At the end of {plural(outcome.iteration, 'iteration')}", figures)
    spent = outcome.iteration < outcome.config.iterations
    if outcome.began == outcome.iteration and spent:
        print(f"{folder} had ended before, after {plural(figures['answers'], 'answer')}: {ENDED}.")
        print(f"Learn from them in a new run: apil train --answers-from {quote(str(folder))}")
        return 0
    if outcome.began == outcome.iteration:
        print(f"{folder} had done its {plural(outcome.iteration, 'iteration')} before; train on with --iterations.")
        return 0
    if spent:
        print(f"Stopped after {plural(figures['answers'], 'answer')}: {ENDED}.")
    wrote(folder, f"next: apil evaluate {quote(str(folder))}")
    return 0
