"""What is kept of the runs of the benchmark: a row for each, from which all tables and figures are built."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from apil.errors import ApilError
from apil.files import read_json, read_rows, write_text
from apil.studies.budget.plan import Planned

NAME = "records.csv"


@dataclass(frozen=True)
class Run:
    """A run that was measured alone, on episodes that are those of its seed whatever the rule."""

    task: str
    rule: str
    level: str
    """low, middle or high; `full` for the top of the scale, '' for a run that never asks."""
    budget: int
    seed: int
    answers: int
    """That it had."""
    success_alone: float
    success_greedy: float
    """NaN where it was not measured."""
    iterations: int


def run_of(planned: Planned, runs: Path) -> Run:
    """The row of a finished run."""
    folder, cell = runs / planned.cell.folder, planned.cell
    evaluation, last = read_json(folder / "evaluation.json"), read_rows(folder / "metrics.jsonl")[-1]
    return Run(
        task=planned.task.label,
        rule=cell.query,
        level=planned.level,
        budget=planned.budget,
        seed=cell.config.seed,
        answers=int(last["answers"]),
        success_alone=evaluation["success_alone"],
        success_greedy=evaluation.get("success_greedy", math.nan),
        iterations=last["iteration"],
    )


def write_runs(folder: Path, runs: Iterable[Run]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(Run))
    for run in runs:
        writer.writerow(f"{value:.9g}" if isinstance(value, float) else value for value in asdict(run).values())
    write_text(folder / NAME, text.getvalue())


READ: dict[str, Callable[[str], object]] = {"str": str, "int": int, "float": float}


def read_runs(folder: Path) -> list[Run]:
    path = folder / NAME
    if not path.is_file():
        raise ApilError(f"There is no {path}, and no run is finished: leave --so-far out to make them.")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        return [Run(**{field.name: READ[str(field.type)](row[field.name]) for field in fields(Run)}) for row in rows]  # type: ignore[arg-type]
    except (KeyError, ValueError, TypeError, UnicodeDecodeError) as error:
        raise ApilError(f"{path} is damaged ({error}): restore it.") from error


class Runs:
    """The runs of a benchmark, to be looked up."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.all = tuple(runs)
        self.tasks = list(dict.fromkeys(run.task for run in runs))
        self.rules = list(dict.fromkeys(run.rule for run in runs))
        self._of: dict[tuple[str, str, str], list[Run]] = {}
        for run in runs:
            self._of.setdefault((run.task, run.rule, run.level), []).append(run)

    def of(self, task: str, rule: str, level: str) -> list[Run]:
        """In the order of the seeds; those that never ask are the same at every level."""
        found = self._of.get((task, rule, level)) or self._of.get((task, rule, ""), [])
        return sorted(found, key=lambda run: run.seed)

    def levels(self, task: str) -> dict[str, int]:
        """The budgets of a task by level, ascending."""
        known = {run.level: run.budget for run in self.all if run.task == task and run.level not in ("", "full")}
        return dict(sorted(known.items(), key=lambda item: item[1]))
