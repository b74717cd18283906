"""Draws the picture of the README from committed records: success alone against answers.

    python benchmarks/readme_picture.py                          # from the studies in LINES
    python benchmarks/readme_picture.py --budget results/budget --rules apil dagger random

The second form draws the benchmark `apil study budget` for the rules that are named: the share of the gap between never
asking and DAgger with many answers that each closes, over all tasks. `--out` writes the picture elsewhere.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from apil.studies.figures import QUERY_STYLES, RC, pictures, styled
from apil.studies.statistics import Estimate, from_json, mean_over_strata
from apil.studies.text import spelled

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "pictures" / "answers"
LINES = (  # folder of the study, rule, label, marker
    ("maze-answers-300", "apil", "APIL, asking on 1 step in 40", "*"),
    ("maze-answers-300", "random", "random, as rarely", "D"),
    ("maze-answers", "apil", "APIL, asking on 1 step in 10", "o"),
    ("maze-answers", "random", "random, as often", "s"),
    ("maze-answers", "dagger", "DAgger", "o"),
    ("maze-answers", "never", "never asks", ""),
)
Points = list[tuple[float, Estimate]]


def study_points(folder: str, rule: str) -> Points:
    """Success alone by number of answers: the mean over mazes and teachers, with its interval over seeds."""
    runs = json.loads((ROOT / "results" / folder / "answers.json").read_text(encoding="utf-8"))["runs"]
    strata: dict[int, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run["query"] == rule:
            strata[run["answers"]][run["task"], run["teacher"]].append(run["success_alone"])
    return [(answers, mean_over_strata([*own.values()])) for answers, own in sorted(strata.items())]


def budget_levels(folder: Path) -> dict[str, dict[str, Estimate]]:
    """The share of the gap that each rule closes, by level of the budget."""
    found = json.loads((folder / "scales.json").read_text(encoding="utf-8"))["over_tasks"]
    levels: dict[str, dict[str, Estimate]] = defaultdict(dict)
    for entry in found:
        if (share := from_json(entry["share"])).known:
            levels[entry["level"]][entry["rule"]] = share
    return levels


def draw_budget(levels: dict[str, dict[str, Estimate]], rules: list[str], tasks: int) -> Figure:
    """A line for each rule over the budgets; a row for each rule where there is one budget."""
    for rule in rules:
        if not any(rule in own for own in levels.values()):
            known = ", ".join(dict.fromkeys(name for own in levels.values() for name in own))
            raise SystemExit(f"No rule '{rule}' in the benchmark: it has {known}.")
    title = f"What the same answers buy, over {tasks} tasks"
    if len(levels) > 1:
        places = [(float(at), own) for at, own in enumerate(levels.values())]
        lines = [(rule, spelled(rule), "o", [(at, own[rule]) for at, own in places if rule in own]) for rule in rules]
        figure = draw(lines)
        panel = figure.axes[0]
        panel.set_xticks(range(len(levels)), [f"{level} budget" for level in levels])
        panel.set_xlabel("answers of the teachers")
        panel.set_ylabel("share of the gap to DAgger closed")
        panel.set_xlim(-0.15, len(levels) - 0.7)
        panel.legend(loc="best", frameon=True, framealpha=1.0, edgecolor="none")
    else:
        ((level, shares),) = levels.items()
        figure = Figure(figsize=(7.2, 1.2 + 0.42 * len(rules)), dpi=150)
        panel = figure.subplots()
        for place, rule in enumerate(rules[::-1]):
            share, colour = shares[rule], styled(rule, QUERY_STYLES, rules)["color"]
            panel.barh(place, share.mean, color=colour, height=0.62, alpha=0.85)
            panel.plot([share.low, share.high], [place, place], color="#1c1c1e", linewidth=1.4)
            panel.text(share.high + 0.012, place, f"{100 * share.mean:.0f} %", va="center")
        panel.set_yticks(range(len(rules)), [*map(spelled, rules[::-1])])
        panel.set_xlim(0, max(shares[rule].high for rule in rules) + 0.1)
        panel.xaxis.set_major_formatter(PercentFormatter(1.0, 0))
        panel.set_xlabel(f"share of the gap from never asking to DAgger with many answers ({level} budget)")
        panel.grid(visible=False, axis="y")
        figure.subplots_adjust(0.16, 0.46 / figure.get_size_inches()[1], 0.98, 1 - 0.38 / figure.get_size_inches()[1])
    panel.set_title(title)
    return figure


def draw(lines: list[tuple[str, str, str, Points]]) -> Figure:
    """A line for each (rule, label, marker, points)."""
    figure = Figure(figsize=(7.2, 3.7), dpi=150)
    panel = figure.subplots()
    for rule, label, marker, points in lines:
        style = styled(rule, QUERY_STYLES, [line[0] for line in lines])
        aside = 1.07 if marker in ("*", "D") else 1.0  # so that marks at the same place are seen
        x, means = [at * aside for at, _ in points], [found.mean for _, found in points]
        if x == [0]:
            panel.axhline(means[0], color=style["color"], linestyle=":", linewidth=1.4, label=label)
            continue
        ends = [[found.mean - found.low for _, found in points], [found.high - found.mean for _, found in points]]
        size = 13 if marker == "*" else 5
        line = {"color": style["color"], "linewidth": 2.0, "markersize": size, "elinewidth": 1.0}
        panel.errorbar(x, means, ends, marker=marker, label=label, **line)
    panel.grid(visible=True)
    figure.subplots_adjust(0.09, 0.14, 0.98, 0.9)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=Path, help="folder of `apil study budget`; the studies in LINES if not given")
    parser.add_argument("--rules", nargs="+", default=["apil", "dagger", "random"], help="of the benchmark")
    parser.add_argument("--out", type=Path, default=OUT, help="the picture without its ending")
    given = parser.parse_args()
    with matplotlib.rc_context(RC):
        if given.budget:
            tasks = len(json.loads((given.budget / "scales.json").read_text(encoding="utf-8"))["tasks"])
            figure = draw_budget(budget_levels(given.budget), given.rules, tasks)
        else:
            figure = draw([(rule, label, mark, study_points(folder, rule)) for folder, rule, label, mark in LINES])
            panel = figure.axes[0]
            panel.set_xscale("log")
            panel.set_xticks([100, 300, 1200], ["100", "300", "1,200"])
            panel.set_xticks([], minor=True)
            panel.set_xlabel("answers of the teachers (log. scale)")
            panel.set_ylabel("success alone (share of episodes)")
            panel.set_ylim(0, 1.02)
            panel.set_title("What the same answers buy: three mazes, four kinds of teachers")
            panel.legend(loc="lower right", frameon=True, framealpha=1.0, edgecolor="none")
        for ending, data in pictures(figure).items():
            given.out.with_suffix(f".{ending}").write_bytes(data)


if __name__ == "__main__":
    main()
