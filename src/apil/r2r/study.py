"""The study of R2R: the paper's second table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Le

from apil.settings.record import Few, Says, record

if TYPE_CHECKING:
    from apil.learning.collect import Agents
    from apil.learning.trainer import Trainer
    from apil.settings import RunSettings
    from apil.studies.kind import Asked, Look
    from apil.studies.plan import Cell

SPLITS = ("val_unseen", "val_seen")
"""Where agents are evaluated; the first is the one that tables show."""
_LOOKS = 10
"""How often an agent is looked at in training, evenly spread."""
_LOOKED = 500
"""Episodes of val_seen for a look at an agent in training."""
_MANY_SEEDS = ("dagger", "apil")


@record
class R2RStudyArguments:
    """Options of a study of R2R."""

    other_seeds: Few = 1
    """Seeds of the policies other than dagger and apil, which have --seeds (3 if not given)."""
    maps: Annotated[int, Ge(0), Le(1000), Says("give a whole number from 0 to 1000")] = 3
    """Example maps in the report. They show data of R2R: give 0 for a report that is passed on."""


class R2RStudy:
    """The facet `study` of R2R."""

    arguments: type = R2RStudyArguments
    seeds = 3
    episodes = 0
    starts = 1_000

    def queries(self) -> tuple[str, ...]:
        """Those of the paper's second table, in the order in which they are run."""
        return ("dagger", "apil", "errpred", "intrun", "behvun", "bc", "extrun")

    def folder(self, task: str, given: Mapping[str, Any]) -> str:
        """Generated houses are not R2R: they must not take the place of its results."""
        return task if given.get("data") else "houses"

    def thresholds(self, asked: Asked, progress: Callable[[int, int], None]) -> dict[str, dict[str, Any]]:
        """Those given, or found once on Detm in runs of a fifth of the length."""
        from apil.files import read_json, write_json
        from apil.query import THRESHOLD_POLICIES
        from apil.studies.calibrate import calibrate_briefly
        from apil.studies.plan import Cell

        # What a smaller study in this folder does not need is kept here for a larger one.
        file = asked.out / "calibration.json"
        # Thresholds of other data, lengths or sizes are not these.
        made_for = Cell(asked.base.changed(teacher="detm")).folder.rsplit("-", 1)[1]
        kept = read_json(file) if file.exists() else {}
        found = kept.get("thresholds", {}) if isinstance(kept, dict) and kept.get("settings") == made_for else {}
        known = asked.calibration
        missing = [q for q in asked.queries if q in THRESHOLD_POLICIES and q not in known and q not in found]
        if missing and not asked.so_far:
            runs = asked.out / "calibration_runs.json"
            found |= calibrate_briefly(asked.base, missing, asked.workers, progress, runs)
            write_json(file, {"settings": made_for, "thresholds": found})
        return {**found, **known}

    def plan(self, asked: Asked, thresholds: Mapping[str, float | None]) -> list[Cell]:
        """The runs in the order in which they are made, DAgger and APIL first.

        They have `seeds` seeds, the other policies `other_seeds`. ExtrUn is run with committees that differ: with one
        teacher, or with two of a kind, it has nothing to go by. Where two policies are the same one run serves both."""
        from apil.learning.build import committee_of, require_threshold
        from apil.studies.plan import SAME_FOR_ONE, Cell

        for query in asked.queries:
            require_threshold(asked.base.task.name, query, thresholds.get(query))
        others = R2RStudyArguments(**asked.options).other_seeds
        cells = []
        for seed in range(max(asked.seeds, others)):
            for teacher, query in product(asked.teachers, asked.queries):
                one_kind = teacher in ("detm", "rand", "tworand")
                wanted = asked.seeds if query in _MANY_SEEDS else others
                if seed < wanted and not (query == "extrun" and one_kind):
                    run = asked.base.changed(teacher=teacher, query=query, seed=seed, threshold=thresholds.get(query))
                    if query in SAME_FOR_ONE and len(committee_of(run).members) == 1:
                        cells.append(Cell(run.changed(query=SAME_FOR_ONE[query]), label=query))
                    else:
                        cells.append(Cell(run))
        return cells

    def look(self, folder: Path, settings: RunSettings) -> Look:
        """Ten looks in a run at what the agent can do alone on val_seen, for curves of success against answers."""
        from apil.files import write_json
        from apil.r2r.navigation import evaluate_split

        every = max(1, settings.iterations // _LOOKS)

        def look(trainer: Trainer) -> None:
            path = folder / f"look-{trainer.iteration:08d}.json"
            # A run that was stopped comes by again, to the same figures.
            if trainer.iteration % every == 0 and not path.exists():
                with trainer.averaged() as agents:
                    seen = evaluate_split(agents, SPLITS[1], limit=_LOOKED, helped=False)
                write_json(path, {"iteration": trainer.iteration, "answers": trainer.answers(0), **seen})

        return look

    def evaluate(self, agents: Agents, episodes: int) -> list[dict[str, Any]]:
        """Over so many episodes of each split; all of them if 0."""
        from apil.r2r.navigation import evaluate_split

        splits = {split: evaluate_split(agents, split, limit=episodes or None) for split in SPLITS}
        return [{**splits[SPLITS[0]], "splits": splits}]

    def summary(self, runs: Sequence[RunSettings]) -> dict[str, Any]:
        """Whether the data are the public ones, and what the teachers reach who are followed at every step."""
        from apil.learning.build import build
        from apil.r2r.inventory import is_official
        from apil.r2r.navigation import follow_teacher
        from apil.r2r.options import OPTIONS

        names = dict.fromkeys(run.teachers.name for run in runs)
        always = [runs[0].changed(teacher=name, query="bc", threshold=None, seed=0) for name in names]
        return {
            "public_data": is_official(OPTIONS.make(runs[0].task.options).world),
            "teachers": [{"teacher": run.teachers.name, **follow_teacher(build([run]), SPLITS[0])} for run in always],
        }

    def examples(self, asked: Asked, cells: Sequence[Cell]) -> None:
        """Maps of episodes."""
        from apil.r2r.routes import write_examples

        write_examples(cells, asked.out, asked.episodes, R2RStudyArguments(**asked.options).maps)


STUDY = R2RStudy()
