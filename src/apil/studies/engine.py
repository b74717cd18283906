"""Runs a study: stacks over worker processes, a run folder for each cell, then the tables, figures and report."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any

from apil.config import RunConfig
from apil.errors import ApilError
from apil.learning.evaluate import evaluate
from apil.learning.teacher_model import teacher_models
from apil.learning.trainer import Trainer
from apil.runs.files import make_folder, read_json
from apil.runs.store import save_run, write_evaluation
from apil.studies.plan import Cell, stacks

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


def unfinished(cells: Sequence[Cell], runs: Path) -> list[Cell]:
    """The cells without a finished run of the same config; `evaluation.json` is written last."""
    return [cell for cell in cells if not _finished(runs / cell.folder, cell.config)]


def _finished(folder: Path, config: RunConfig) -> bool:
    try:
        saved = RunConfig.from_json(read_json(folder / "config.json"))
        return saved == config and (folder / "evaluation.json").is_file()
    except (ApilError, TypeError, AttributeError):
        return False


def run_cells(cells: Sequence[Cell], runs: Path, episodes: int, workers: int, progress: Progress) -> None:
    """Trains and evaluates the cells, each into its folder under `runs`."""
    work = [(stack, runs, episodes) for stack in stacks(cells)]
    if workers == 1 or len(work) <= 1:
        for stack, folder, count in work:
            _run_stack(stack, folder, count, progress)
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
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _drain(queue: Any) -> Iterator[int]:
    with suppress(Empty):
        while True:
            yield queue.get_nowait()


def _listen(queue: Any) -> None:
    global _queue
    _queue = queue


def _run_stack_quietly(stack: Sequence[Cell], runs: Path, episodes: int) -> None:
    _run_stack(stack, runs, episodes, _queue.put)


def _run_stack(stack: Sequence[Cell], runs: Path, episodes: int, progress: Progress) -> None:
    """One stack: trained, evaluated, saved. The results do not depend on what else is in the stack."""
    trainer = Trainer([cell.config for cell in stack])
    done = 0

    def trained(iterations: int) -> None:
        nonlocal done
        progress((iterations - done) * len(stack))
        done = iterations

    trainer.train(trained)
    evaluations = evaluate(trainer.agents, episodes)
    models = teacher_models(trainer.agents, min(_WATCHED, episodes))
    for run, cell in enumerate(stack):
        folder = runs / cell.folder
        make_folder(folder)
        save_run(folder, trainer, run)
        write_evaluation(folder, {**evaluations[run], "teacher_model": models[run]})
    progress(_EVALUATION * len(stack))
