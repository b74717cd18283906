"""What a study of R2R shows, in sentences computed from its records."""

from __future__ import annotations

from statistics import fmean

from apil.studies.paper import R2R_RESULTS, printed_uncertainty
from apil.studies.r2r_tables import answers_share, both_ways, differences, percent
from apil.studies.records import Cell, Study
from apil.studies.tables import shown


def r2r_findings(study: Study) -> list[str]:
    """The main results; none where the task has no splits."""
    if not study.splits:
        return []
    sentences = [_best(study, teacher) for teacher in study.teachers]
    sentences += [_against_dagger(study, teacher) for teacher in both_ways(study)]
    sentences += [_against_paper(study), _varies(study), *(_differ(study, query) for query in ("dagger", "apil"))]
    return [sentence for sentence in sentences if sentence]


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _best(study: Study, teacher: str) -> str:
    """Which query policy leaves the best agent, and what the teacher itself reaches."""
    main = study.splits[0]
    able = [cell for cell in study.cells if cell.teacher == teacher and cell.measure(main, "success_alone").known]
    if not able:
        return ""

    def success(cell: Cell) -> float:
        return cell.measure(main, "success_alone").mean

    best = max(able, key=success)
    figure = shown(percent(best.measure(main, "success_alone")), 1, best.seeds)
    others = [
        f"{cell.query} {100 * success(cell):.1f}"
        for cell in sorted(able, key=success, reverse=True)
        if cell is not best
    ]
    ceiling = [entry for entry in study.ceiling if entry.teacher == teacher]
    own = f" The teacher itself, followed at every step, reaches {100 * ceiling[0].success:.1f} %." if ceiling else ""
    rest = f"; then {', '.join(others)}" if others else ""
    return f"{teacher}: the best success alone on {main} is {figure} % ({best.query}, {_seeds(best.seeds)}){rest}.{own}"


def _against_dagger(study: Study, teacher: str) -> str:
    """What APIL pays and gets, against asking at every step."""
    found = differences(study, teacher, study.splits[0])
    cell = study.cell(teacher, "apil")
    over = f"over {len(found)} common seeds, from {min(found):+.1f} to {max(found):+.1f}"
    if len(found) == 1:
        over = "with one common seed"
    return (
        f"{teacher}: apil's success alone on {study.splits[0]} minus dagger's is {fmean(found):+.1f} points ({over}), "
        f"with {100 * answers_share(study, teacher):.0f} % of dagger's answers; in the last tenth of training it asks "
        f"at {shown(percent(cell.figure('query_rate')), 1, cell.seeds)} % of the steps."
    )


def _against_paper(study: Study) -> str:
    """In how many cells we are above the paper's success."""
    gaps = [
        (
            100 * cell.measure(study.splits[0], "success_alone").mean - R2R_RESULTS[cell.query][cell.teacher].success,
            cell,
        )
        for cell in study.cells
        if cell.teacher in R2R_RESULTS.get(cell.query, {}) and cell.measure(study.splits[0], "success_alone").known
    ]
    if not gaps:
        return ""
    above = sum(gap > 0 for gap, _ in gaps)
    (low, least), (high, most) = (pick(gaps, key=lambda pair: pair[0]) for pick in (min, max))
    return (
        f"Success alone on {study.splits[0]} is above the paper's on test in {above} of {len(gaps)} cells: from "
        f"{low:+.1f} points ({least.query}, {least.teacher}) to {high:+.1f} ({most.query}, {most.teacher})."
    )


def _varies(study: Study) -> str:
    """Whether a teacher who varies is seen to: intrinsic uncertainty under RAND against DETM."""
    found = {}
    for query in study.queries:
        rand, detm = (study.cell(teacher, query).figure("intrinsic") for teacher in ("rand", "detm"))
        if rand.known and detm.known:
            found[query] = (rand.mean, detm.mean)
    if not found:
        return ""
    higher = sum(rand > detm for rand, detm in found.values())
    each = ", ".join(f"{query} {rand:.3f} against {detm:.3f}" for query, (rand, detm) in found.items())
    printed = " against ".join(f"{printed_uncertainty('r2r', name, 'intrinsic'):.2f}" for name in ("rand", "detm"))
    return (
        f"Learned intrinsic uncertainty is higher under rand than under detm for {higher} of {len(found)} trainers "
        f"(bits: {each}; paper {printed})."
    )


def _differ(study: Study, query: str) -> str:
    """Whether teachers who differ are seen to: extrinsic uncertainty by teacher."""
    known = {name: study.cell(name, query).figure("extrinsic") for name in study.teachers}
    known = {name: figure for name, figure in known.items() if figure.known}
    if len(known) < 2:
        return ""
    paper = {name: printed_uncertainty("r2r", name, "extrinsic") for name in known}
    each = ", ".join(
        f"{name} {figure.mean:.4f}" + ("" if paper[name] is None else f" (paper {paper[name]:.2f})")
        for name, figure in known.items()
    )
    return f"Learned extrinsic uncertainty, trained by {query}, bits: {each}."
