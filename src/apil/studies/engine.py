"""Runs a study: stacks over worker processes, a run folder for each cell, then the tables, figures and report."""

from __future__ import annotations

import multiprocessing
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
from apil.learning.evaluate import evaluate
from apil.learning.metrics import row_iterations
from apil.learning.teacher_model import teacher_models
from apil.learning.trainer import Trainer
from apil.runs.answers import AnswerBook, AnswerBooks
from apil.runs.checkpoint import load_checkpoint
from apil.runs.environment import changed_software, environment
from apil.runs.files import make_folder, read_json, read_rows
from apil.runs.store import load_config, save_run, write_evaluation
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


@dataclass(frozen=True)
class Standing:
    """What of a study is there already."""

    finished: list[Cell]
    todo: list[Cell]
    """Never begun, or begun and not finished: these are run from their start."""
    begun: list[Cell]
    """Those of `todo` that had been begun."""
    other_code: list[Cell]
    """Those of `finished` that were made by other code or versions than these."""


def standing(cells: Sequence[Cell], runs: Path, episodes: int) -> Standing:
    """Looks at the run folders of a study whose runs are evaluated over so many episodes."""
    finished = [cell for cell in cells if _finished(runs / cell.folder, cell.config, episodes)]
    todo = [cell for cell in cells if cell not in finished]
    begun = [cell for cell in todo if (runs / cell.folder).is_dir()]
    other = [cell for cell in finished if _other_software(runs / cell.folder)]
    return Standing(finished, todo, begun, other)


def _finished(folder: Path, config: RunConfig, episodes: int) -> bool:
    """Whether the run is whole: config, all rows, a good checkpoint, and `evaluation.json`, which is written last."""
    try:
        rows = [row["iteration"] for row in read_rows(folder / "metrics.jsonl")]
        evaluation = read_json(folder / "evaluation.json")
        whole = rows == row_iterations(config) and load_config(folder) == config
        whole = whole and (not config.answers or (folder / "answers.jsonl").is_file())
        known = evaluation["episodes"] == episodes and {"success_alone", "teacher_model"} <= set(evaluation)
        return bool(whole and known and load_checkpoint(folder, config) is not None)
    except (ApilError, TypeError, KeyError):
        return False


def _other_software(folder: Path) -> bool:
    try:
        return bool(changed_software(read_json(folder / "environment.json"), environment()))
    except ApilError:
        return True


def run_cells(cells: Sequence[Cell], runs: Path, episodes: int, workers: int, progress: Progress) -> None:
    """Trains and evaluates the cells, each into its folder under `runs`."""
    work = [(stack, runs, episodes) for stack in stacks(cells)]
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


def _run_stack_quietly(stack: Sequence[Cell], runs: Path, episodes: int) -> None:
    _run_stack(stack, runs, episodes, _queue.put)


def _run_stack(stack: Sequence[Cell], runs: Path, episodes: int, progress: Progress) -> None:
    """One stack: trained, evaluated, saved. The results do not depend on what else is in the stack."""
    for cell in stack:
        _clear(runs / cell.folder)
    configs = [cell.config for cell in stack]
    books = None
    if configs[0].answers:
        books = AnswerBooks([AnswerBook(runs / cell.folder / "answers.jsonl", cell.config) for cell in stack])
    trainer = Trainer(configs, books)
    done = 0

    def trained(iterations: int) -> None:
        nonlocal done
        progress((iterations - done) * len(stack))
        done = iterations

    trainer.train(trained)
    for run, cell in enumerate(stack):
        save_run(runs / cell.folder, trainer, run)
    agents = trainer.trained_agents()
    evaluations = evaluate(agents, episodes)
    models = teacher_models(agents, min(_WATCHED, episodes))
    for run, cell in enumerate(stack):
        write_evaluation(runs / cell.folder, {**evaluations[run], "teacher_model": models[run]})
    progress(_EVALUATION * len(stack))


def _clear(folder: Path) -> None:
    """Makes a cell's folder ready for a new start; answers that were given are kept and not asked for again."""
    make_folder(folder)
    for path in folder.iterdir():
        if path.name != "answers.jsonl":
            path.unlink()
