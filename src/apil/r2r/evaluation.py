"""`apil evaluate` of a run on R2R."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Le

from apil.errors import ApilError, unknown_name
from apil.settings.record import Count, Says, Text, record

if TYPE_CHECKING:
    from apil.runs.evaluation import Measured, Progress


@record
class R2REvaluationArguments:
    """Options of an evaluation on R2R."""

    episodes: Count | None = None
    """The first of the split, alone and as many again with help; all if not given."""
    split: Text = "val_unseen"
    """val_unseen, val_seen, train or held_out."""
    sample: bool = False
    """Sample actions from the mean policy, the paper's way, instead of taking the likeliest."""
    shuffle: bool = False
    """Give each episode another's instruction, to see what the language is worth."""
    draw: Annotated[int, Ge(0), Le(1000), Says("give the number of episodes to draw, at most 1,000")] = 0
    """Draw this many episodes, the first ones, as maps into the run folder."""
    data: Text = ""
    """Where the data are now, if not where the run found them."""


class R2REvaluation:
    """The facet `evaluation` of R2R: a whole split, by the measures of R2R."""

    arguments: type = R2REvaluationArguments

    def measure(self, folder: Path, given: Mapping[str, Any], progress: Progress) -> Measured:
        """Measures the agent on a split."""
        from apil.r2r.navigation import evaluate_split
        from apil.r2r.options import OPTIONS
        from apil.r2r.routes import draw_first
        from apil.runs.evaluation import Measured
        from apil.runs.folder import load_config, load_run
        from apil.tasks.places import find_options

        wanted = R2REvaluationArguments(**given)
        settings = load_config(folder)
        options = {**settings.task.options, "data": wanted.data}
        if not wanted.data:
            try:
                options = find_options(folder, settings.task.name, settings.task.options)
            except ApilError as error:
                raise ApilError(f"{error} Or name it with --data.") from None
        task = OPTIONS.make(options)
        if wanted.split not in task.splits:
            raise unknown_name("split", wanted.split, task.splits)
        _, agents = load_run(folder, options=options)
        task = task.of_split(wanted.split)
        every = len(task.episodes)
        total = min(every, wanted.episodes or every)
        how: dict[str, Any] = {"greedy": not wanted.sample, "limit": wanted.episodes}
        result = evaluate_split(
            agents, wanted.split, shuffle=wanted.shuffle, progress=lambda done: progress(done, 2 * total), **how
        )
        # Only one that takes the likeliest actions in the whole split has the split's plain name.
        name = wanted.split + "-shuffled" * wanted.shuffle + "-sampled" * wanted.sample
        file = f"evaluation-{name}.json" if total == every else f"evaluation-{name}-first-{total}.json"

        def maps() -> tuple[str, ...]:
            walked, place = task.shuffled() if wanted.shuffle else task, folder / "maps"
            return (f"Wrote {draw_first(settings, agents, walked, place, wanted.draw, **how)} maps into {place}",)

        title = f"R2R {wanted.split}, taught by {settings.teachers.name}, query policy {settings.query.name}"
        return Measured(file, result, {title: result}, maps if wanted.draw else tuple)


EVALUATION = R2REvaluation()
