"""What the figures of a study say, in sentences computed from its records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from apil.studies.extras import NO_EXTRAS, Extras
from apil.studies.records import CellResult, StudyRecords, in_order
from apil.studies.statistics import UNKNOWN, Estimate, estimate
from apil.studies.tables import members_truth, shown
from apil.studies.text import spelled

_NO_RULE = ("bc", "dagger", "random", "never")
"""Policies whose questions do not depend on what was learned."""


def findings(study: StudyRecords, extras: Extras = NO_EXTRAS) -> list[str]:
    """The main results as sentences, each computed from the records."""
    own = at_equal_answers if study.points else extras.findings or _general
    apart = (_members_apart(study, teacher) for teacher in study.teachers)
    return [sentence for sentence in (*own(study), *apart) if sentence]


def at_equal_answers(study: StudyRecords) -> list[str]:
    """Which rules reach more or less than the baseline with as many answers, for each teacher."""
    sentences = []
    for teacher in study.teachers:
        cells = [study.cell(teacher, query) for query in study.queries]
        at = {(cell.query, entry.answers): entry.difference for cell in cells for entry in cell.at}
        more, less = (
            [
                f"{spelled(query)} (with {', '.join(f'{point:,}' for point in points)})"
                for query in study.queries
                if (points := [p for p in study.points if sign * _nearer(at.get((query, p), UNKNOWN), sign) > 0])
            ]
            for sign in (1, -1)
        )
        if not any(figure.known for figure in at.values()):
            continue
        found = "; ".join(
            f"{word} success alone than {spelled(study.baseline)} with as many answers: {', '.join(named)}"
            for word, named in (("higher", more), ("lower", less))
            if named
        )
        none = f"no rule differs from {spelled(study.baseline)} with as many answers (every interval includes 0)"
        sentences.append(f"{spelled(teacher)}: {found or none}.")
    return sentences


def _nearer(figure: Estimate, sign: int) -> float:
    """The end of an interval that is nearer to what lies on the other side."""
    return figure.low if sign > 0 else figure.high


def _general(study: StudyRecords) -> list[str]:
    sentences = [all_succeed(study)]
    for teacher in study.teachers:
        cells = [study.cell(teacher, query) for query in study.queries]
        sentences += [_asks_least(teacher, cells), _cheapest_of_best(teacher, cells), _saved(study, teacher)]
    return sentences + [_misled(study, query, teachers) for query, teachers in misled_rules(study).items()]


def _known(cells: Iterable[CellResult], figure: str) -> list[CellResult]:
    """The cells that have this figure, except those that never asked: they learned nothing."""
    return [c for c in cells if c.query != "never" and c.figure(figure).known and c.figure("answers").mean != 0]


def all_succeed(study: StudyRecords) -> str:
    """A sentence saying that success does not distinguish rules here; empty where it does."""
    alone = [cell.figure("success_alone") for cell in study.cells]
    if not alone or not all(figure.low >= 1.0 for figure in alone):
        return ""
    silent = ", even one that never asked," if "never" in study.queries else ""
    return (
        f"Every agent{silent} reaches the goal alone in every evaluation episode: on this task, query policies "
        "differ only in how many questions they ask."
    )


def _asks_least(teacher: str, cells: Sequence[CellResult]) -> str:
    asking = sorted(_known(cells, "query_rate"), key=lambda cell: cell.figure("query_rate").mean)
    if len(asking) < 2:
        return ""
    least, rate = asking[0], asking[0].figure("query_rate")
    equals = [spelled(cell.query) for cell in asking[1:] if cell.figure("query_rate").overlaps(rate)]
    tie = f" The intervals of {', '.join(equals)} overlap with it." if equals else ""
    return (
        f"{spelled(teacher)}: at the end of training {spelled(least.query)} asks least, at {shown(rate)} of the steps "
        f"(success alone {shown(least.figure('success_alone'))}).{tie}"
    )


def _cheapest_of_best(teacher: str, cells: Sequence[CellResult]) -> str:
    able = [cell for cell in _known(cells, "success_alone") if cell.figure("answers").known]
    if len(able) < 2 or all(cell.figure("success_alone").low >= 1.0 for cell in able):
        return ""
    best = max(able, key=lambda cell: cell.figure("success_alone").mean)
    success = best.figure("success_alone")
    equals = [cell for cell in able if cell.figure("success_alone").overlaps(success)]
    cheapest = min(equals, key=lambda cell: cell.figure("answers").mean)
    answers = shown(best.figure("answers"), 0)
    start = (
        f"{spelled(teacher)}: the best success alone is {shown(success)} ({spelled(best.query)}, {answers} answers)."
    )
    if cheapest is best:
        return f"{start} No policy with an overlapping interval used fewer answers."
    return (
        f"{start} Of the policies whose intervals overlap with it, {spelled(cheapest.query)} used the fewest answers: "
        f"{shown(cheapest.figure('answers'), 0)}, success alone {shown(cheapest.figure('success_alone'))}."
    )


def _saved(study: StudyRecords, teacher: str) -> str:
    """What APIL pays and gets, against asking at every step."""
    ours, every = study.cell(teacher, "apil"), study.cell(teacher, "dagger")
    if not (ours.figure("answers").known and every.figure("answers").mean > 0):
        return ""
    share = ours.figure("answers").mean / every.figure("answers").mean
    return (
        f"{spelled(teacher)}: APIL used {100 * share:.1f} % of DAgger's answers; success alone "
        f"{shown(ours.figure('success_alone'))} against {shown(every.figure('success_alone'))}."
    )


def misled_rules(study: StudyRecords) -> dict[str, list[str]]:
    """The rules that end up asking more under some teachers than under the single, consistent one, and those."""
    found = {}
    for query in study.queries:
        base = study.cell("detm", query).figure("query_rate")
        rates = {teacher: study.cell(teacher, query).figure("query_rate") for teacher in study.teachers}
        more = [teacher for teacher, rate in rates.items() if base.known and rate.low > base.high]
        if more and query not in _NO_RULE:
            found[query] = more
    return found


def _misled(study: StudyRecords, query: str, teachers: Sequence[str]) -> str:
    base, *rates = (study.cell(teacher, query).figure("query_rate") for teacher in ("detm", *teachers))
    more = ", ".join(f"{spelled(teacher)} ({shown(rate)})" for teacher, rate in zip(teachers, rates, strict=True))
    return f"{spelled(query)} ends up asking more than with Detm ({shown(base)}) when taught by {more}."


def _members_apart(study: StudyRecords, teacher: str) -> str:
    """How far apart the agent holds the members of a committee, over all query policies."""
    models = [model for model in study.models if model.teacher == teacher and len(model.members) > 1]
    found = {
        query: estimate([model.persona_js for model in models if model.query == query])
        for query in in_order(model.query for model in models)
    }
    known = sorted((figure.mean, query) for query, figure in found.items() if figure.known)
    if not known:
        return ""
    (low, lowest), (high, highest) = known[0], known[-1]
    span = (
        f"{high:.3f} bits" if low == high else f"{low:.3f} ({spelled(lowest)}) to {high:.3f} bits ({spelled(highest)})"
    )
    apart = f"{span} apart (0: the same, 1: nothing in common){members_truth(study, teacher)}"
    return f"{spelled(teacher)}: the behaviours learned for its members are {apart}."
