"""`apil answers`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from apil.errors import ApilError, plural
from apil.settings.record import Text, record
from apil.terminal import counted, print_columns, wrote

if TYPE_CHECKING:
    from apil.runs.stored import StoredAnswers
    from apil.runs.stored_summary import Summary


@record
class Answers:
    """Show the answers stored by a run (by teacher, by step, and how teachers agree), or export them."""

    run: tyro.conf.Positional[Path]
    """Run folder written by `apil train`; it may still be training."""
    out: Text | None = None
    """Export instead: a .csv or .parquet file, `minari`, or the id or folder of a Minari dataset."""
    figure: Path | None = None
    """A .png file for the figure; answers.png in the run folder if not given."""


def answers(command: Answers) -> None:
    from apil.runs.stored import answers as read

    if command.out is not None and command.figure is not None:
        raise ApilError("An export draws no figure: leave out --out or --figure.")
    if command.figure is not None and command.figure.suffix != ".png":
        raise ApilError(f"{command.figure} is no .png file: give one to --figure.")
    found = read(command.run)
    if command.out is not None:
        _export(found, command.out)
    else:
        _show(found, command.figure)


def _export(found: StoredAnswers, out: str) -> None:
    with counted("exporting", len(found)) as progress:
        if out.endswith(".csv"):
            written = found.to_csv(out, progress)
        elif out.endswith(".parquet"):
            written = found.to_parquet(out, progress)
        else:
            written = found.to_minari(None if out == "minari" else out, progress)
    wrote(written)


def _show(found: StoredAnswers, path: Path | None) -> None:
    from apil.runs.ending import ending
    from apil.runs.stored_summary import figure, summary

    earlier = int(found.earlier.sum())
    before = f", {earlier} of them from an earlier run" if earlier else ""
    print(f"{plural(len(found), 'answer')} on {found.task}{before}")
    if (found.folder / "config.json").exists():
        print(f"The run: {ending(found.folder)}")
    if not len(found):
        return
    _show_outlook(found.folder)
    _show_bill(found.folder)
    made = summary(found)
    print_columns("By teacher", made.by_teacher)
    _show_skills(found)
    print_columns("By step of the episode", made.by_step)
    _show_agreement(found, made)
    _draw(path or found.folder / "answers.png", figure(found, made), wanted=path is not None)


def _draw(place: Path, content: bytes, *, wanted: bool) -> None:
    """Writes a figure; one that nobody asked for may fail."""
    from apil.files import write_bytes

    try:
        write_bytes(place, content)
    except ApilError as error:
        if wanted:
            raise
        print(f"No figure: {error} Give another place with --figure.")
        return
    wrote(place)


def _show_bill(folder: Path) -> None:
    """Cost by teacher, cost to a level of success, and what the last answers bought."""
    from apil.runs.bill import HUNDRED, LEVELS, bill

    own = bill(folder)
    cost: dict[str, Any] = {name: own.cost.get(name, "not known") for name in own.answers}
    columns: dict[str, dict[str, Any]] = {"answers": dict(own.answers), "cost": cost}
    columns["answers"]["in all"], columns["cost"]["in all"] = sum(own.answers.values()), own.total
    print_columns("The bill", columns)
    bought = own.last_hundred
    if bought is None:
        print("To see what they bought, train with --looks 50, which measures success alone on the way.")
        return
    to = {f"{level:.0%}": own.cost_to(level) for level in LEVELS}
    costs = {level: "not reached" if paid is None else paid for level, paid in to.items()}
    print_columns("Cost to a level of success alone", {"cost": costs})
    paid, rise = bought
    points = f"{100 * rise.mean:.1f} points [{100 * rise.low:.1f}, {100 * rise.high:.1f}]"
    print(f"The last {HUNDRED} answers before the last look cost {paid:g} and bought {points} of success alone.")


def _show_outlook(folder: Path) -> None:
    """What more answers would bring, where the run was looked at."""
    from apil.runs.looks import figure, learning_curves

    curves = learning_curves(folder)
    if curves is not None:
        print(f"Outlook: {curves.outlook}")
        _draw(folder / "outlook.png", figure(curves), wanted=False)


def _show_skills(found: StoredAnswers) -> None:
    """How good the teachers are, where the run has estimated it."""
    known = found.skills
    if not known:
        return
    turned = any(own.turned is not None for own in known)
    columns: dict[str, dict[str, Any]] = {
        "skill": {own.name: str(own.skill) for own in known},
        "answers": {own.name: own.answers for own in known},
        "cost": {own.name: own.cost for own in known},
        **({"turned at": {o.name: "-" if o.turned is None else o.turned for o in known}} if turned else {}),
    }
    print_columns("Skill of the teachers, about 1 for one who is right, with its 95 % interval", columns)
    regions = {name: {own.name: str(own.regions[name]) for own in known} for name in known[0].regions}
    print_columns("The same where each would be asked first (answered states)", regions)
    for own in known:
        if own.turned is not None:
            print(
                f"{own.name} has become worse: answers before number {own.turned:,} no longer count for the estimate."
            )


def _show_agreement(found: StoredAnswers, made: Summary) -> None:
    from apil.runs.agreement import RADIUS
    from apil.runs.consensus import consensus

    what = "mean absolute difference" if found.continuous else "equal actions"
    pairs = {f"{pair.first} and {pair.second}": pair for pair in made.agreement}
    columns: dict[str, dict[str, Any]] = {
        "similar states": {name: pair.states for name, pair in pairs.items()},
        what: {name: pair.value if pair.states else "-" for name, pair in pairs.items()},
        "95 % interval": {
            name: f"{pair.low:.3f} to {pair.high:.3f}" if pair.states else "-" for name, pair in pairs.items()
        },
    }
    alike = "the same features" if made.same else f"features within {RADIUS} standard deviations"
    print_columns(f"Agreement in similar states ({alike})", columns)
    agreed = consensus(found)
    if agreed:
        shown: dict[str, dict[str, Any]] = {
            "right": {name: f"{own.value:.2f}" for name, own in agreed.items()},
            "answers": {name: own.answers for name, own in agreed.items()},
        }
        print_columns("Right, by agreement", shown)
