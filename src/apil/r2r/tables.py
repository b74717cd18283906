"""The tables of a study of R2R: beside the paper's second table, every measure, the ceiling, APIL against DAGGER."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

from apil.r2r.paper import printed_results
from apil.studies.records import CellResult, Look, RunResult, StudyRecords
from apil.studies.statistics import Estimate, student_half_width
from apil.studies.tables import NOTHING, Table, TableBlock, seeds_of, setting, shown

_INTERVALS = (
    "Each figure is the mean over seeds with its 95 % bootstrap interval [low, high]; a figure of one seed has "
    "none. Of three seeds that interval is from the smallest to the largest, and holds the true mean in about three "
    "of four cases."
)
_PAPER_NUMBERS = (
    "Paper: its Table 2, on the R2R test split, whose goals are not public; ours are on val_unseen, houses that were "
    "not trained on either. The paper's success is read as that of the agent alone: with the 100 % query rate that it "
    "prints for BC and DAGGER, help would have led to nearly every goal. Its query rate is the share of steps at which "
    "the query rule fires on the test split."
)

_OTHER_DATA = "Not the public data of R2R: nothing here compares with the paper's numbers."


def r2r_tables(study: StudyRecords) -> list[Table]:
    """The tables that a study of R2R has beside those of every study."""
    if not study.splits:
        return []
    tables = [results_table(study), navigation_table(study)]
    if study.ceiling:
        tables.append(ceiling_table(study))
    if both_ways(study):
        tables.append(paired_table(study))
    return tables


def percent(cell: CellResult, fraction: Estimate, decimals: int = 1, factor: float = 100.0) -> str:
    """A figure of a cell, as tables show it: in percent, or times another factor."""
    scaled = Estimate(factor * fraction.mean, factor * fraction.low, factor * fraction.high)
    return shown(scaled, decimals, cell.seeds)


def _by_query(
    study: StudyRecords, heading: str, entry: Callable[[CellResult], str], queries: Sequence[str] = ()
) -> TableBlock:
    """A row for each query policy, or for some of them, and an entry for each teacher."""
    rows = [
        (query, seeds_of(study, query, study.teachers), *(entry(study.cell(name, query)) for name in study.teachers))
        for query in queries or study.queries
    ]
    return TableBlock(heading, ("query policy", "seeds", *study.teachers), tuple(rows))


def results_table(study: StudyRecords) -> Table:
    """The paper's second table: query policies by teachers, ours above the paper's."""
    main, printed = study.splits[0], printed_results(study)
    notes = (
        setting(study),
        f"An entry is success alone on {main} / query rate on {main}, both in percent; the interval is that of "
        f"success. {_INTERVALS}",
        "Query rate: share of the steps at which the query policy fires while the agent walks alone. With one teacher "
        "behvun is intrun, and one run serves both.",
        _PAPER_NUMBERS if printed else _OTHER_DATA,
    )
    in_training = "Query rate in training, last tenth (%): with the help asked for"
    blocks = (
        _second_table(study, main),
        _by_query(study, f"Query rate on {main} (%)", lambda cell: percent(cell, cell.measure(main, "query_rate"))),
        _by_query(study, in_training, lambda cell: percent(cell, cell.figure("query_rate"))),
    )
    beside = " beside the paper's Table 2" if printed else ""
    return Table("table_r2r", f"Success and query rate{beside}, {study.label}", notes, blocks)


def _second_table(study: StudyRecords, split: str) -> TableBlock:
    def pair(cell: CellResult) -> str:
        success, rate = cell.measure(split, "success_alone"), cell.measure(split, "query_rate")
        return f"{percent(cell, success)} / {100 * rate.mean:.1f}" if success.known else NOTHING

    heading = f"Success alone on {split} / query rate on {split} (%)"
    ours, printed, rows = _by_query(study, heading, pair), printed_results(study), []
    for query, row in zip(study.queries, ours.rows, strict=True):
        rows.append(row)
        if query in printed:
            results = [printed[query].get(teacher) for teacher in study.teachers]
            entries = [f"{result.success:.1f} / {result.query_rate:.1f}" if result else NOTHING for result in results]
            rows.append((f"{query}, paper", "", *entries))
    return replace(ours, rows=tuple(rows))


def differences_from_paper(study: StudyRecords) -> list[Table]:
    """Our success alone minus the paper's, in points; nothing where the paper has none of the policies."""
    printed = printed_results(study)
    queries = [query for query in study.queries if study.splits and query in printed]
    if not queries:
        return []
    split = study.splits[0]

    def difference(cell: CellResult) -> str:
        ours, theirs = cell.measure(split, "success_alone"), printed[cell.query].get(cell.teacher)
        return f"{100 * ours.mean - theirs.success:+.1f}" if theirs is not None and ours.known else NOTHING

    block = _by_query(study, f"Success alone on {split} minus the paper's on test (points)", difference, queries)
    note = (
        "Success of the agent alone against Table 2 of the paper, which is on the test split, whose goals are not "
        "public, and does not say how many runs it rests on. Both numbers are in the first table below."
    )
    return [Table("table_difference", "Success beside the paper's Table 2", (note,), (block,))]


_MEASURES = (
    ("success_alone", "success alone (%)", 1, 100.0),
    ("success_with_help", "success with help (%)", 1, 100.0),
    ("oracle_success", "oracle success (%)", 1, 100.0),
    ("spl", "SPL", 3, 1.0),
    ("ndtw", "nDTW", 3, 1.0),
    ("navigation_error", "navigation error (m)", 2, 1.0),
    ("path_length", "path length (m)", 2, 1.0),
    ("query_rate", "query rate, alone (%)", 1, 100.0),
    ("query_rate_with_help", "query rate, with help (%)", 1, 100.0),
)
"""Name, heading, digits and factor."""


def navigation_table(study: StudyRecords) -> Table:
    """Every measure on every split."""
    notes = (
        setting(study),
        "Alone, nobody is asked; with help the teacher's action is executed wherever the query policy fires. All "
        "measures but those with help are of the agent alone.",
        "Success: the walk ends within 3 m of the goal. Oracle success: it ever comes that near. SPL: success weighted "
        "by the shortest length over the length walked. nDTW: likeness to the annotated path, 1 is the same. "
        "Navigation error: metres from the end to the goal along the shortest path. Query rate: share of the steps at "
        "which the query policy fires; alone it fires and nobody answers.",
        _INTERVALS,
    )
    blocks = tuple(_measures(study, split, teacher) for split in study.splits for teacher in study.teachers)
    return Table("table_navigation", f"Every measure of navigation, {study.label}", notes, blocks)


def _measures(study: StudyRecords, split: str, teacher: str) -> TableBlock:
    rows = []
    for cell in (study.cell(teacher, query) for query in study.queries):
        if cell.splits:
            entries = (percent(cell, cell.measure(split, name), digits, by) for name, _, digits, by in _MEASURES)
            rows.append((cell.query, str(cell.seeds), *entries))
    header = ("query policy", "seeds", *(heading for _, heading, _, _ in _MEASURES))
    return TableBlock(f"{split}, teacher {teacher}", header, tuple(rows))


def ceiling_table(study: StudyRecords) -> Table:
    """What the teachers themselves reach."""
    split = study.splits[0]
    notes = (
        f"Each teacher is followed at every step of every episode of {split}: its own success and final "
        "distance, which bounds what can be learned from it.",
        "One pass over the split, nothing is learned: there are no seeds to average over.",
    )
    found = {entry.teacher: entry for entry in study.ceiling}
    known = [found[name] for name in study.teachers if name in found]
    rows = tuple((entry.teacher, f"{100 * entry.success:.1f}", f"{entry.final_distance:.2f}") for entry in known)
    header = ("teacher", "success (%)", "final distance (m)")
    block = TableBlock(f"Teachers followed at every step, {split}", header, rows)
    return Table("table_ceiling", f"The ceiling: what the teachers themselves reach, {study.label}", notes, (block,))


def both_ways(study: StudyRecords) -> list[str]:
    """The teachers of whom there are runs of both APIL and DAGGER with a seed in common."""
    return [teacher for teacher in study.teachers if paired(study, teacher)]


def paired(study: StudyRecords, teacher: str) -> list[tuple[RunResult, RunResult]]:
    """APIL's and DAGGER's runs with the same seed."""
    apil, dagger = (
        {run.seed: run for run in study.runs if (run.teacher, run.query) == (teacher, query)}
        for query in ("apil", "dagger")
    )
    return [(apil[seed], dagger[seed]) for seed in sorted(apil.keys() & dagger.keys())]


def differences(study: StudyRecords, teacher: str, split: str) -> dict[int, float]:
    """APIL's success alone minus DAGGER's, in points, by seed."""
    return {
        ours.seed: 100 * (ours.splits[split]["success_alone"] - every.splits[split]["success_alone"])
        for ours, every in paired(study, teacher)
    }


def answers_share(study: StudyRecords, teacher: str) -> float:
    """The answers that APIL used in its whole training over those of DAGGER, over common seeds."""
    pairs = paired(study, teacher)
    return sum(ours.answers for ours, _ in pairs) / sum(every.answers for _, every in pairs)


def paired_table(study: StudyRecords) -> Table:
    """APIL against DAGGER, seed by seed."""
    notes = (
        setting(study),
        "Runs with the same seed start from the same weights and see the same episodes in the same order. A "
        "difference is APIL's success alone minus DAGGER's, in points; the interval is Student's over seeds. All: "
        "the mean over the teachers, seed by seed.",
        "Answers: how many the teachers gave in the whole training. DAGGER asks at every step of its own walks.",
        "Answers to 95 %: the first of ten looks in training, each at the first 500 episodes of val_seen, at which "
        "success alone was at least 95 % of that at DAGGER's last look with the same seed. The first share is of the "
        "answers that DAGGER itself needed to get there, the second of all its answers. A look at 500 "
        "episodes has a standard error of about 2 points. A run that never got there is left out of the means.",
    )
    blocks = [_paired_block(study, split) for split in study.splits]
    blocks += [_answers_block(study), *_reached_blocks(study)]
    return Table("table_paired", f"APIL against DAGGER, {study.label}", notes, tuple(blocks))


def look_to_reach(ours: RunResult, every: RunResult, share: float = 0.95) -> Look | None:
    """The first look of `ours` with at least this share of the success at the last look of `every`."""
    if not (ours.looks and every.looks):
        return None
    wanted = share * every.looks[-1].success
    return next((look for look in ours.looks if look.success >= wanted), None)


def _reached_blocks(study: StudyRecords) -> list[TableBlock]:
    """Answers that APIL needed to come near DAGGER, beside DAGGER's own; none where nobody looked."""
    rows = []
    for teacher in both_ways(study):
        pairs = [(ours, every) for ours, every in paired(study, teacher) if ours.looks and every.looks]
        found = [(look_to_reach(ours, every), look_to_reach(every, every), every.answers) for ours, every in pairs]
        known = [(ours, every, total) for ours, every, total in found if ours is not None and every is not None]
        counts = zip(*((a.answers, b.answers, a.iteration, b.iteration) for a, b, _ in known), strict=True)
        shares = zip(*((a.answers / b.answers, a.answers / total) for a, b, total in known), strict=True)
        entries = [f"{fmean(each):,.0f}" for each in counts] + [f"{100 * fmean(each):.1f}" for each in shares]
        if pairs:
            rows.append((teacher, f"{len(known)} of {len(pairs)}", *(entries or [NOTHING] * 6)))
    header = (
        "teacher | seeds that got there | answers, apil | answers, dagger | iterations, apil | iterations, dagger | "
        "apil's share of these answers (%) | of all dagger's (%)"
    )
    heading = "Answers to 95 % of DAGGER's success on val_seen"
    return [TableBlock(heading, tuple(header.split(" | ")), tuple(rows))] if rows else []


def _paired_block(study: StudyRecords, split: str) -> TableBlock:
    gaps = {teacher: differences(study, teacher, split) for teacher in both_ways(study)}
    if len(gaps) > 1 and (seeds := set.intersection(*map(set, gaps.values()))):
        gaps["all"] = {seed: fmean(of[seed] for of in gaps.values()) for seed in sorted(seeds)}
    rows = tuple((name, *_over_common_seeds(list(of.values()))) for name, of in gaps.items())
    header = ("teacher", "common seeds", "mean", "95 % interval", "each seed")
    return TableBlock(f"Success alone on {split}, APIL minus DAGGER (points)", header, rows)


def _over_common_seeds(found: Sequence[float]) -> tuple[str, ...]:
    """How many, their mean, its 95 % interval by Student's distribution (none of one value), and each of them."""
    mean, each = fmean(found), ", ".join(f"{value:+.1f}" for value in found)
    half = student_half_width(found) if len(found) > 1 else 0.0
    interval = f"{mean - half:+.1f} to {mean + half:+.1f}" if len(found) > 1 else NOTHING
    return str(len(found)), f"{mean:+.1f}", interval, each


def _answers_block(study: StudyRecords) -> TableBlock:
    main, rows = study.splits[0], []
    for teacher in both_ways(study):
        both = list(zip(*paired(study, teacher), strict=True))
        means = [f"{fmean(run.answers for run in runs):,.0f}" for runs in both]
        success = [f"{100 * fmean(run.splits[main]['success_alone'] for run in runs):.1f}" for runs in both]
        rows.append((teacher, str(len(both[0])), *means, f"{100 * answers_share(study, teacher):.1f}", *success))
    header = (
        "teacher | common seeds | answers, apil | answers, dagger | apil's share (%) | "
        f"success alone on {main}, apil (%) | dagger (%)"
    )
    return TableBlock("Answers in the whole training", tuple(header.split(" | ")), tuple(rows))
