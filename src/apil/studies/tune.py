"""A search for settings from start to end: by Optuna on this machine, or by Ray Tune on a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from apil.errors import ApilError, plural
from apil.files import write_json, write_text
from apil.registry import PLUGINS, import_plugins
from apil.studies.tuning import REDUCTION, RUNGS, Search, Span, Values, as_toml, read_search
from apil.terminal import counted


@dataclass
class Trial:
    """A choice of settings, and how good it was."""

    values: Values
    scores: list[float] = field(default_factory=list)
    """At the rungs that it reached."""

    @property
    def rank(self) -> tuple[int, float]:
        """Who came further is better; among those who came as far the higher score."""
        return (len(self.scores), self.scores[-1] if self.scores else 0.0)


@dataclass(frozen=True)
class Tuned:
    """What a search has found."""

    best: Trial
    trials: list[Trial]
    out: Path
    """The study with the best settings."""


def tune(
    source: str | Path,
    *,
    out: str | Path | None = None,
    engine: Literal["local", "ray"] = "local",
    ray_address: str | None = None,
    progress: bool = True,
) -> Tuned:
    """Searches settings for a study file with the tables [tune] and [search], on seeds that the study does not report.

    Writes the study with the best settings to `out` (NAME-tuned.toml if not given), for `apil study`, and all trials
    beside it. The engine `local` is Optuna in this process, `ray` is Ray Tune.

    Examples:
        >>> found = apil.tune("examples/tune.toml", out="tuned.toml")
        >>> sorted(found.best.values)
        ['hidden', 'learning_rate', 'updates']
    """
    path = Path(source)
    search = read_search(path)
    target = Path(out or path.with_name(f"{path.stem}-tuned.toml"))
    if target.exists():
        raise ApilError(f"{target} exists: choose another --out, or remove it.")
    with counted(f"tuning {path.stem}", search.options.trials, progress) as done:
        trials = _by_optuna(search, done) if engine == "local" else _by_ray(search, ray_address, done)
    if not trials:
        raise ApilError(f"No trial of {path} came to its first measure: see the messages above.")
    best = max(trials, key=lambda trial: trial.rank)
    _write(search, best, trials, target)
    return Tuned(best, trials, target)


def _write(search: Search, best: Trial, trials: list[Trial], target: Path) -> None:
    options = search.options
    seeds = f"{options.first_seed} to {options.first_seed + options.seeds - 1}"
    found = f"{options.measure} {best.scores[-1]:.4f} on seeds {seeds}, the best of {plural(len(trials), 'trial')}"
    head = f"# Made by apil tune {search.source.name}: {found}.\n# That figure was chosen for; report other seeds.\n\n"
    settings = {**search.written.get("settings", {}), **best.values}
    write_text(target, head + as_toml({**search.written, "settings": settings}))
    rows = [{"values": dict(trial.values), "scores": trial.scores} for trial in trials]
    write_json(target.with_suffix(".trials.json"), {"measure": options.measure, "rungs": RUNGS, "trials": rows})


Done = Callable[[int], None]


def _by_optuna(search: Search, done: Done) -> list[Trial]:
    """One trial after another; the same file gives the same trials."""
    try:
        import optuna
    except ImportError as error:
        remedy = "pip install 'apil[tune]', or use --engine ray"
        raise ApilError(f"apil tune needs Optuna on this machine: {remedy}.") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=search.options.search_seed)
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
    trials: list[Trial] = []

    def objective(asked: Any) -> float:
        values = {name: _suggested(asked, name, part) for name, part in search.space.items()}
        trial = Trial(values)
        trials.append(trial)

        def report(rung: int, score: float) -> bool:
            trial.scores.append(score)
            # Optuna promotes by powers of the reduction factor.
            asked.report(score, REDUCTION ** (rung - 1))
            return rung < len(RUNGS) and bool(asked.should_prune())

        score = search.score(values, report)
        done(len(trials))
        if len(trial.scores) < len(RUNGS):
            raise optuna.TrialPruned
        return score

    study.optimize(objective, n_trials=search.options.trials)
    return trials


def _suggested(asked: Any, name: str, part: Span | tuple[Any, ...]) -> Any:
    if isinstance(part, tuple):
        # Choices may be of any kind; Optuna is given their places.
        return part[asked.suggest_categorical(name, list(range(len(part))))]
    suggest = asked.suggest_int if part.whole else asked.suggest_float
    return suggest(name, part.low, part.high, log=part.log)


def _by_ray(search: Search, address: str | None, done: Done) -> list[Trial]:
    """As many trials at a time as the cluster has cores; ASHA gives up what falls behind."""
    from apil.studies.ray_engine import connected

    with connected(address, None) as cluster:
        from ray import tune as ray_tune
        from ray.tune.schedulers import ASHAScheduler
        from ray.tune.search.basic_variant import BasicVariantGenerator

        os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
        # By itself Ray Tune takes an interrupt for the end of the search, and what it has for all trials.
        os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"

        class Count(ray_tune.Callback):  # type: ignore[misc]
            """Tells how many trials have ended."""

            def __init__(self, tell: Done) -> None:
                self.ended, self.tell = 0, tell

            def __getstate__(self) -> dict[str, Any]:
                return {}  # Ray Tune writes itself down, and this process alone has a bar to draw

            def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **more: Any) -> None:
                self.ended += 1
                self.tell(self.ended)

        with TemporaryDirectory(prefix="apil-tune-") as scratch:
            tuner = ray_tune.Tuner(
                ray_tune.with_resources(_trainable(search, os.environ.get(PLUGINS, "")), {"cpu": 1}),
                param_space={name: _domain(part) for name, part in search.space.items()},
                tune_config=ray_tune.TuneConfig(
                    metric="score",
                    mode="max",
                    num_samples=search.options.trials,
                    max_concurrent_trials=cluster.cores,  # none waits in Ray for a core that is not there
                    scheduler=ASHAScheduler(time_attr="rung", max_t=len(RUNGS), reduction_factor=REDUCTION),
                    search_alg=BasicVariantGenerator(random_state=search.options.search_seed),
                ),
                run_config=ray_tune.RunConfig(storage_path=scratch, verbose=0, callbacks=[Count(done)]),
            )
            results = tuner.fit()
            trials = [_trial(result, search) for result in results if result.metrics and "score" in result.metrics]
    done(len(trials))
    return trials


def _trainable(search: Search, plugins: str) -> Callable[[dict[str, Any]], None]:
    """Trains and measures a trial on a worker, with the `plugins` (APIL_PLUGINS) of the process that searches."""

    def train(values: dict[str, Any]) -> None:
        from ray import tune as ray_tune

        os.environ[PLUGINS] = plugins
        import_plugins()
        scores: list[float] = []

        def report(rung: int, score: float) -> bool:
            scores.append(score)
            ray_tune.report({"score": score, "rung": rung, "scores": list(scores)})
            return False  # Ray ends what falls behind

        search.score({name: _chosen(search.space[name], value) for name, value in values.items()}, report)

    return train


def _trial(result: Any, search: Search) -> Trial:
    values = {name: _chosen(search.space[name], value) for name, value in result.config.items()}
    return Trial(values, list(result.metrics["scores"]))


def _chosen(part: Span | tuple[Any, ...], value: Any) -> Any:
    return part[value] if isinstance(part, tuple) else value


def _domain(part: Span | tuple[Any, ...]) -> Any:
    from ray import tune as ray_tune

    if isinstance(part, tuple):
        return ray_tune.choice(list(range(len(part))))
    if part.whole:
        return (ray_tune.lograndint if part.log else ray_tune.randint)(part.low, part.high + 1)
    return (ray_tune.loguniform if part.log else ray_tune.uniform)(part.low, part.high)
