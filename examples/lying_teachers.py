"""Teachers that lie about the distance: how much of it can APIL bear?

APIL learns when to ask from the distances that its teachers report. Here two teachers of the maze, or of any other
task, report them with noise, d * max(0, 1 + noise * N(0, 1)), the final one included, or leave them out. What an agent
reaches alone, how often it asks and what DAgger reaches are written to `table.md`, the curves to `figure.png` and
`figure.svg`.

    python examples/lying_teachers.py --out results/lying-teachers
    APIL_PLUGINS=examples/minigrid_experts.py python examples/lying_teachers.py --out results/minigrid-lies \\
        --task room --teacher row-and-column --batch 8 --iterations 600 --learning-rate 5e-3 --average 0.98
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import apil
from apil.learning.evaluate import evaluate
from apil.learning.trainer import Trainer
from apil.settings import RunSettings
from apil.studies.text import spelled
from apil.teachers import TEACHERS, NoisyDistance
from apil.teachers.committee import teacher

NOISES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
MISSING = (0.1, 0.25, 0.5, 0.75, 1.0)


def lie(honest: str, noise: float = 0.0, missing: float = 0.0) -> str:
    """Honest teachers made liars, with distances that carry noise or are missing: the name of such teachers."""
    name = f"{honest}-noise{noise:g}-missing{missing:g}"
    if name not in TEACHERS.names():
        apil.register_teacher(name, lambda: NoisyDistance(teacher(honest), noise=noise, missing=missing))
    return name


def run(configs: Sequence[RunSettings], episodes: int) -> list[dict[str, float]]:
    """Trains all configs as one stack; success alone, with help, and the share of steps asked in training."""
    trainer = Trainer(configs)
    trainer.train()
    measured = evaluate(trainer.trained_agents(), episodes)
    return [
        {
            "success": result["success_alone"],
            "helped": result["success_with_help"],
            "answers": rows[-1]["answers"],
            "asked": float(np.average([r["query_rate"] for r in rows], weights=[r["steps"] for r in rows])),
        }
        for result, rows in zip(measured, trainer.rows, strict=True)
    ]


def study(
    base: RunSettings, noises: Sequence[float], missing: Sequence[float], seeds: int, episodes: int
) -> list[dict[str, Any]]:
    """A record for every kind of teacher and seed; DAgger, which looks at no distance, for comparison.

    `base` names the task, the honest teachers and the settings of all runs.
    """
    kinds = [("dagger", 0.0, 0.0)]
    kinds += [("apil", noise, 0.0) for noise in noises] + [("apil", 0.0, share) for share in missing]
    cells = [(kind, seed) for kind in kinds for seed in range(seeds)]
    configs = [
        base.changed(teacher=lie(base.teachers.name, noise, gone), query=query, seed=seed)
        for (query, noise, gone), seed in cells
    ]
    names = ("query", "noise", "missing")
    return [
        {**dict(zip(names, kind, strict=True)), "seed": seed, **result}
        for (kind, seed), result in zip(cells, run(configs, episodes), strict=True)
    ]


def over_seeds(records: Sequence[Any], **kind: Any) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """The figures of one kind of teacher, each an array over seeds."""
    own = [record for record in records if all(record[name] == value for name, value in kind.items())]
    return {name: np.array([record[name] for record in own]) for name in ("success", "helped", "asked", "answers")}


def table(records: Sequence[Any]) -> str:
    """Mean and range over seeds, a line for each kind of teacher."""
    lines = [
        "| query rule | noise | missing | success alone | success with help | asked in training | answers |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for query, noise, missing in dict.fromkeys((r["query"], r["noise"], r["missing"]) for r in records):
        found = over_seeds(records, query=query, noise=noise, missing=missing)
        shares = " | ".join(
            f"{found[name].mean():.3f} ({found[name].min():.3f} to {found[name].max():.3f})"
            for name in ("success", "helped", "asked")
        )
        answers = f"{found['answers'].mean():.0f}"
        lines.append(f"| {spelled(query)} | {noise:.0%} | {missing:.0%} | {shares} | {answers} |")
    return "\n".join(lines) + "\n"


def draw(records: Sequence[Any], out: Path) -> None:
    """Success and questions over noise and over missing distances."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    dagger = over_seeds(records, query="dagger")["success"].mean()
    for panel, name, other, label in (
        (panels[0], "noise", "missing", "noise of the distances"),
        (panels[1], "missing", "noise", "distances that are missing"),
    ):
        levels = sorted({r[name] for r in records if r["query"] == "apil" and r[other] == 0.0})
        for part, colour, what in (("success", "#0072b2", "success alone"), ("asked", "#d55e00", "asked in training")):
            found = [over_seeds(records, query="apil", **{name: level, other: 0.0})[part] for level in levels]
            panel.plot(levels, [values.mean() for values in found], "o-", color=colour, label=f"APIL: {what}")
            low, high = [values.min() for values in found], [values.max() for values in found]
            panel.fill_between(levels, low, high, color=colour, alpha=0.2, linewidth=0)
        panel.axhline(dagger, color="#4d4d4d", linestyle="--", label="DAgger: success alone")
        panel.set_xlabel(label)
        panel.xaxis.set_major_formatter(lambda value, place: f"{value:.0%}")
        panel.set_ylim(0, 1.02)
    panels[0].legend(loc="center left", fontsize=8)
    for kind in ("png", "svg"):
        figure.savefig(out / f"figure.{kind}", dpi=150)


def write(records: Sequence[Any], out: Path) -> None:
    """The table and the figure."""
    (out / "table.md").write_text(table(records), encoding="utf-8")
    draw(records, out)
    print(table(records))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the sweep and writes its table and figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/lying-teachers"))
    parser.add_argument("--again", action="store_true", help="train nothing: rebuild from records.json in --out")
    parser.add_argument("--task", default="maze")
    parser.add_argument("--teacher", default="twodifdetm")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--average", type=float, default=0.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--noises", type=float, nargs="*", default=NOISES)
    parser.add_argument("--missing", type=float, nargs="*", default=MISSING)
    options = parser.parse_args(arguments)
    saved = options.out / "records.json"
    if options.again:
        write(json.loads(saved.read_text(encoding="utf-8")), options.out)
        return
    base = RunSettings.of(
        options.task,
        options.teacher,
        "apil",
        iterations=options.iterations,
        batch=options.batch,
        learning_rate=options.learning_rate,
        average=options.average,
    )
    records = study(base, options.noises, options.missing, options.seeds, options.episodes)
    options.out.mkdir(parents=True, exist_ok=True)
    saved.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    write(records, options.out)


if __name__ == "__main__":
    main()
