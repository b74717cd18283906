"""What a study of R2R shows, in sentences computed from its records."""

from __future__ import annotations

from statistics import fmean

from apil.errors import plural
from apil.r2r.tables import above_paper, answers_share, both_ways, differences, percent
from apil.studies.records import CellResult, StudyRecords
from apil.studies.text import spelled


def r2r_findings(study: StudyRecords) -> list[str]:
    """The main results; none where the records have no splits."""
    if not study.splits:
        return []
    sentences = [_best(study, teacher) for teacher in study.teachers]
    sentences += [_against_dagger(study, teacher) for teacher in both_ways(study)]
    # Whether a teacher who varies is seen to: intrinsic uncertainty under Rand against teachers who do not.
    varies = " ".join(filter(None, (_varies_more(study, name) for name in ("detm", "twodifdetm"))))
    sentences += [_against_paper(study), varies, *(_differ(study, query) for query in ("dagger", "apil"))]
    return [sentence for sentence in sentences if sentence]


def _cell(cell: CellResult) -> str:
    return f"{spelled(cell.query)}, {spelled(cell.teacher)}"


def _seeds(cell: CellResult) -> str:
    return plural(cell.seeds, "seed")


def _best(study: StudyRecords, teacher: str) -> str:
    """How well each query policy's agent does alone, the highest first, and what the teacher itself reaches."""
    main = study.splits[0]
    able = [cell for cell in study.cells if cell.teacher == teacher and cell.measure(main, "success_alone").known]
    if not able:
        return ""

    def success(cell: CellResult) -> float:
        return cell.measure(main, "success_alone").mean

    best, *others = sorted(able, key=success, reverse=True)
    figure = percent(best, best.measure(main, "success_alone"))
    few = len({cell.seeds for cell in able}) > 1
    then = [f"{spelled(c.query)} {100 * success(c):.1f}" + (f" ({_seeds(c)})" if few else "") for c in others]
    ceiling = [entry for entry in study.ceiling if entry.teacher == teacher]
    own = f" The teacher itself, followed at every step, reaches {100 * ceiling[0].success:.1f} %." if ceiling else ""
    rest = f"; then {', '.join(then)}" if then else ""
    name = f"{spelled(best.query)}, {_seeds(best)}"
    return f"{spelled(teacher)}: the highest success alone on {main} is {figure} % ({name}){rest}.{own}"


def _against_dagger(study: StudyRecords, teacher: str) -> str:
    """What APIL pays and gets, against asking at every step."""
    found = differences(study, teacher, study.splits[0]).values()
    cell = study.cell(teacher, "apil")
    spread = f"over {len(found)} common seeds, from {min(found):+.1f} to {max(found):+.1f}"
    over = "with one common seed" if len(found) == 1 else spread
    return (
        f"{spelled(teacher)}: APIL's success alone on {study.splits[0]} minus DAgger's is {fmean(found):+.1f} points "
        f"({over}), "
        f"with {100 * answers_share(study, teacher):.0f} % of DAgger's answers; in the last tenth of training it asks "
        f"at {percent(cell, cell.figure('query_rate'))} % of the steps."
    )


def _against_paper(study: StudyRecords) -> str:
    """In how many cells we are above the paper's success."""
    gaps = [(gap, cell) for cell in study.cells if (gap := above_paper(study, cell)) is not None]
    if not gaps:
        return ""
    main, higher = study.splits[0], sum(gap > 0 for gap, _ in gaps)
    (low, least), (high, most) = (pick(gaps, key=lambda pair: pair[0]) for pick in (min, max))
    return (
        f"Success alone on {main} is above the paper's on test in {higher} of {len(gaps)} "
        f"cells: from {low:+.1f} points ({_cell(least)}) to {high:+.1f} ({_cell(most)})."
        " The paper's agent saw images, and had another optimiser and another split: no like-for-like comparison."
    )


def _varies_more(study: StudyRecords, other: str) -> str:
    found = {}
    for query in study.queries:
        varies, steady = (study.cell(teacher, query).figure("intrinsic") for teacher in ("rand", other))
        if varies.known and steady.known:
            found[query] = (varies.mean, steady.mean)
    if not found:
        return ""
    higher = sum(varies > steady for varies, steady in found.values())
    each = ", ".join(f"{spelled(query)} {varies:.3f} against {steady:.3f}" for query, (varies, steady) in found.items())
    numbers = [study.printed.get(name, {}).get("intrinsic") for name in ("rand", other)]
    printed = "; paper " + " against ".join(f"{number:.2f}" for number in numbers if number is not None)
    return (
        f"Learned intrinsic uncertainty is higher under Rand than under {spelled(other)} for {higher} of {len(found)} "
        f"trainers (bits: {each}{printed if None not in numbers else ''})."
    )


def _differ(study: StudyRecords, query: str) -> str:
    """Whether teachers who differ are seen to: extrinsic uncertainty by teacher."""
    known = {name: study.cell(name, query).figure("extrinsic") for name in study.teachers}
    known = {name: figure for name, figure in known.items() if figure.known}
    if len(known) < 2:
        return ""
    paper = {name: study.printed.get(name, {}).get("extrinsic") for name in known}
    each = ", ".join(
        f"{spelled(name)} {figure.mean:.4f}" + ("" if paper[name] is None else f" (paper {paper[name]:.2f})")
        for name, figure in known.items()
    )
    perfect = {name: study.expectations.get(name, {}).get("extrinsic", 0.0) for name in known}
    truth = ", ".join(f"{value:.3f} with {spelled(name)}" for name, value in perfect.items() if value > 0)
    copy = f" A perfect copy of the teachers would have {truth}." if truth else ""
    return f"Learned extrinsic uncertainty, trained by {spelled(query)}, bits: {each}.{copy}"
