"""`apil train`."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import fields
from shlex import quote
from typing import TYPE_CHECKING, Any

from apil.cli.show import print_table, progress_bar, wrote
from apil.commands import Train
from apil.config import Option, RunConfig, positive
from apil.errors import ApilError, unknown_name
from apil.query import QUERY_POLICIES, needs_threshold

if TYPE_CHECKING:
    pass


def resolve(command: Train) -> RunConfig:
    """The settings of a run, every open one filled in."""
    from apil.learning.build import make_task
    from apil.runs.calibration import load_calibration, threshold_of

    settings, options = _r2r_settings(command) if command.task == "r2r" else ({}, {})
    if command.iterations is not None:
        positive("iterations", command.iterations)
        settings["iterations"] = command.iterations
    for name in ("learning_rate", "optimizer", "average"):
        if getattr(command, name) is not None:
            settings[name] = getattr(command, name)
    task = make_task(RunConfig(task=command.task, teacher=command.teacher, query=command.query, options=options))
    QUERY_POLICIES.check(command.query)
    threshold = command.threshold
    if threshold is not None and not needs_threshold(command.query):
        raise ApilError(f"'{command.query}' has no threshold: leave --threshold out, or use another query policy.")
    if threshold is None and command.budget is None:
        threshold = threshold_of(load_calibration(command.calibration), command.task, command.query)
    return RunConfig(
        task=command.task,
        teacher=command.teacher,
        query=command.query,
        seed=command.seed,
        batch=task.batch if command.batch is None else command.batch,
        expectation=command.expectation,
        samples=command.samples,
        models=command.models,
        threshold=threshold,
        sigma=command.sigma,
        epsilon=task.success_distance if command.epsilon is None else command.epsilon,
        gap=command.gap,
        weights=command.weights or None,
        selection=command.selection,
        log_every=command.log_every,
        save_every=command.save_every,
        teacher_deadline=command.teacher_deadline,
        on_teacher_error=command.on_teacher_error,
        answers=command.answers,
        budget=command.budget,
        query_options=options_of(command.query_options),
        options=options,
        **settings,
    )


def _r2r_settings(command: Train) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of the preset, and the options of the task and its encoder."""
    from apil.r2r.instruction import InstructionSizes
    from apil.r2r.presets import PRESETS
    from apil.r2r.task import R2R

    preset, typed = PRESETS[command.preset], options_of(command.option)
    # What is seen has an option of its own, as all settings of the task have.
    known = [f.name for f in fields(InstructionSizes) if f.name != "features"]
    for name in typed:
        if name not in known:
            raise unknown_name("--option", name, known)
    features = InstructionSizes.features if command.features is None else command.features
    encoder = {**preset.encoder, "features": features, **typed}
    InstructionSizes(**encoder)
    if not command.data:
        print("No --data: the agent lives in generated houses (made on first use); see docs/guide/r2r.md.")
    place = {"data": command.data, "horizon": command.horizon, "reading": command.reading, "held_out": command.held_out}
    world = R2R(**place).world  # type: ignore[arg-type]
    if command.features is not None:
        _check_features(command.features, world.features)
    return dict(preset.settings), {**place, "digest": world.digest, **encoder}


def _check_features(typed: str, there: tuple[str, ...]) -> None:
    """Refuses a feature that was asked for by name and that the data lack."""
    for name in typed.split(","):
        if name not in ("geometry", *there):
            how = "with --image-features" if name == "images" else f"files with {name} (docs/guide/r2r.md)"
            raise ApilError(f"The data have no {name}: compile {how}, or leave it out of --features.")


def options_of(words: tuple[str, ...]) -> dict[str, Option]:
    """Settings typed as name=value: true and false, numbers, and words."""
    options: dict[str, Option] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (name and equals and text):
            raise ApilError(f"'{word}' is not an option: write name=value, for example k=5.")
        options[name] = _plain(text)
    return options


def _plain(text: str) -> Option:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def train(command: Train) -> None:
    """`apil train`"""
    from apil.runs.folder import load_config
    from apil.runs.train import resume_run, start_run

    folder = command.resume or command.out
    if command.resume:
        _refuse_other_options(command)
        config = load_config(folder)
    else:
        config = resolve(command)
    total = command.iterations or config.iterations
    with progress_bar() as progress:
        bar = progress.add_task(f"{config.task}, {config.teacher}, {config.query}", total=total)

        def tell(done: int) -> None:
            progress.update(bar, completed=done)

        if command.resume:
            outcome = resume_run(folder, iterations=command.iterations, progress=tell)
        else:
            outcome = start_run(config, folder, progress=tell)
    if outcome.iteration < outcome.config.iterations:
        print(f"Stopped after {outcome.iteration} of {outcome.config.iterations} iterations; nothing is lost.")
        print(f"Go on with: apil train --resume {quote(str(folder))}")
        sys.exit(130)
    names = ("query_rate", "success", "intrinsic", "extrinsic", "model", "answers", "unanswered")
    figures = {name: outcome.last[name] for name in names if outcome.last and outcome.last.get(name) is not None}
    print_table(f"At the end of {outcome.config.iterations} iterations", figures)
    if outcome.began == outcome.iteration:
        print(f"{folder} had done its {outcome.iteration} iterations before; train on with --iterations.")
        return
    wrote(folder, f"next: apil evaluate {quote(str(folder))}")


def _refuse_other_options(command: Train) -> None:
    """A resumed run keeps its settings; an option that would change one must not be ignored in silence."""
    changed = [
        f.name
        for f in fields(Train)
        if f.name not in ("resume", "iterations") and getattr(command, f.name) != getattr(Train(), f.name)
    ]
    if changed:
        option = "--" + changed[0].replace("_", "-")
        raise ApilError(f"{option} cannot be changed on resume: the run keeps its settings; leave the option out.")
    if command.iterations is not None:
        positive("iterations", command.iterations)
