"""The tables of a study: what was learned, what was asked, and whether the teachers are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from apil.studies.paper import EXPECTED, differs
from apil.studies.records import StudyRecords, TeacherModel, in_order
from apil.studies.statistics import Estimate, estimate
from apil.studies.text import inert

NOTHING = "–"
"""What a table shows where there is no figure."""

DIFFERS = "≠"
"""Mark of a figure whose interval misses the paper's number."""


@dataclass(frozen=True)
class TableBlock:
    """Rows of text under a heading."""

    heading: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Table:
    """One document: a title, how to read it, and one or more blocks."""

    name: str
    """File name without its ending."""
    title: str
    notes: tuple[str, ...]
    blocks: tuple[TableBlock, ...]

    def markdown(self) -> str:
        """The table as a Markdown document."""
        parts = [f"# {inert(self.title)}", "\n".join(f"- {inert(note)}" for note in self.notes)]
        for block in self.blocks:
            parts += [f"## {inert(block.heading)}", _markdown_rows(block)]
        return "\n\n".join(part for part in parts if part) + "\n"


def _markdown_rows(block: TableBlock) -> str:
    lines = [block.header, tuple("---" for _ in block.header), *block.rows]
    return "\n".join("| " + " | ".join(inert(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def all_tables(study: StudyRecords) -> list[Table]:
    """Every table that the records of the study allow."""
    tables = [uncertainty_table(study), queries_table(study)]
    if study.models:
        tables.append(teachers_table(study))
    if study.interactions:
        tables += [interactions_table(study), costs_table(study)]
    return tables


def shown(figure: Estimate, decimals: int = 3, seeds: int = 0) -> str:
    """`mean [low, high]`, thousands apart; the mean alone where it is known to rest on one seed."""
    if not figure.known:
        return NOTHING
    mean, low, high = (f"{value:,.{decimals}f}" for value in _no_negative_zero(figure, decimals))
    return mean if seeds == 1 else f"{mean} [{low}, {high}]"


def _no_negative_zero(figure: Estimate, decimals: int) -> list[float]:
    return [round(value, decimals) + 0.0 for value in (figure.mean, figure.low, figure.high)]


def setting(study: StudyRecords) -> str:
    """What the figures of a study rest on, in one sentence."""
    counts = seed_counts(study)
    runs = "1 seed, so no interval" if study.seeds == 1 else f"{study.seeds} seeds"
    if len(counts) > 1:
        runs = f"{counts[0]} to {counts[-1]} seeds, as each row says (one seed has no interval)"
    return (
        f"Task {study.label}, {runs}, {study.iterations:,} training iterations; expectation over teacher "
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


def _seeds_column(study: StudyRecords, query: str, teachers: Sequence[str]) -> tuple[str, ...]:
    """An entry with the number of seeds where not all cells have the same."""
    return (seeds_of(study, query, teachers),) if len(seed_counts(study)) > 1 else ()


def _seeds_heading(study: StudyRecords) -> tuple[str, ...]:
    return ("seeds",) if len(seed_counts(study)) > 1 else ()


_READ_INTERVALS = (
    "Each figure is the mean over seeds with its 95 % bootstrap interval [low, high]; of few seeds it is too "
    "narrow, and one seed has none."
)


def uncertainty_table(study: StudyRecords) -> Table:
    """Learned uncertainty beside its expectation and the paper's number, for every trainer."""
    notes = [
        setting(study),
        f"Unit: {study.unit}. Average over the steps of the last tenth of training. " + _READ_INTERVALS,
        "The trainer is the query policy that decided which steps the teachers labelled.",
        "The expectation is the uncertainty of a perfect copy of the teachers that acts by itself, computed from their "
        "true policies. An agent that was led by its teachers stands in other states: where the state tells who is "
        "teaching (bc and the like with twodifdetm), it is right to see less extrinsic uncertainty.",
    ]
    if study.estimates:
        notes.append(
            "As sampled: what the Monte Carlo estimator of this study shows for the same perfect copy on average. With "
            "few sampled identities, teachers who were not drawn cannot be seen to differ."
        )
    if _has_paper(study):
        notes.append(
            "Paper: Table 1 of the paper, which names neither its trainer nor its number of seeds. "
            f"{DIFFERS} marks a figure whose interval misses the paper's number, rounding allowed for."
        )
    if _has_paper(study) and len(seed_counts(study)) > 1:
        notes.append("Where there is one seed there is no interval and no mark.")
    blocks = tuple(_uncertainty_block(study, quantity) for quantity in ("intrinsic", "extrinsic"))
    return Table("table_uncertainty", f"Uncertainty learned from each teacher, {study.label}", tuple(notes), blocks)


def _has_paper(study: StudyRecords) -> bool:
    return any(teacher in study.printed for teacher in study.teachers)


def _uncertainty_block(study: StudyRecords, quantity: str) -> TableBlock:
    teachers = study.teachers
    seeds = _seeds_heading(study)
    none = tuple("" for _ in seeds)
    rows = [("expectation", *none, *(_expected(study, teacher, quantity) for teacher in teachers))]
    if study.estimates:
        sampled = (f"{study.estimates[name][quantity]:.3f}" for name in teachers)
        rows.append(("expectation, as sampled", *none, *sampled))
    if _has_paper(study):
        printed = (study.printed.get(teacher, {}).get(quantity) for teacher in teachers)
        rows.append(("paper", *none, *(NOTHING if number is None else f"{number:.2f}" for number in printed)))
    for query in study.queries:
        figures = (_compared(study, teacher, query, quantity) for teacher in teachers)
        rows.append((query, *_seeds_column(study, query, teachers), *figures))
    return TableBlock(
        f"{quantity.capitalize()} uncertainty ({study.unit})", ("trainer", *seeds, *teachers), tuple(rows)
    )


def _expected(study: StudyRecords, teacher: str, quantity: str) -> str:
    if teacher in study.expectations:
        return f"{study.expectations[teacher][quantity]:.3f}"
    return EXPECTED.get(teacher, {}).get(quantity, NOTHING)


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
        known = [study.cell(teacher, query).figure("intrinsic").known for teacher in teachers]
        if all(known):
            distance[query] = fmean(gap for teacher in teachers for gap in _gaps(study, teacher, query).values())
        misses = [", ".join(_misses(study, teacher, query)) or "agrees" for teacher in teachers]
        entries = (entry if there else NOTHING for entry, there in zip(misses, known, strict=True))
        rows.append((query, *_seeds_column(study, query, teachers), *entries))
    header = ("trainer", *_seeds_heading(study), *teachers)
    return TableBlock("Difference from the paper (bits)", header, tuple(rows)), distance


def _gaps(study: StudyRecords, teacher: str, query: str) -> dict[str, float]:
    """How far our mean is from each of the paper's numbers, without sign."""
    cell = study.cell(teacher, query)
    return {name: abs(cell.figure(name).mean - value) for name, value in study.printed[teacher].items()}


def _misses(study: StudyRecords, teacher: str, query: str) -> list[str]:
    cell = study.cell(teacher, query)
    found = [(quantity, printed, cell.figure(quantity)) for quantity, printed in study.printed[teacher].items()]
    return [f"{quantity} {ours.mean - printed:+.3f}" for quantity, printed, ours in found if differs(printed, ours)]


_QUERY_COLUMNS = (
    ("query_rate", "query rate, last tenth", 3),
    ("query_rate_first", "query rate, first tenth", 3),
    ("query_rate_total", "query rate, whole run", 3),
    ("query_rate_alone", "query rate, evaluation", 3),
    ("answers", "answers, whole run", 0),
    ("success_alone", "success alone", 3),
    ("success_with_help", "success with help", 3),
    ("success", "success in training, last tenth", 3),
)
"""Figure, heading and decimals."""


def queries_table(study: StudyRecords) -> Table:
    """How often each query policy asked, and what came of it, under each teacher."""
    columns = [column for column in _QUERY_COLUMNS if any(cell.figure(column[0]).known for cell in study.cells)]
    header = ("query policy", *_seeds_heading(study), *(heading for _, heading, _ in columns))
    blocks = []
    for teacher in study.teachers:
        rows = []
        for query in study.queries:
            cell = study.cell(teacher, query)
            figures = (shown(cell.figure(name), decimals, cell.seeds) for name, _, decimals in columns)
            rows.append((query, *_seeds_column(study, query, [teacher]), *figures))
        blocks.append(TableBlock(f"Teacher {teacher}", header, tuple(rows)))
    where = f", on {study.splits[0]}" if study.splits else ""
    notes = (
        setting(study),
        "Query rate: share of the steps at which the teachers were asked; in evaluation, at which they would have "
        f"been: the agent acts alone{where}. Answers: how many they gave in all.",
        "Success alone: share of evaluation episodes that end at the goal after training, with nobody to "
        "ask. Success in training: with the help that was asked for.",
        _READ_INTERVALS,
    )
    return Table("table_queries", f"Questions asked and success, {study.label}", notes, tuple(blocks))


def interactions_table(study: StudyRecords) -> Table:
    """What the interactions with the teachers bought, beside the baseline."""
    levels = list(study.interactions[0].needed)
    header = (
        "rule",
        "area under success",
        *(f"interactions to {level:.0%}" for level in levels),
        "success alone",
        f"better than {study.baseline}",
    )
    blocks = []
    for teacher in study.teachers:
        own = [entry for entry in study.interactions if entry.teacher == teacher]
        rows = [
            (
                entry.query,
                shown(entry.area),
                *(_needed(*entry.needed[level]) for level in levels),
                shown(entry.success_alone),
                shown(entry.improvement, 2) if entry.query != study.baseline else NOTHING,
            )
            for entry in own
        ]
        blocks.append(
            TableBlock(f"Teacher {teacher}, area over {own[0].area_to:,.0f} interactions", header, tuple(rows))
        )
    notes = (
        setting(study),
        "An interaction is one answered question. Area: mean success in training, with the help that was asked for, "
        "over so many interactions; a rule that asked fewer keeps its last success. Who asks at every step succeeds by "
        "its teacher's hand: compare rules that ask equally often, or success alone.",
        "Interactions to a level: used up when success in training first was there, over the runs that reached it; a "
        "share in round brackets says how many did, where not all.",
        "Area and success alone are interquartile means with 95 % bootstrap intervals.",
        f"Better than {study.baseline}: the probability that a run of the rule has a higher success alone than a run "
        f"of {study.baseline}; 0.5 is no difference.",
    )
    return Table("table_interactions", f"What the answers bought, {study.label}", notes, tuple(blocks))


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
            rows = [
                (
                    entry.query,
                    *(
                        shown(of[m], decimals)
                        for m in members
                        for of, decimals in ((entry.answers, 0), (entry.cost, 1))
                    ),
                    shown(entry.total_cost, 1),
                )
                for entry in own
            ]
            blocks.append(TableBlock(f"Teacher {teacher}", header, tuple(rows)))
    notes = (
        setting(study),
        "Answers over the whole training, and what they cost at the study's prices.",
        _READ_INTERVALS,
    )
    return Table("table_costs", f"Cost by teacher, {study.label}", notes, tuple(blocks))


_MODEL_COLUMNS: tuple[tuple[str, Callable[[TeacherModel], float]], ...] = (
    ("between members (bits)", lambda model: model.persona_js),
    ("agent to committee (bits)", lambda model: model.mixture_js),
    ("identity error", lambda model: model.identity_calibration_error),
)


def teachers_table(study: StudyRecords) -> Table:
    """Are my teachers the same teacher, and does the agent know them?"""
    notes = (
        setting(study),
        "Between members: divergence between the behaviours that the agent learned for the members of a "
        "committee. Near 0: to the agent they are one teacher. For a single teacher there is none.",
        "Agent to committee: divergence between what the agent would do and what the committee as a whole "
        "would do. Near 0: the agent copies them well.",
        "Identity error: distance between the chance the agent gives each member and the true chance. "
        "Near 0: the agent knows who is likely to answer.",
        "Divergences are Jensen-Shannon, in bits, from 0 (the same) to 1 (nothing in common). " + _READ_INTERVALS,
    )
    blocks = tuple(_teacher_block(study, teacher) for teacher in in_order(model.teacher for model in study.models))
    title = f"Are the teachers the same teacher, and does the agent know them? ({study.label})"
    return Table("table_teachers", title, notes, blocks)


def _teacher_block(study: StudyRecords, teacher: str) -> TableBlock:
    models = [model for model in study.models if model.teacher == teacher]
    header = ("query policy", *_seeds_heading(study), *(heading for heading, _ in _MODEL_COLUMNS))
    rows = []
    for query in in_order(model.query for model in models):
        runs = [model for model in models if model.query == query]
        figures = (shown(over_runs(runs, figure), seeds=len(runs)) for _, figure in _MODEL_COLUMNS)
        rows.append((query, *_seeds_column(study, query, [teacher]), *figures))
    return TableBlock(f"Teacher {teacher}: {_members(study, models)}", header, tuple(rows))


def _members(study: StudyRecords, models: Sequence[TeacherModel]) -> str:
    """Who the members of a teacher are."""
    members = models[0].members
    if len(members) == 1:
        return f"a single teacher ({members[0]})"
    return f"{len(members)} members ({', '.join(members)}){members_truth(study, models[0].teacher)}"


def members_truth(study: StudyRecords, teacher: str) -> str:
    """Whether the members of a committee really differ, from the extrinsic uncertainty of a perfect copy."""
    extrinsic = study.expectations.get(teacher, {}).get("extrinsic")
    if extrinsic is None:
        return ""
    return "; in truth they differ" if extrinsic > 0 else "; in truth they are the same"


def over_runs(runs: Iterable[TeacherModel], figure: Callable[[TeacherModel], float]) -> Estimate:
    """Mean and interval of one figure over the runs of a cell."""
    return estimate([figure(run) for run in runs])
