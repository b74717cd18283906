"""Runs a study: stacks over worker processes, a run folder for each cell, then the tables, figures and report."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any

from apil.config import RunConfig
from apil.errors import ApilError
from apil.learning.build import committee_of
from apil.learning.evaluate import evaluate
from apil.learning.teacher_model import teacher_models
from apil.learning.trainer import Trainer
from apil.runs.answers import AnswerBook, AnswerBooks
from apil.runs.environment import code_hash
from apil.runs.files import make_folder, read_json, read_rows
from apil.runs.store import load_config, save_run, write_evaluation
from apil.studies.plan import Cell, stacks
from apil.tasks import TASKS

Progress = Callable[[int], None]
"""Told how many more units of work are done; a unit is an iteration of a run."""

_EVALUATION = 250
"""Units of work for evaluating a run, measured against an iteration of training."""
_WATCHED = 200
"""Episodes for comparing the teacher model with the teachers."""

_queue: Any = None


def work_of(cells: Sequence[Cell]) -> int:
    """Units of work in these cells."""
    return sum(cell.config.iterations + _EVALUATION for cell in cells)


@dataclass(frozen=True)
class Standing:
    """What of a study is there already."""

    finished: list[Cell]
    todo: list[Cell]
    """Never begun, or begun and not finished: these are run from their start."""
    begun: int
    """How many of `todo` had been begun."""
    other_code: list[Cell]
    """Those of `finished` that were made by other code than this."""


def standing(cells: Sequence[Cell], runs: Path, episodes: int) -> Standing:
    """Looks at the run folders of a study whose runs are evaluated over so many episodes."""
    finished = [cell for cell in cells if _finished(runs / cell.folder, cell.config, episodes)]
    todo = [cell for cell in cells if cell not in finished]
    begun = sum((runs / cell.folder).is_dir() for cell in todo)
    other = [cell for cell in finished if _code(runs / cell.folder) != code_hash()]
    return Standing(finished, todo, begun, other)


def _finished(folder: Path, config: RunConfig, episodes: int) -> bool:
    """Whether the run is whole: the same config, and `evaluation.json`, which is written last."""
    try:
        read_rows(folder / "metrics.jsonl")
        evaluation = read_json(folder / "evaluation.json")
        return load_config(folder) == config and bool(evaluation["episodes"] == episodes)
    except (ApilError, TypeError, KeyError):
        return False


def _code(folder: Path) -> object:
    try:
        return read_json(folder / "environment.json")["code"]
    except (ApilError, KeyError, TypeError):
        return None


def run_cells(
    cells: Sequence[Cell], runs: Path, episodes: int, workers: int, progress: Progress, *, answers: bool = False
) -> None:
    """Trains and evaluates the cells, each into its folder under `runs`."""
    work = [(stack, runs, episodes, answers) for stack in stacks(cells)]
    if workers == 1 or len(work) <= 1:
        for item in work:
            _run_stack(*item, progress)
        return
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    with ProcessPoolExecutor(workers, context, initializer=_listen, initargs=(queue,)) as pool:
        pending = {pool.submit(_run_stack_quietly, *item) for item in work}
        try:
            while pending:
                finished, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
                for units in _drain(queue):
                    progress(units)
                for future in finished:
                    future.result()
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in multiprocessing.active_children():
                worker.terminate()
            if isinstance(error, BrokenProcessPool):
                raise ApilError(
                    "A worker process died, perhaps for lack of memory: try again with --workers 1."
                ) from error
            raise


def _drain(queue: Any) -> Iterator[int]:
    with suppress(Empty):
        while True:
            yield queue.get_nowait()


def _listen(queue: Any) -> None:
    """Sets a worker up; Ctrl-C is for the process that started it, which then ends its workers."""
    global _queue
    _queue = queue
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run_stack_quietly(stack: Sequence[Cell], runs: Path, episodes: int, answers: bool) -> None:
    _run_stack(stack, runs, episodes, answers, _queue.put)


def _run_stack(stack: Sequence[Cell], runs: Path, episodes: int, answers: bool, progress: Progress) -> None:
    """One stack: trained, evaluated, saved. The results do not depend on what else is in the stack."""
    for cell in stack:
        folder = runs / cell.folder
        if folder.exists():
            shutil.rmtree(folder)
        make_folder(folder)
    books = AnswerBooks([_book(cell, runs / cell.folder) for cell in stack]) if answers else None
    trainer = Trainer([cell.config for cell in stack], books)
    done = 0

    def trained(iterations: int) -> None:
        nonlocal done
        progress((iterations - done) * len(stack))
        done = iterations

    trainer.train(trained)
    evaluations = evaluate(trainer.agents, episodes)
    models = teacher_models(trainer.agents, min(_WATCHED, episodes))
    for run, cell in enumerate(stack):
        save_run(runs / cell.folder, trainer, run)
        write_evaluation(runs / cell.folder, {**evaluations[run], "teacher_model": models[run]})
    progress(_EVALUATION * len(stack))


def _book(cell: Cell, folder: Path) -> AnswerBook:
    actions = TASKS.load(cell.config.task)().actions
    teachers = len(committee_of(cell.config).members)
    return AnswerBook(folder / "answers.jsonl", cell.config.query, actions=actions, teachers=teachers)
