"""`apil study`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import join
from typing import Any

import tyro

from apil.cli.options import command, from_record, given, run_settings, words_of
from apil.errors import plural
from apil.settings.record import described
from apil.studies.options import MACHINERY, BudgetOptions, StudyOptions, WhomOptions, arguments_of_study
from apil.tasks import TASKS
from apil.tasks.options import options_of
from apil.terminal import print_columns, wrote

_OF_ONE_RUN = ("query_options", "seed", "threshold", "budget", "weights", "selection", "save_every")


@dataclass(frozen=True)
class Common:
    task: tyro.conf.Positional[str]
    """A task (see `apil list`), a .toml file that describes a study, or a benchmark: `budget` or `whom`."""
    out: Path | None = None
    """Folder for the results; results/TASK if not given. Finished runs in it are kept."""


@dataclass(frozen=True)
class OfBudget:
    task: tyro.conf.Positional[str]
    """`budget`."""
    out: Path = Path("results/budget")
    """Folder for the results. Finished runs in it are kept."""


@dataclass(frozen=True)
class OfWhom:
    task: tyro.conf.Positional[str]
    """`whom`."""
    out: Path = Path("results/whom")
    """Folder for the results. Finished runs in it are kept."""


_BUDGET, _WHOM = "budget", "whom"


def options(argv: Sequence[str]) -> type:
    if _BUDGET in argv[:1]:
        words = "Compare query rules with random asking at equal numbers of answers, over several tasks."
        return command("Study", words, OfBudget, from_record(BudgetOptions))
    if _WHOM in argv[:1]:
        words = "Compare selectors, who choose whom to ask, by what their answers cost, over several tasks."
        return command("Study", words, OfWhom, from_record(WhomOptions))
    task = next((word for word in argv if word in TASKS.names()), "grid")
    more = [*from_record(options_of(task).arguments), *from_record(arguments_of_study(task))]
    words = "Run every query policy with every teacher over several seeds; write tables, figures and a report."
    settings = run_settings(("task", "teacher", "query", *_OF_ONE_RUN))
    return command("Study", words, Common, [*from_record(StudyOptions), *settings, *more])


def _budget(typed: Any, argv: Sequence[str]) -> None:
    from apil.studies.budget.run import budget

    words = words_of(typed, argv, "apil", "study", _BUDGET, skip=("task", "so_far", "workers", "keep_old"))
    settings = BudgetOptions(**{name: getattr(typed, name) for name in described(BudgetOptions)})
    compared = budget(settings, out=typed.out, command=join(words))
    columns: dict[str, dict[str, float]] = {
        level: {rule: compared.share_over_tasks(rule, level).mean for rule in compared.rules}
        for level in compared.levels
    }
    print_columns("share of the gap between never and DAgger that is closed, over all tasks", columns)
    wrote(typed.out, f"open {typed.out / 'report.html'}")


def _whom(typed: Any, argv: Sequence[str]) -> None:
    from apil.studies.whom.run import whom

    words = words_of(typed, argv, "apil", "study", _WHOM, skip=("task", "so_far", "workers", "keep_old"))
    settings = WhomOptions(**{name: getattr(typed, name) for name in described(WhomOptions)})
    compared = whom(settings, out=typed.out, command=join(words))
    columns = {
        task: {selector: compared.cost_to(task, selector).mean for selector in compared.selectors}
        for task in compared.tasks
    }
    print_columns(f"cost to {compared.level:g} success alone", columns)
    wrote(typed.out, f"open {typed.out / 'report.html'}")


def run(typed: Any, argv: Sequence[str]) -> None:
    for kind, compare in ((OfBudget, _budget), (OfWhom, _whom)):
        if isinstance(typed, kind):
            compare(typed, argv)
            return
    from apil.studies.run import study

    words = words_of(typed, argv, "apil", "study", typed.task, skip=("task", "so_far", *MACHINERY))
    found = study(typed.task, out=typed.out, command=join(words), **given(typed, argv, ("task", "out")))
    for name, records in found.items():
        titles = {"success_alone": "success alone", "query_rate": "share of steps asked, last tenth"}
        if records.points:
            titles = {"success_alone": f"success alone, {records.points[-1]} answers"}
        for figure, title in titles.items():
            columns = {
                teacher: {query: records.cell(teacher, query).figure(figure).mean for query in records.queries}
                for teacher in records.teachers
            }
            print_columns(f"{name}: {title}, mean of {plural(records.seeds, 'seed')}", columns)
    for folder in dict.fromkeys(records.folder for records in found.values()):
        wrote(folder, f"open {folder / 'report.html'}")
