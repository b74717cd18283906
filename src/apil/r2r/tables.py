"""The tables of a study of R2R: beside the paper's second table, every measure, the ceiling, APIL against DAgger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean

from apil.r2r.paper import printed_results
from apil.studies.records import CellResult, Look, RunResult, StudyRecords
from apil.studies.statistics import Estimate, student_half_width
from apil.studies.tables import NOTHING, Table, TableBlock, explained, seeds_of, setting, shown
from apil.studies.text import spelled, texts

_TEXTS = texts("tables.toml", "apil.r2r")


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
    in_training = "Query rate in training, last tenth (%): with the help asked for"
    blocks = (
        _second_table(study, main),
        _by_query(study, f"Query rate on {main} (%)", lambda cell: percent(cell, cell.measure(main, "query_rate"))),
        _by_query(study, in_training, lambda cell: percent(cell, cell.figure("query_rate"))),
    )
    beside = " beside the paper's Table 2" if printed else ""
    last = _TEXTS["table_r2r"]["paper" if printed else "other_data"]
    return explained("table_r2r", setting(study), blocks, [last], _TEXTS, study=study, main=main, beside=beside)


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


def above_paper(study: StudyRecords, cell: CellResult) -> float | None:
    """Success alone minus the paper's, in points; None where one of them is missing."""
    ours = cell.measure(study.splits[0], "success_alone")
    theirs = printed_results(study).get(cell.query, {}).get(cell.teacher)
    return 100 * ours.mean - theirs.success if theirs is not None and ours.known else None


def differences_from_paper(study: StudyRecords) -> list[Table]:
    """Our success alone minus the paper's, in points; nothing where the paper has none of the policies."""
    queries = [query for query in study.queries if study.splits and query in printed_results(study)]
    if not queries:
        return []

    def difference(cell: CellResult) -> str:
        gap = above_paper(study, cell)
        return NOTHING if gap is None else f"{gap:+.1f}"

    heading = f"Success alone on {study.splits[0]} minus the paper's on test (points)"
    block = _by_query(study, heading, difference, queries)
    return [explained("table_difference", _TEXTS["table_difference"]["first"], [block], said=_TEXTS)]


def navigation_table(study: StudyRecords) -> Table:
    """Every measure on every split."""
    columns, blocks = _TEXTS["table_navigation"]["columns"], []
    header = ("query policy", "seeds", *(heading for _, heading, _, _ in columns))
    for split, teacher in product(study.splits, study.teachers):
        rows = []
        for cell in (study.cell(teacher, query) for query in study.queries):
            if cell.splits:
                entries = (percent(cell, cell.measure(split, name), digits, by) for name, _, digits, by in columns)
                rows.append((cell.query, str(cell.seeds), *entries))
        blocks.append(TableBlock(f"{split}, teacher {spelled(teacher)}", header, tuple(rows)))
    return explained("table_navigation", setting(study), blocks, said=_TEXTS, study=study)


def ceiling_table(study: StudyRecords) -> Table:
    """What the teachers themselves reach."""
    split = study.splits[0]
    found = {entry.teacher: entry for entry in study.ceiling}
    known = [found[name] for name in study.teachers if name in found]
    rows = tuple((entry.teacher, f"{100 * entry.success:.1f}", f"{entry.final_distance:.2f}") for entry in known)
    header = ("teacher", "success (%)", "final distance (m)")
    block = TableBlock(f"Teachers followed at every step, {split}", header, rows)
    first = _TEXTS["table_ceiling"]["first"].format(split=split)
    return explained("table_ceiling", first, [block], said=_TEXTS, study=study)


def both_ways(study: StudyRecords) -> list[str]:
    """The teachers of whom there are runs of both APIL and DAgger with a seed in common."""
    return [teacher for teacher in study.teachers if paired(study, teacher)]


def paired(study: StudyRecords, teacher: str) -> list[tuple[RunResult, RunResult]]:
    """APIL's and DAgger's runs with the same seed."""
    apil, dagger = (
        {run.seed: run for run in study.runs if (run.teacher, run.query) == (teacher, query)}
        for query in ("apil", "dagger")
    )
    return [(apil[seed], dagger[seed]) for seed in sorted(apil.keys() & dagger.keys())]


def differences(study: StudyRecords, teacher: str, split: str) -> dict[int, float]:
    """APIL's success alone minus DAgger's, in points, by seed."""
    return {
        ours.seed: 100 * (ours.splits[split]["success_alone"] - every.splits[split]["success_alone"])
        for ours, every in paired(study, teacher)
    }


def answers_share(study: StudyRecords, teacher: str) -> float:
    """The answers that APIL used in its whole training over those of DAgger, over common seeds."""
    pairs = paired(study, teacher)
    return sum(ours.answers for ours, _ in pairs) / sum(every.answers for _, every in pairs)


def paired_table(study: StudyRecords) -> Table:
    """APIL against DAgger, seed by seed."""
    blocks = [_paired_block(study, split) for split in study.splits]
    blocks += [_answers_block(study), *_reached_blocks(study)]
    return explained("table_paired", setting(study), blocks, said=_TEXTS, study=study)


def look_to_reach(ours: RunResult, every: RunResult, share: float = 0.95) -> Look | None:
    """The first look of `ours` with at least this share of the success at the last look of `every`."""
    if not (ours.looks and every.looks):
        return None
    wanted = share * every.looks[-1].success
    return next((look for look in ours.looks if look.success >= wanted), None)


def _reached_blocks(study: StudyRecords) -> list[TableBlock]:
    """Answers that APIL needed to come near DAgger, beside DAgger's own; none where nobody looked."""
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
    header = tuple(_TEXTS["table_paired"]["reached"])
    heading = "Answers to 95 % of DAgger's success on val_seen"
    return [TableBlock(heading, header, tuple(rows))] if rows else []


def _paired_block(study: StudyRecords, split: str) -> TableBlock:
    gaps = {teacher: differences(study, teacher, split) for teacher in both_ways(study)}
    if len(gaps) > 1 and (seeds := set.intersection(*map(set, gaps.values()))):
        gaps["all"] = {seed: fmean(of[seed] for of in gaps.values()) for seed in sorted(seeds)}
    rows = []
    for name, of in gaps.items():
        found, mean = list(of.values()), fmean(of.values())
        half = student_half_width(found) if len(found) > 1 else 0.0
        interval = f"{mean - half:+.1f} to {mean + half:+.1f}" if len(found) > 1 else NOTHING
        each = ", ".join(f"{value:+.1f}" for value in found)
        rows.append((name, str(len(found)), f"{mean:+.1f}", interval, each))
    header = tuple(_TEXTS["table_paired"]["differences"])
    return TableBlock(f"Success alone on {split}, APIL minus DAgger (points)", header, tuple(rows))


def _answers_block(study: StudyRecords) -> TableBlock:
    main, rows = study.splits[0], []
    for teacher in both_ways(study):
        both = list(zip(*paired(study, teacher), strict=True))
        means = [f"{fmean(run.answers for run in runs):,.0f}" for runs in both]
        success = [f"{100 * fmean(run.splits[main]['success_alone'] for run in runs):.1f}" for runs in both]
        rows.append((teacher, str(len(both[0])), *means, f"{100 * answers_share(study, teacher):.1f}", *success))
    header = tuple(heading.format(main=main) for heading in _TEXTS["table_paired"]["answers"])
    return TableBlock("Answers in the whole training", header, tuple(rows))
