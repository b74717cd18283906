"""The first screen of a report: one figure, three sentences and a small table, from the records alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from apil.studies.figures import LEADING, RATES
from apil.studies.findings import all_succeed, misled_rules
from apil.studies.records import At, StudyRecords
from apil.studies.tables import FEWER, NOTHING, seed_counts
from apil.studies.text import spelled

Value = tuple[str, str]
"""What stands in a place of the table, and below it in small letters."""


@dataclass(frozen=True)
class Headline:
    """What a reader sees first."""

    figure: str
    """The name of the figure among those of the report, by preference; empty for the first."""
    sentences: tuple[str, ...]
    caption: str
    """Of the table."""
    header: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Value, ...]], ...]


def headline(study: StudyRecords, figures: Sequence[str]) -> Headline:
    """The headline of a study whose report has these figures."""
    if study.points:
        return _at_equal_answers(study, figures)
    sentences = _succeeds(study) if all_succeed(study) else _differ(study)
    preferred = (RATES, *LEADING) if all_succeed(study) else LEADING
    return Headline(
        next((name for name in preferred if name in figures), ""),
        tuple(sentence for sentence in (*sentences, _rests_on(study)) if sentence)[:3],
        "Success alone after training; below it the answers used",
        _header(study),
        tuple(
            (spelled(query), tuple(_with_answers(study, name, query) for name in study.teachers))
            for query in study.queries
        ),
    )


def _header(study: StudyRecords) -> tuple[str, ...]:
    return ("rule", *map(spelled, study.teachers))


def _with_answers(study: StudyRecords, teacher: str, query: str) -> Value:
    cell = study.cell(teacher, query)
    success, answers = cell.figure("success_alone"), cell.figure("answers")
    below = f"{answers.mean:,.0f}" if answers.known else ""
    return (f"{success.mean:.3f}" if success.known else NOTHING, below)


def _rests_on(study: StudyRecords) -> str:
    counts = seed_counts(study) or [study.seeds]
    seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return (
        "One seed: there is no interval."
        if counts == [1]
        else f"Means of {seeds} seeds; the tables have 95 % intervals."
    )


def _span(values: Sequence[float], digits: int = 1) -> str:
    """Percentages from the lowest to the highest."""
    low, high = (f"{100 * value:.{digits}f}" for value in (min(values), max(values)))
    return f"{low} %" if low == high else f"{low} to {high} %"


def _values(study: StudyRecords, query: str, figure: str) -> list[float]:
    found = (study.cell(teacher, query).figure(figure) for teacher in study.teachers)
    return [each.mean for each in found if each.known]


def _shares(study: StudyRecords, query: str) -> list[float]:
    """The answers of a rule over those of DAgger, by teacher."""
    pairs = [
        (study.cell(name, query).figure("answers"), study.cell(name, "dagger").figure("answers"))
        for name in study.teachers
    ]
    return [ours.mean / every.mean for ours, every in pairs if ours.known and every.known and every.mean > 0]


def _succeeds(study: StudyRecords) -> list[str]:
    shares = _shares(study, "apil")
    saved = f"APIL needs {_span(shares)} of DAgger's answers." if shares else ""
    misled = [spelled(query) for query in misled_rules(study)]
    keep = f"With teachers who vary or differ, these rules keep asking more than with Detm: {', '.join(misled)}."
    return [all_succeed(study), saved, keep if misled else ""]


def _differ(study: StudyRecords) -> list[str]:
    known = [query for query in study.queries if _values(study, query, "success_alone")]
    order: list[str] = [query for query in ("apil", "dagger", "random") if query in known]
    if "apil" not in known:
        order = sorted(known, key=lambda query: -fmean(_values(study, query, "success_alone")))[:2]
    said: list[str] = []
    for query in order:
        shares, success = _shares(study, query), _span(_values(study, query, "success_alone"))
        paid = f" and used {_span(shares)} of DAgger's answers" if shares and query != "dagger" else ""
        agent = "The agent trained" if not said else "One trained"
        said.append(f"{agent} with {spelled(query)} succeeds alone in {success} of the episodes{paid}.")
    return said


def _at_equal_answers(study: StudyRecords, figures: Sequence[str]) -> Headline:
    point = study.points[len(study.points) // 2]
    at = {query: _at(study, query, point) for query in study.queries}
    return Headline(
        next((name for name in LEADING if name in figures), ""),
        tuple(filter(None, (_best(study, at, point), _beside_baseline(study), _rests_on(study)))),
        f"Success alone with {point:,} answers",
        _header(study),
        tuple((spelled(query), tuple(_entry(study, found) for found in at[query])) for query in study.queries),
    )


def _at(study: StudyRecords, query: str, point: int) -> list[At | None]:
    """What a rule reaches with so many answers, by teacher; one that never asks has the same with any number."""
    cells = (study.cell(teacher, query) for teacher in study.teachers)
    return [next((at for at in cell.at if at.answers in (0, point)), None) for cell in cells]


def _entry(study: StudyRecords, at: At | None) -> Value:
    if at is None or not at.success_alone.known:
        return NOTHING, ""
    figure, fewer = at.success_alone, f" {FEWER}" if at.asked_fewer else ""
    below = "" if study.seeds == 1 else f"[{figure.low:.3f}, {figure.high:.3f}]"
    return f"{figure.mean:.3f}{fewer}", below


def _best(study: StudyRecords, at: dict[str, list[At | None]], point: int) -> str:
    """The rule with the highest mean over teachers, beside the baseline."""
    means = {
        query: fmean(each.success_alone.mean for each in found if each is not None)
        for query, found in at.items()
        if found and all(each is not None and each.success_alone.known for each in found)
    }
    if not means:
        return ""
    best = max(means, key=lambda query: means[query])
    level = [query for query in means if round(means[query], 3) == round(means[best], 3)]
    over = "" if len(study.teachers) == 1 else f", the mean over {len(study.teachers)} teachers"
    base = study.baseline
    beside = f"; {spelled(base)} succeeds in {_span([means[base]])}" if base in means and base != best else ""
    reached = f"{_span([means[best]])} of the episodes{over}"
    if len(level) > 1:
        several = "every rule that asks" if {*means} - {*level} <= {"never"} else ""
        names = several or f"{', '.join(map(spelled, level[:-1]))} and {spelled(level[-1])}"
        return f"With {point:,} answers {names} succeed{'s' if several else ''} alone in {reached}."
    return f"With {point:,} answers {spelled(best)} succeeds alone in {reached}{beside}."


def _beside_baseline(study: StudyRecords) -> str:
    """How often each notable rule is above or below the baseline, over teachers and numbers of answers."""
    query = "apil" if "apil" in study.queries and study.baseline != "apil" else ""
    if not query:
        return ""
    found = [at.difference for teacher in study.teachers for at in study.cell(teacher, query).at if at.difference.known]
    above, below = sum(each.low > 0 for each in found), sum(each.high < 0 for each in found)
    if not found:
        return ""
    base, places = spelled(study.baseline), "the one comparison" if len(found) == 1 else f"all {len(found)} comparisons"
    if not above + below:
        where = "the one comparison" if len(found) == 1 else f"any of {len(found)} comparisons"
        return f"With as many answers APIL does not differ from {base} in {where}: every interval includes 0."
    for count, where in ((above, "above"), (below, "below")):
        if count == len(found):
            return f"With as many answers APIL is {where} {base} in {places} (teachers and numbers of answers)."
    return (
        f"With as many answers APIL is above {base} in {above} of {len(found)} comparisons (teachers and numbers of "
        f"answers) and below it in {below}{'' if above + below == len(found) else '; the other intervals include 0'}."
    )
