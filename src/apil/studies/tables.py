"""The tables of a study: what was learned, what was asked, and whether the teachers are known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from apil.studies.paper import EXPECTED, differs
from apil.studies.records import TEACHER_MODELS, CellResult, StudyRecords, in_order
from apil.studies.statistics import Estimate, estimate
from apil.studies.text import inert, spelled, texts

NOTHING = "–"
"""What a table shows where there is no figure."""

DIFFERS = "≠"
"""Mark of a figure whose interval misses the paper's number."""

FEWER = "†"
"""Mark of a figure of runs that asked fewer questions than they could have."""


@dataclass(frozen=True)
class TableBlock:
    """Rows of text under a heading."""

    heading: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def spelled(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows with the names of rules and teachers as papers spell them."""
        return [*map(spelled, self.header)], [[spelled(row[0]), *row[1:]] for row in self.rows]


@dataclass(frozen=True)
class Table:
    """One document: a title, how to read it, and one or more blocks."""

    name: str
    """File name without its ending."""
    title: str
    notes: tuple[str, ...]
    blocks: tuple[TableBlock, ...]

    def markdown(self) -> str:
        parts = [f"# {inert(self.title)}", "\n".join(f"- {inert(note)}" for note in self.notes)]
        for block in self.blocks:
            header, rows = block.spelled
            lines = [header, ["---"] * len(header), *rows]
            cells = [[inert(cell).replace("|", "\\|") for cell in line] for line in lines]
            parts += [f"## {inert(block.heading)}", "\n".join(f"| {' | '.join(line)} |" for line in cells)]
        return "\n\n".join(part for part in parts if part) + "\n"


_ESCAPED = re.compile(r"\\(?=//|[.@\]<`|])")


def blocks_of(markdown: str) -> tuple[TableBlock, ...]:
    """The blocks of a table that was written as Markdown."""
    blocks = []
    for part in markdown.split("\n## ")[1:]:
        heading, *lines = (_ESCAPED.sub("", line) for line in part.splitlines() if line)
        header, _, *rows = (tuple(line.strip("| ").split(" | ")) for line in lines)
        kind, _, named = heading.partition(" ")
        blocks.append(TableBlock(f"{kind} {spelled(named)}", header, tuple(rows)))
    return tuple(blocks)


def _kept(table: Table, folder: Path) -> Table:
    """The table with the blocks that it had before, if it was written before."""
    path = folder / f"{table.name}.md"
    return replace(table, blocks=blocks_of(path.read_text(encoding="utf-8"))) if path.is_file() else table


def all_tables(study: StudyRecords) -> list[Table]:
    """Every table that the records of the study allow. Those on teachers stay where their records are missing."""
    first = [answers_table(study, setting(study))] if study.points else []
    about_teachers = [uncertainty_table(study), teachers_table(study)]
    if not (study.folder / TEACHER_MODELS).is_file():
        about_teachers = [_kept(table, study.folder) for table in about_teachers]
    uncertainty, teachers = about_teachers
    tables = [*first, uncertainty, queries_table(study), *([teachers] if teachers.blocks else [])]
    if study.interactions:
        tables += [interactions_table(study), costs_table(study)]
    return tables


def shown(figure: Estimate, decimals: int = 3, seeds: int = 0) -> str:
    """`mean [low, high]`, thousands apart; the mean alone where it is known to rest on one seed."""
    if not figure.known:
        return NOTHING
    rounded = (round(value, decimals) + 0.0 for value in (figure.mean, figure.low, figure.high))  # no negative zero
    mean, low, high = (f"{value:,.{decimals}f}" for value in rounded)
    return mean if seeds == 1 else f"{mean} [{low}, {high}]"


def setting(study: StudyRecords) -> str:
    """What the figures of a study rest on, in one sentence."""
    counts = seed_counts(study)
    runs = "1 seed, so no interval" if study.seeds == 1 else f"{study.seeds} seeds"
    if len(counts) > 1:
        runs = f"{counts[0]} to {counts[-1]} seeds, as each row says (one seed has no interval)"
    end = "at most " if study.points else ""
    return (
        f"Task {study.label}, {runs}, {end}{study.iterations:,} training iterations; expectation over teacher "
        f"identities: {study.expectation}."
    )


def seed_counts(study: StudyRecords) -> list[int]:
    """The numbers of seeds that cells rest on, the smallest first."""
    return sorted({cell.seeds for cell in study.cells if cell.seeds})


def seeds_of(study: StudyRecords, query: str, teachers: Sequence[str]) -> str:
    """The seeds of a query policy; one number for each teacher where they differ."""
    counts = [study.cell(teacher, query).seeds for teacher in teachers]
    there = [count for count in counts if count]
    return str(there[0]) if len(set(there)) == 1 else ", ".join(str(count) if count else NOTHING for count in counts)


def _seeds(study: StudyRecords, entry: str) -> tuple[str, ...]:
    """The column of seeds: an entry where not all cells have the same number, else none."""
    return (entry,) if len(seed_counts(study)) > 1 else ()


_TEXTS = texts("tables.toml")


def explained(
    name: str, first: str, blocks: Iterable[TableBlock], notes: Iterable[str] = (), said: Any = _TEXTS, **values: Any
) -> Table:
    """A table with the title and the notes that `said` has for it, between the `first` note and others."""
    text = said[name]
    written = (note.format(intervals=said["intervals"]["note"], **values) for note in text["notes"])
    return Table(name, text["title"].format(**values), (first, *written, *notes), tuple(blocks))


def uncertainty_table(study: StudyRecords) -> Table:
    """Learned uncertainty beside its expectation and the paper's number, for every trainer."""
    paper = _has_paper(study)
    there = {"sampled": study.estimates, "paper": paper, "one_seed": paper and len(seed_counts(study)) > 1}
    notes = [_TEXTS["table_uncertainty"][name] for name, needed in there.items() if needed]
    blocks = [_uncertainty_block(study, quantity) for quantity in ("intrinsic", "extrinsic")]
    return explained("table_uncertainty", setting(study), blocks, notes, study=study)


def _has_paper(study: StudyRecords) -> bool:
    return any(teacher in study.printed for teacher in study.teachers)


def _uncertainty_block(study: StudyRecords, quantity: str) -> TableBlock:
    teachers = study.teachers
    none = _seeds(study, "")
    exact = {name: f"{entry[quantity]:.3f}" for name, entry in study.expectations.items()}
    rough = {name: entry[quantity] for name, entry in EXPECTED.items()}
    rows = [("expectation", *none, *(exact.get(name, rough.get(name, NOTHING)) for name in teachers))]
    if study.estimates:
        sampled = (f"{study.estimates[name][quantity]:.3f}" for name in teachers)
        rows.append(("expectation, as sampled", *none, *sampled))
    if _has_paper(study):
        printed = (study.printed.get(teacher, {}).get(quantity) for teacher in teachers)
        rows.append(("paper", *none, *(NOTHING if number is None else f"{number:.2f}" for number in printed)))
    for query in study.queries:
        figures = (_compared(study, teacher, query, quantity) for teacher in teachers)
        rows.append((query, *_seeds(study, seeds_of(study, query, teachers)), *figures))
    header = ("trainer", *_seeds(study, "seeds"), *teachers)
    return TableBlock(f"{quantity.capitalize()} uncertainty ({study.unit})", header, tuple(rows))


def _compared(study: StudyRecords, teacher: str, query: str, quantity: str) -> str:
    cell = study.cell(teacher, query)
    ours = cell.figure(quantity)
    printed = study.printed.get(teacher, {}).get(quantity)
    mark = f" {DIFFERS}" if printed is not None and cell.seeds != 1 and differs(printed, ours) else ""
    return shown(ours, seeds=cell.seeds) + mark


def comparison_block(study: StudyRecords) -> tuple[TableBlock, dict[str, float]]:
    """Where each trainer misses the paper's Table 1, and its mean distance from it in bits; empty outside the paper."""
    teachers = [name for name in study.teachers if name in study.printed]
    rows, distance = [], {}
    for query in study.queries if teachers else ():
        gaps, entries = [], []
        for teacher in teachers:
            cell = study.cell(teacher, query)
            found = [(name, printed, cell.figure(name)) for name, printed in study.printed[teacher].items()]
            misses = [f"{name} {ours.mean - printed:+.3f}" for name, printed, ours in found if differs(printed, ours)]
            entries.append((", ".join(misses) or "agrees") if cell.figure("intrinsic").known else NOTHING)
            gaps += [abs(ours.mean - printed) for _, printed, ours in found]
        if NOTHING not in entries:
            distance[query] = fmean(gaps)
        rows.append((query, *_seeds(study, seeds_of(study, query, teachers)), *entries))
    header = ("trainer", *_seeds(study, "seeds"), *teachers)
    return TableBlock("Difference from the paper (bits)", header, tuple(rows)), distance


def compared_note(study: StudyRecords) -> str:
    text = _TEXTS["compared"]
    return str(text["note"] + (text["one_seed"] if 1 in seed_counts(study) else ""))


def queries_table(study: StudyRecords) -> Table:
    """How often each query policy asked, and its results, under each teacher."""
    columns = _TEXTS["table_queries"]["columns"]
    columns = [column for column in columns if any(cell.figure(column[0]).known for cell in study.cells)]
    header = ("query policy", *_seeds(study, "seeds"), *(heading for _, heading, _ in columns))
    blocks = []
    for teacher in study.teachers:
        rows = []
        for query in study.queries:
            cell = study.cell(teacher, query)
            figures = (shown(cell.figure(name), decimals, cell.seeds) for name, _, decimals in columns)
            rows.append((query, *_seeds(study, seeds_of(study, query, [teacher])), *figures))
        blocks.append(TableBlock(f"Teacher {spelled(teacher)}", header, tuple(rows)))
    where = f", on {study.splits[0]}" if study.splits else ""
    return explained("table_queries", setting(study), blocks, study=study, where=where)


def answers_table(study: StudyRecords, first: str) -> Table:
    """What each rule reaches alone with the same numbers of answers."""
    kinds = [(name, _TEXTS["table_answers"][name]) for name in ("success_alone", "success_greedy", "difference")]
    blocks = []
    for teacher in study.teachers:
        for name, kind in kinds:
            heading = f"Teacher {spelled(teacher)}: {kind.format(baseline=spelled(study.baseline))}"
            rows = [_at_points(study, study.cell(teacher, query), name) for query in study.queries]
            header = ("rule", *(f"{point:,} answers" for point in study.points))
            known = tuple((row[0], *row[1:]) for row in rows if any(entry != NOTHING for entry in row[1:]))
            if known:
                blocks.append(TableBlock(heading, header, known))
    fewer = any(at.asked_fewer for cell in study.cells for at in cell.at)
    notes = [_TEXTS["table_answers"]["fewer"]] if fewer else []
    return explained("table_answers", first, blocks, notes, study=study)


def _at_points(study: StudyRecords, cell: CellResult, name: str) -> tuple[str, ...]:
    """A row: the figure of a rule at each number of answers. One that never asks has the same at all."""
    by_point = {at.answers: at for at in cell.at}
    entries = []
    for point in study.points:
        at = by_point.get(point, by_point.get(0))
        text = NOTHING if at is None else shown(getattr(at, name), seeds=study.seeds)
        entries.append(text if at is None or not at.asked_fewer or text == NOTHING else f"{text} {FEWER}")
    return (cell.query, *entries)


def interactions_table(study: StudyRecords) -> Table:
    """What the interactions with the teachers bought, beside the baseline."""
    levels = list(study.interactions[0].needed)
    to = (f"interactions to {level:.0%}" for level in levels)
    header = ("rule", "area under success", *to, "success alone", f"better than {spelled(study.baseline)}")
    blocks = []
    for teacher in study.teachers:
        own = [entry for entry in study.interactions if entry.teacher == teacher]
        rows = []
        for entry in own:
            reached = (_needed(*entry.needed[level]) for level in levels)
            better = shown(entry.improvement, 2) if entry.query != study.baseline else NOTHING
            rows.append((entry.query, shown(entry.area), *reached, shown(entry.success_alone), better))
        heading = f"Teacher {spelled(teacher)}, area over {own[0].area_to:,.0f} interactions"
        blocks.append(TableBlock(heading, header, tuple(rows)))
    return explained("table_interactions", setting(study), blocks, study=study, baseline=spelled(study.baseline))


def _needed(interactions: Estimate, reached: float) -> str:
    if not interactions.known:
        return "not reached"
    return shown(interactions, 0) + ("" if reached == 1.0 else f" ({reached:.0%})")


def costs_table(study: StudyRecords) -> Table:
    """How many answers each member of a committee gave, and what they cost."""
    blocks = []
    for teacher in study.teachers:
        own = [entry for entry in study.interactions if entry.teacher == teacher and entry.answers]
        if own:
            members = list(own[0].answers)
            header = ("rule", *(f"{m}: {what}" for m in members for what in ("answers", "cost")), "cost in all")
            rows = []
            for entry in own:
                each = (text for m in members for text in (shown(entry.answers[m], 0), shown(entry.cost[m], 1)))
                rows.append((entry.query, *each, shown(entry.total_cost, 1)))
            blocks.append(TableBlock(f"Teacher {spelled(teacher)}", header, tuple(rows)))
    return explained("table_costs", setting(study), blocks, study=study)


def teachers_table(study: StudyRecords) -> Table:
    """Are my teachers the same teacher, and does the agent know them?"""
    blocks = [_teacher_block(study, teacher) for teacher in in_order(model.teacher for model in study.models)]
    return explained("table_teachers", setting(study), blocks, study=study)


def _teacher_block(study: StudyRecords, teacher: str) -> TableBlock:
    models = [model for model in study.models if model.teacher == teacher]
    columns = _TEXTS["table_teachers"]["columns"]
    header = ("query policy", *_seeds(study, "seeds"), *columns.values())
    rows = []
    for query in in_order(model.query for model in models):
        runs = [model for model in models if model.query == query]
        figures = (shown(estimate([getattr(run, name) for run in runs]), seeds=len(runs)) for name in columns)
        rows.append((query, *_seeds(study, seeds_of(study, query, [teacher])), *figures))
    names = ", ".join(models[0].members)
    several = f"{len(models[0].members)} members ({names}){members_truth(study, teacher)}"
    who = several if len(models[0].members) > 1 else f"a single teacher ({names})"
    return TableBlock(f"Teacher {spelled(teacher)}: {who}", header, tuple(rows))


def members_truth(study: StudyRecords, teacher: str) -> str:
    """Whether the members of a committee really differ, from the extrinsic uncertainty of a perfect copy."""
    extrinsic = study.expectations.get(teacher, {}).get("extrinsic")
    if extrinsic is None:
        return ""
    return "; their true policies differ" if extrinsic > 0 else "; their true policies are the same"
