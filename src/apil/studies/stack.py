"""One stack of a study: where its runs stand, and training and evaluating them, a run folder for each cell."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from apil.agent.storage import checkpoint_paths
from apil.errors import AccessError, ApilError, plural
from apil.files import locked, make_folder, read_json, refuse_link, remove, together, write_json
from apil.learning.fidelity import teacher_models
from apil.learning.trainer import Trainer
from apil.runs.answers import DamagedAnswersError
from apil.runs.ending import ending
from apil.runs.environment import changed_software, environment
from apil.runs.folder import load_config
from apil.runs.owned import remove_own_files
from apil.runs.writer import Due, Record, is_whole, train_on
from apil.settings import RunSettings
from apil.studies.kind import StudyKind, kind_of
from apil.studies.plan import Cell, settings_of
from apil.tasks.options import options_of

Progress = Callable[[int], None]
"""Called with how many more units of work are done; a unit is an iteration of a run."""
Asks = Callable[[], bool]
"""Whether a stop is asked for."""

FINISHED = "finished.json"
"""Checksums of the records of a run that was trained to its end and evaluated."""
FAILED = "failed.log"
"""Why a run failed; there is none once it is finished."""
_EVALUATION = 250
"""Units of work for evaluating a run, measured against an iteration of training."""
_WATCHED = 200
"""Episodes for comparing the teacher model with the teachers."""

_SHOWN = 5
"""Runs of a kind that are named; of more, their number."""
_SAVE_SECONDS, _SAVE_SHARE = 30.0, 0.02


class StoppedError(Exception):
    """A stack stopped because it was asked to; each of its runs has a checkpoint."""


def work_of(cells: Sequence[Cell]) -> int:
    """Units of work in these cells."""
    return sum((cell.config.query.answer_budget or cell.config.iterations) + _EVALUATION for cell in cells)


@dataclass(frozen=True)
class Standing:
    """What of a study is there already."""

    finished: list[Cell]
    todo: list[Cell]
    """All others."""
    trained: list[Cell]
    """Those of `todo` that only have to be evaluated."""
    begun: list[Cell]
    """Those of `todo` that go on from a checkpoint."""
    restarted: list[Cell]
    """Those of `todo` that were begun, but have no checkpoint, or one made by other code or versions than these."""
    spent: list[Cell]
    """Those of `todo` that were finished with other episodes of evaluation and whose weights are gone since."""
    other_code: list[Cell]
    """Those of `finished` and `trained` that were made by other code or versions than these."""

    def lines(self, cells: Sequence[Cell], runs: Path) -> Iterator[str]:
        new = len(self.todo) - len(self.trained + self.begun + self.restarted)
        yield (
            f"{plural(len(cells), 'run')} in {runs}: {len(self.finished)} finished before and kept, "
            f"{len(self.trained)} trained before and evaluated now, {len(self.begun)} resumed, "
            f"{len(self.restarted)} started over, {new} new"
        )
        parts = {"Evaluated": self.trained, "Resumed": self.begun, "Started over": self.restarted}
        for what, named in {**parts, "Made by other code or versions": self.other_code}.items():
            if named:
                shown = [cell.folder + _sad_end(runs / cell.folder) for cell in named[:_SHOWN]]
                more = [f"{len(named) - _SHOWN} more"] if len(named) > _SHOWN else []
                yield f"{what}: {', '.join([*shown, *more])}"
        strangers = {path.name for path in runs.iterdir()} - {cell.folder for cell in cells}
        if strangers:
            yield f"Left alone: {plural(len(strangers), 'run')} with other settings, for example {min(strangers)}"


def _sad_end(folder: Path) -> str:
    """The state of a run that did not end well, in brackets."""
    try:
        end = ending(folder)
    except ApilError:
        return ""
    return f" ({end.state})" if end.state in ("failed", "killed") else ""


def standing(cells: Sequence[Cell], runs: Path, episodes: int, *, alone: bool = False) -> Standing:
    """Looks at the run folders of a study whose runs are evaluated over so many episodes; `alone` as in `run_cells`."""
    vouched = {cell for cell in cells if _vouched(runs / cell.folder, cell.config)}
    whole = vouched | {cell for cell in cells if cell not in vouched and _whole(runs / cell.folder, cell.config)}
    finished = [cell for cell in cells if cell in whole and _evaluated(runs / cell.folder, episodes, alone)]
    known = set(finished)
    todo = [cell for cell in cells if cell not in known]
    started = [cell for cell in todo if cell not in whole and (runs / cell.folder).is_dir()]
    begun = [cell for cell in started if _can_go_on(runs / cell.folder, cell.config)]
    going_on = set(begun)
    return Standing(
        finished,
        todo,
        trained=[cell for cell in todo if cell in whole and _whole(runs / cell.folder, cell.config)],
        begun=begun,
        restarted=[cell for cell in started if cell not in going_on],
        spent=[cell for cell in todo if cell in vouched and not _whole(runs / cell.folder, cell.config)],
        other_code=[cell for cell in cells if cell in whole and _other_software(runs / cell.folder)],
    )


def _whole(folder: Path, config: RunSettings) -> bool:
    """Whether the run was trained to its end, and its files are as they were then."""
    return _has_config(folder, config) and is_whole(folder, config)


def _vouched(folder: Path, config: RunSettings) -> bool:
    """Whether the run was finished and its records are as they were then. Its weights may be gone."""
    try:
        return _read(folder / FINISHED).get("sha256") == _checksums(folder) and _has_config(folder, config)
    except OSError:
        return False


def _read(path: Path) -> dict[str, Any]:
    """A record of a run; empty where it cannot be read."""
    try:
        found = read_json(path)
    except AccessError:
        raise
    except ApilError:
        return {}
    return found if isinstance(found, dict) else {}


def _checksums(folder: Path) -> dict[str, str]:
    looks = sorted(path.name for path in folder.glob("look-*.json"))
    names = ["config.json", "metrics.jsonl", "evaluation.json", *looks]
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def _has_config(folder: Path, config: RunSettings) -> bool:
    try:
        saved = load_config(folder)
        return settings_of(saved) == settings_of(config) and _same_options(saved, config)
    except AccessError:
        raise
    except ApilError:
        return False


def _same_options(saved: RunSettings, config: RunSettings) -> bool:
    """Whether the options agree that both runs have: a checksum of data that an older run lacks is no difference."""
    places = options_of(config.task.name).places
    both = (saved.task.options.keys() & config.task.options.keys()) - set(places)
    return all(saved.task.options[name] == config.task.options[name] for name in both)


def _evaluated(folder: Path, episodes: int, alone: bool) -> bool:
    evaluation = _read(folder / "evaluation.json")
    wanted = {"success_alone"} if alone else {"success_alone", "teacher_model"}
    return evaluation.get("asked_for") == episodes and wanted <= set(evaluation)


def _can_go_on(folder: Path, config: RunSettings) -> bool:
    """Whether there is a checkpoint that these versions made. It may still turn out to be damaged."""
    return _has_config(folder, config) and bool(checkpoint_paths(folder)) and not _other_software(folder)


def _other_software(folder: Path) -> bool:
    return bool(changed_software(_read(folder / "environment.json"), environment()))


def save_due(iterations: int, since: float, took: float) -> bool:
    """A stack saves its runs every half a minute, or less often where that would take more than 2 % of the time."""
    return since > max(_SAVE_SECONDS, took / _SAVE_SHARE)


def run_stack(
    stack: Sequence[Cell],
    runs: Path,
    episodes: int,
    due: Due,
    progress: Progress,
    stop: Asks = lambda: False,
    *,
    alone: bool = False,
) -> None:
    """One stack: trained, saved, evaluated, each cell in its folder under `runs`.

    The results do not depend on what else is in the stack. `due` says when it saves its runs. If
    `alone`, agents are measured with nobody to ask, and nothing else is.
    """
    with ExitStack() as opened:
        for cell in stack:
            folder = runs / cell.folder
            refuse_link(folder)
            make_folder(folder)
            opened.enter_context(locked(folder))

        def opens(cell: Cell) -> Record:
            record = _open(runs / cell.folder, cell.config)
            opened.callback(record.close)
            return record

        records = together(opens, stack)
        # Usually all stand at the same iteration; those that a kill during a save left behind go on by themselves.
        for _, group in groupby(sorted(records, key=_stands), key=_stands):
            _finish(list(group), episodes, due, progress, stop, alone)


def _stands(record: Record) -> int:
    """Where a run stands: iterations done, or -1 where there is nothing left to train."""
    return -1 if record.ended else record.done


def _finish(records: Sequence[Record], episodes: int, due: Due, progress: Progress, stop: Asks, alone: bool) -> None:
    kind = kind_of(records[0].config.task.name)
    trainer = _trained(records, kind, due, progress, stop)
    if stop():
        raise StoppedError
    with closing(trainer.trained_agents()) as agents:
        if alone:
            evaluations = kind.evaluate_alone(agents, episodes)
        else:
            found = kind.evaluate(agents, episodes)
            models = teacher_models(agents, min(_WATCHED, episodes or _WATCHED))
            evaluations = [{**own, "teacher_model": model} for own, model in zip(found, models, strict=True)]

    def note(of_run: tuple[Record, dict[str, Any]]) -> None:
        folder = of_run[0].folder
        write_json(folder / "evaluation.json", {**of_run[1], "asked_for": episodes})
        remove(folder / FAILED)
        write_json(folder / FINISHED, {"sha256": _checksums(folder)})

    together(note, list(zip(records, evaluations, strict=True)))
    progress(_EVALUATION * len(records))


def _trained(records: Sequence[Record], kind: StudyKind, due: Due, progress: Progress, stop: Asks) -> Trainer:
    """The trainer of runs that stand at the same iteration, at their end.

    A stack takes as long as its longest run: when a quarter of the runs have ended, the others go on by themselves.
    """
    # Runs with looks of their own are not stacked.
    own_look = kind.look(records[0].folder, records[0].config) or (lambda trainer: None)
    rest: Sequence[Record] = records
    before: int | None = 0
    try:
        while True:
            enough: list[int] = []
            look = _Look(own_look, stop, enough)
            trainer = train_on(rest, due, _progress_of(progress, len(rest), before), enough, kept=1, look=look)
            if not trainer.done and stop():
                raise StoppedError
            if trainer.done and len(rest) == len(records):
                return trainer
            # Those that ended in different stacks are evaluated as one.
            rest, before = _reopened(records if trainer.done else [r for r in rest if not r.ended], rest), None
    finally:
        for record in rest:
            record.close()


@dataclass(frozen=True)
class _Look:
    """Looks at a stack after each iteration; notes in `enough` when a quarter of its runs have ended, or on a stop."""

    own: Callable[[Trainer], None]
    stop: Asks
    enough: list[int]

    def __call__(self, trainer: Trainer) -> None:
        self.own(trainer)
        if not trainer.done and (4 * sum(trainer.running) <= 3 * len(trainer.running) or self.stop()):
            self.enough.append(trainer.iteration)


def _progress_of(progress: Progress, runs: int, before: int | None) -> Callable[[int], None]:
    """Reports the work of a stack; with `before` None what it starts with was reported already."""
    done = before

    def trained(units: int) -> None:
        nonlocal done
        if done is not None:
            progress((units - done) * runs)
        done = units

    return trained


def _reopened(wanted: Sequence[Record], opened: Sequence[Record]) -> list[Record]:
    """The records of runs as they are on disk now."""
    for record in opened:
        record.close()
    return together(lambda record: Record(record.folder, record.config), wanted)


def _open(folder: Path, config: RunSettings) -> Record:
    """The record of a cell, where it stands; from its start if nothing there can be used."""
    if _whole(folder, config) or _can_go_on(folder, config):
        try:
            return Record(folder, config)
        except (DamagedAnswersError, AccessError):
            raise
        except ApilError as error:
            print(f"apil: warning: {error} This run of the study starts over.", file=sys.stderr)
    remove_own_files(folder, keep=("answers.jsonl",))  # what was answered is not asked for again
    return Record(folder, config)
