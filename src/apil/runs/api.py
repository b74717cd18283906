"""Training with parts of your own, from Python: a task and teachers as objects."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from apil.config import RunConfig
from apil.errors import ApilError, unknown_name
from apil.learning.build import Parts
from apil.learning.collect import Agents
from apil.learning.evaluate import evaluate
from apil.learning.metrics import Row
from apil.learning.trainer import Trainer
from apil.optim import OptimizerFactory
from apil.runs.files import read_rows
from apil.runs.folder import load_config, load_run
from apil.runs.train import resume_run, start_run
from apil.tasks.protocol import Task
from apil.teachers.protocol import Teacher, require_teacher


@dataclass(frozen=True)
class Trained:
    """A trained agent."""

    config: RunConfig
    agents: Agents
    """A stack of one."""
    rows: list[Row]
    """Its metrics."""

    def evaluate(self, episodes: int = 200) -> dict[str, Any]:
        """Success alone and with help, how often it would ask, and its uncertainties."""
        return evaluate(self.agents, episodes)[0]


def train(
    task: Task[Any],
    teacher: Teacher,
    query: str = "apil",
    *,
    folder: str | Path | None = None,
    make_optimizer: OptimizerFactory | None = None,
    **settings: Any,
) -> Trained:
    """Trains an agent in `task` from `teacher` with the query policy of that name.

    `settings` are those of `RunConfig` (seed, iterations, batch, learning_rate, threshold, ...). With a `folder` the
    run is written there; the same call again goes on where it stopped, or just loads what is finished. Such a folder
    names parts that only your program has: `load_run` and `resume_run` need them as `Parts`. `make_optimizer` takes the
    place of the optimiser that the settings name.
    """
    if not callable(getattr(task, "reset", None)):
        raise ApilError(
            f"{str(task)[:60]!r} is no task: give one of apil.tasks.from_gymnasium, or Maze() and the like."
        )
    require_teacher(teacher)
    known = [each.name for each in fields(RunConfig)]
    for name in settings:
        if name not in known:
            raise unknown_name("setting", name, known)
    config = RunConfig(
        **{
            "task": task.name,
            "teacher": "+".join(teacher.members),
            "query": query,
            "batch": task.batch,
            "epsilon": task.success_distance,
            **settings,
        }
    )
    parts = Parts(task, teacher, make_optimizer)
    if folder is None:
        trainer = Trainer([config], parts=parts)
        trainer.train()
        return Trained(config, trainer.trained_agents(), trainer.rows[0])
    folder = Path(folder)
    _go_on(config, folder, parts)
    return Trained(config, load_run(folder, parts)[1], read_rows(folder / "metrics.jsonl"))


def _go_on(config: RunConfig, folder: Path, parts: Parts) -> None:
    """Begins the run in an empty folder, or goes on with the same run."""
    if not (folder / "config.json").exists():
        start_run(config, folder, progress=_quiet, parts=parts)
        return
    before = load_config(folder).to_json()
    changed = [f"{name} {before[name]!r}" for name, value in config.to_json().items() if before[name] != value]
    changed = [text for text in changed if not text.startswith(("iterations ", "save_every "))]
    if changed:
        raise ApilError(f"{folder} holds a run with other settings ({', '.join(changed)}): use another folder.")
    resume_run(folder, iterations=max(config.iterations, before["iterations"]), progress=_quiet, parts=parts)


def _quiet(done: int) -> None:
    """Tells nobody."""
