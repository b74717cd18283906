"""Training from Python: by names, or with a task and teachers of your own."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

from apil.agent.acting import Agent
from apil.device import HOST, device_of
from apil.errors import ApilError, plural
from apil.files import read_rows
from apil.learning.build import Parts
from apil.learning.collect import Agents
from apil.learning.evaluate import evaluate
from apil.learning.metrics import Row
from apil.learning.trainer import Trainer
from apil.optim import OptimizerFactory
from apil.runs.calibration import load_calibration
from apil.runs.describe import describe_agent
from apil.runs.earlier import Earlier, noted_prefix
from apil.runs.folder import load_config, load_run
from apil.runs.resolve import resolve
from apil.runs.train import Look, Progress, resume_run, start_run
from apil.runs.watched import watched
from apil.settings import RunSettings
from apil.settings.keywords import RunKeywords
from apil.tasks.protocol import Task
from apil.teachers.protocol import Teacher, require_teacher
from apil.terminal import counted


@dataclass(frozen=True, repr=False)
class Trained:
    """A trained agent and the records of its training."""

    config: RunSettings
    agents: Agents
    """A stack of one."""
    rows: list[Row]
    folder: Path | None = None
    """The folder of the run; None if it was not written."""

    def __repr__(self) -> str:
        last, run = self.rows[-1], self.config
        return (
            f"<Trained on {run.task.name}, taught by {run.teachers.name}, query policy {run.query.name}: "
            f"{plural(last['iteration'], 'iteration')}, {plural(last['answers'], 'answer')}, "
            f"success {last['success']:.3f}>"
        )

    @cached_property
    def agent(self) -> Agent:
        """The agent, as returned by `apil.load`."""
        return Agent(describe_agent(self.agents, 0, self.config), self.agents.model, self.agents.queries[0].part)

    def evaluate(self, episodes: int = 200, *, greedy: bool = False) -> dict[str, Any]:
        """Measures success alone (sampled and greedy) and with help, how often it would ask, and its uncertainties.

        With `greedy`, every figure but `success_alone` is measured with greedy actions.
        """
        with closing(self.agents):
            return evaluate(self.agents, episodes, greedy=greedy)[0]


def train(
    task: str | Task[Any],
    teacher: str | Teacher,
    query: str | None = None,
    *,
    folder: str | Path | None = None,
    calibration: str | Path | None = None,
    make_optimizer: OptimizerFactory | None = None,
    as_printed: bool = False,
    answers_from: str | Path | None = None,
    device: str = "cpu",
    tensorboard: bool = False,
    progress: bool = True,
    **settings: Unpack[RunKeywords],
) -> Trained:
    """Trains an agent on a task, from teachers, with a query policy. Tasks and teachers are names or objects.

    The default `query` is slip; it is the paper's apil with `as_printed` and on tasks with a model of their own.

    `settings` are those of `apil train --help` (seed, iterations, batch, learning_rate, threshold, ...); `options` are
    the task's own. With a `folder` the run is written there; the same call again resumes it, or loads it if it is
    finished. `apil.load` needs none of the objects given here, but `load_run` and `resume_run` need them as `Parts`.

    `make_optimizer` replaces the optimiser named in the settings. `as_printed` learns as printed in the paper: from
    each answer once, with its layer sizes and learning rate. `answers_from` is the folder of an earlier run whose
    answers are learned from as well; they do not count as answers of this run. `device` is that of models and query
    policies: cpu, cuda (or cuda:1, ...) or mps; the returned agent is on the CPU. `progress` shows the run as
    `apil train` does: a live panel in a terminal, a bar in a notebook, else plain lines. `tensorboard` also writes the
    metrics for TensorBoard, to the folder `tensorboard` of the run.

    Examples:
        >>> trained = apil.train("maze", "twodifdetm", "apil", iterations=300, folder="runs/demo")
        >>> 0 <= trained.evaluate(200)["success_alone"] <= 1
        True
    """
    if not isinstance(task, str) and not callable(getattr(task, "reset", None)):
        raise ApilError(
            f"{str(task)[:60]!r} is no task: give one of apil.tasks.from_gymnasium, or Maze() and the like."
        )
    own = None if isinstance(teacher, str) else require_teacher(teacher)
    names = teacher if isinstance(teacher, str) else getattr(teacher, "spec", "+".join(teacher.members))
    thresholds = load_calibration(None if calibration is None else Path(calibration))
    found = resolve(task, names, query, settings, thresholds, as_printed=as_printed)
    parts = Parts(found.task, own, make_optimizer, device_of(device))
    if tensorboard and folder is None:
        raise ApilError("tensorboard writes into the folder of the run: give a folder too.")
    earlier = None if answers_from is None else Path(answers_from)
    total = found.settings.query.answer_budget or found.settings.iterations
    of_answers, rule = bool(found.settings.query.answer_budget), found.settings.query.name
    if folder is None:
        with counted(f"{found.settings.task.name}, {rule}", total, progress, of_answers=of_answers) as tell:
            return _trained_in_memory(found.settings, parts, earlier, tell)
    what = f"{found.settings.task.name}, {found.settings.teachers.name}, {rule}"
    with watched(Path(folder), what, total, of_answers=of_answers, tensorboard=tensorboard, shown=progress) as (
        tell,
        look,
    ):
        return _trained_in_folder(found.settings, parts, Path(folder), earlier, tell, look)


def _trained_in_memory(settings: RunSettings, parts: Parts, answers_from: Path | None, tell: Progress) -> Trained:
    earlier = None if answers_from is None else Earlier.of(answers_from, settings, parts)
    trainer = Trainer([settings], parts=parts)
    if earlier is not None:
        trainer.take_over(0, earlier.batches())
        trainer.observe_stored()
    trainer.train(tell)
    return Trained(settings, trainer.trained_agents(), trainer.rows[0])


def _trained_in_folder(
    settings: RunSettings, parts: Parts, folder: Path, answers_from: Path | None, tell: Progress, look: Look
) -> Trained:
    if not (folder / "config.json").exists():
        start_run(settings, folder, progress=tell, parts=parts, answers_from=answers_from, look=look)
    else:
        before, now = load_config(folder).flat(), settings.flat()
        changed = [name for name in now if before[name] != now[name] and name not in ("iterations", "save_every")]
        if changed:
            was = ", ".join(f"{name} {before[name]!r}" for name in changed)
            raise ApilError(f"{folder} holds a run with other settings ({was}): use another folder.")
        if answers_from is not None and noted_prefix(folder) is None:
            raise ApilError(f"{folder} holds a run that began without earlier answers: use another folder.")
        more = max(settings.iterations, before["iterations"])
        resume_run(folder, iterations=more, progress=tell, parts=parts, look=look)
    config, agents = load_run(folder, replace(parts, device=HOST))
    return Trained(config, agents, read_rows(folder / "metrics.jsonl"), folder)
