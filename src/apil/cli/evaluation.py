"""`apil evaluate`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from apil.cli.show import print_table, progress_bar, wrote
from apil.commands import Evaluate
from apil.config import RunConfig, positive
from apil.errors import ApilError, unknown_name

if TYPE_CHECKING:
    from apil.learning.collect import Agents
    from apil.r2r.task import R2R


def evaluate(command: Evaluate) -> None:
    """`apil evaluate`"""
    from apil.learning.evaluate import evaluate as measure
    from apil.learning.fidelity import teacher_models
    from apil.runs.checkpoint import load_checkpoint
    from apil.runs.folder import load_config, load_run, write_evaluation

    if command.episodes is not None:
        positive("episodes", command.episodes)
    if command.draw < 0:
        raise ApilError(f"draw is {command.draw}: give the number of episodes to draw.")
    task = load_config(command.run).task
    if task == "r2r":
        _evaluate_r2r(command)
        return
    _refuse_options_of_r2r(command, task)
    episodes = 1000 if command.episodes is None else command.episodes
    config, agents = load_run(command.run)
    with progress_bar() as progress:
        bar = progress.add_task("evaluating", total=2 * episodes)
        result = measure(agents, episodes, lambda done: progress.update(bar, completed=done))[0]
    model = teacher_models(agents, min(200, episodes))[0]
    done = load_checkpoint(command.run, config)
    result = {"iteration": done.iteration if done else 0, **result}
    path = write_evaluation(command.run, {**result, "teacher_model": model})
    print_table(f"{config.task}, taught by {config.teacher}, query policy {config.query}", result)
    known = {name: value for name, value in model.items() if isinstance(value, float)}
    print_table("Does the agent know its teachers? (divergences in bits)", known)
    wrote(path)


def _refuse_options_of_r2r(command: Evaluate, task: str) -> None:
    """An option that would do nothing must not be ignored in silence."""
    for name in ("split", "sample", "shuffle", "draw", "data"):
        if getattr(command, name) != getattr(Evaluate(command.run), name):
            raise ApilError(f"--{name} is for runs on r2r, {command.run} is one on {task}: leave the option out.")


def _evaluate_r2r(command: Evaluate) -> None:
    """`apil evaluate` of a run on R2R."""
    from apil.learning.build import make_task
    from apil.r2r.navigation import evaluate_split
    from apil.r2r.task import R2R
    from apil.runs.folder import load_config, load_run, write_evaluation

    config = load_config(command.run)
    options = {**config.options, "data": command.data or config.options["data"]}
    split = command.split or "val_unseen"
    task = make_task(replace(config, options=options))
    assert isinstance(task, R2R)
    if split not in task.splits:
        raise unknown_name("split", split, task.splits)
    _, agents = load_run(command.run, options=options)
    with progress_bar() as progress:
        every = len(task.of_split(split).episodes)
        total = min(every, command.episodes or every)
        bar = progress.add_task(f"evaluating on {split}", total=2 * total)
        result = evaluate_split(
            agents,
            split,
            greedy=not command.sample,
            limit=command.episodes,
            shuffle=command.shuffle,
            progress=lambda done: progress.update(bar, completed=done),
        )
    # Only one that takes the likeliest actions in the whole split has the split's plain name.
    name = split + "-shuffled" * command.shuffle + "-sampled" * command.sample
    path = write_evaluation(command.run, result, name if total == every else f"{name}-first-{total}")
    print_table(f"R2R {split}, taught by {config.teacher}, query policy {config.query}", result)
    wrote(path)
    if command.draw:
        _draw_maps(command, config, agents, task.of_split(split))


def _draw_maps(command: Evaluate, config: RunConfig, agents: Agents, task: R2R) -> None:
    """Maps of the first episodes, as they went with help."""
    from apil.r2r.routes import draw_first

    walked = task.shuffled() if command.shuffle else task
    folder = command.run / "maps"
    drawn = draw_first(config, agents, walked, folder, command.draw, greedy=not command.sample, limit=command.episodes)
    print(f"Wrote {len(drawn) // 2} maps into {folder}")
